"""Looks after relationships in the background: whatever is due, one at a time for each."""

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

import structlog

from foremind.clock import Clock
from foremind.curation.due import fallen_out, habits_due, is_over, is_stale, next_look
from foremind.curation.episodes import tell
from foremind.curation.habits import infer_habits
from foremind.curation.notes import keep_notes
from foremind.curation.retention import let_go
from foremind.curation.state import curate_state
from foremind.curation.summary import summarise
from foremind.curation.topics import distil
from foremind.curation.work import Work
from foremind.embedding.service import EmbeddingService
from foremind.errors import ForemindError
from foremind.generation.voices import Voices
from foremind.layers.tokens import counter_for
from foremind.memory.forget import Forgetter
from foremind.metrics import Metrics
from foremind.policies import laid_over, policy_for
from foremind.settings import Settings
from foremind.storage.curation import Bond, CurationStore, SaidTurn
from foremind.storage.record_store import RecordStore

_LEASE = timedelta(minutes=15)  # then a worker that took a relationship is presumed dead
_AGAIN = timedelta(seconds=60)  # after a failure
_AT_ONCE = 4
_LOOK_S = 1.0  # only a safety net: a reply says that there is something to do

_log = structlog.get_logger("foremind.curation")


class Curation:
    """Takes relationships that are due and does what is to be done, until the block ends.

    What is due is written in the database, so that work goes on after a restart and is shared
    between processes.
    """

    def __init__(
        self,
        due: CurationStore,
        records: RecordStore,
        embedder: EmbeddingService,
        voices: Voices,
        forgetter: Forgetter,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._due = due
        self._records = records
        self._embedder = embedder
        self._voices = voices
        self._forgetter = forgetter
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="curation")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._running, *([] if self._task is None else [self._task])]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self) -> None:
        """There may be something to do."""
        self._something.set()

    async def make_due(self, bond_id: int) -> None:
        """Have a relationship curated as soon as may be."""
        await self._due.make_due(bond_id, self._clock.now())
        self.look()

    async def _run(self) -> None:
        while True:
            self._something.clear()
            try:
                await self._begin_what_is_due()
            except ForemindError as error:
                _log.warning("curation.waits", reason=error.code)
            await self._rest()

    async def _rest(self) -> None:
        """Wait until there may be something to do."""
        woken = asyncio.create_task(self._something.wait())
        timer = asyncio.create_task(self._clock.sleep(_LOOK_S))
        try:
            await asyncio.wait({woken, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            timer.cancel()
            await asyncio.gather(woken, timer, return_exceptions=True)

    async def _begin_what_is_due(self) -> None:
        """Take as many relationships as there is room for; each in a task of its own."""
        now = self._clock.now()
        free = _AT_ONCE - len(self._running)
        for each in await self._due.claim(now, now + _LEASE, free) if free else ():
            work = self._curate_and_finish(each, now + _LEASE)
            task = asyncio.create_task(work, name="curate")
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._something.set()

    async def _curate_and_finish(self, bond_id: int, claimed: datetime) -> None:
        again: datetime | None = claimed
        try:
            again = await self.curate(bond_id)
        except ForemindError as error:
            _log.warning("curation.failed", relationship_id=bond_id, reason=error.code)
            again = self._clock.now() + _AGAIN  # what is not done stays as it was
        except Exception as error:  # a defect in one relationship must not stop the others
            _log.exception("curation.broken", relationship_id=bond_id, reason=type(error).__name__)
        with contextlib.suppress(ForemindError):  # the lease ends without it too
            await self._due.finish(bond_id, claimed, again)

    async def curate(self, bond_id: int) -> datetime | None:
        """Do whatever is due in a relationship; return when it is due next.

        Raises:
            ModelServerError, StorageUnavailable, Overloaded, Conflict: try again later.
        """
        bond = await self._due.bond(bond_id)
        if bond is None:
            return None
        work = await self._work(bond)
        since = min(bond.noted_turn_id, bond.summarised_turn_id, bond.told_turn_id)
        turns = await self._due.turns_after(bond_id, since)
        await keep_notes(work, [each for each in turns if each.id > bond.noted_turn_id])
        upto: int | None = bond.summarised_turn_id
        while upto is not None:
            upto = await summarise(work, [each for each in turns if each.id > upto])
        untold = [each for each in turns if each.id > bond.told_turn_id and not each.told]
        await self._tell(work, untold)
        await let_go(work, self._forgetter)
        sessions = await self._due.open_sessions(bond_id)
        return next_look(sessions, work.policy, work.now)

    async def _work(self, bond: Bond) -> Work:
        own = laid_over(bond.companion_settings, bond.own_settings)
        policy = policy_for(own, self._settings).layers
        return Work(
            bond=bond,
            policy=policy,
            server=self._voices.server_of(own),
            count=counter_for(policy.tokenizer),
            store=self._records,
            embedder=self._embedder,
            metrics=self._metrics,
            now=self._clock.now().astimezone(ZoneInfo(bond.time_zone)),
            records=await self._records.all(bond.id),
        )

    async def _tell(self, work: Work, turns: list[SaidTurn]) -> None:
        """Make episodes of sessions that are over, and of what fell out of one that goes on."""
        sessions = await self._due.open_sessions(work.bond.id)
        over = {each.id for each in sessions if is_over(each, work.policy, work.now)}
        going_on = {each.id for each in sessions} - over
        ended = [each for each in turns if each.session_id not in going_on]
        upto = (await self._records.state(work.bond.id)).summarised_turn_id
        running = [each for each in turns if each.session_id in going_on]
        fallen = fallen_out(running, upto, work.policy, work.count)
        for part in _by_session(ended):
            await tell(work, part, closed=True)
        if fallen:
            await tell(work, fallen, closed=False)
        if ended or fallen or is_stale(work.records):
            await distil(work)
            await curate_state(work)
        for session_id in over:
            silent = work.now - work.policy.session
            await self._due.close_session(work.bond.id, session_id, work.now, silent)
        if ended and habits_due(work.bond.habits_at, work.now):
            await infer_habits(work, await self._due.habits(work.bond.id))


def _by_session(turns: list[SaidTurn]) -> list[list[SaidTurn]]:
    parts: dict[object, list[SaidTurn]] = {}
    for each in turns:
        parts.setdefault(each.session_id, []).append(each)
    return list(parts.values())
