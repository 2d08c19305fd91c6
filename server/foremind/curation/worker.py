"""Looks after relationships in the background: whatever is due, one at a time for each."""

import asyncio
import contextlib
import functools
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

import structlog

from foremind.clock import Clock
from foremind.curation.due import fallen_out, habits_due, is_over, is_stale, next_look
from foremind.curation.episodes import tell
from foremind.curation.habits import infer_habits
from foremind.curation.notes import keep_notes, note_again
from foremind.curation.retention import let_go
from foremind.curation.state import curate_state
from foremind.curation.summary import summarise
from foremind.curation.topics import distil
from foremind.curation.work import Work
from foremind.embedding.service import EmbeddingService
from foremind.errors import Conflict, ForemindError
from foremind.generation.voices import Voices
from foremind.layers.tokens import counter_for
from foremind.levels import in_force
from foremind.memory.expire import Expirer
from foremind.memory.forget import Forgetter
from foremind.metrics import Metrics
from foremind.policies import policy_for
from foremind.settings import Settings
from foremind.storage.curation import Bond, CurationStore, SaidTurn
from foremind.storage.record_store import RecordStore
from foremind.supervision import Supervised, Supervisor, TaskSet

_LEASE = timedelta(minutes=15)  # then a worker that claimed a relationship is presumed dead
_AGAIN = timedelta(seconds=60)  # after a failure
_AT_ONCE = 4
_DAY = timedelta(days=1)
_WOKEN_AT_ONCE = 200  # sleeping relationships that are looked at together: milliseconds
_SILENT_S = 60.0  # without a look at what is due, and something is wrong
_LOOK_S = 1.0  # only a safety net: a reply says that there is something to do

_log = structlog.get_logger("foremind.curation")


@dataclass(slots=True)
class _Claim:
    """A relationship that this worker curates, and until when it holds it."""

    bond_id: int
    until: datetime
    task: asyncio.Task[None] | None = None
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)  # renewed or given up, not both


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
        expirer: Expirer,
        forgetter: Forgetter,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self._due = due
        self._records = records
        self._embedder = embedder
        self._voices = voices
        self._expirer = expirer
        self._forgetter = forgetter
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._something = asyncio.Event()
        self._supervisor = supervisor
        self._loop: Supervised | None = None
        self._running = TaskSet()
        self._claims: dict[int, _Claim] = {}  # at most _AT_ONCE

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("curation", self._run, silent_s=_SILENT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        await self._running.stop()

    def look(self) -> None:
        """There may be something to do."""
        self._something.set()

    async def make_due(self, bond_id: int) -> None:
        """Have a relationship curated as soon as may be."""
        await self._due.make_due(bond_id, self._clock.now())
        self.look()

    async def _run(self, loop: Supervised) -> None:
        while True:
            self._something.clear()
            await self._begin_what_is_due()
            loop.well()
            await self._rest()

    async def _rest(self) -> None:
        """Wait until there may be something to do."""
        timer = self._clock.call_at(self._clock.monotonic() + _LOOK_S, self._something.set)
        try:
            await self._something.wait()
        finally:
            timer.cancel()

    async def _begin_what_is_due(self) -> None:
        """Take as many relationships as there is room for; each in a task of its own."""
        now = self._clock.now()
        every = bool(self._settings.retention_days)
        await self._due.wake(now, now - _DAY, _WOKEN_AT_ONCE, all_let_go=every)
        await self._renew_claims(now)
        free = _AT_ONCE - len(self._running)
        for each in await self._due.claim(now, now + _LEASE, free) if free else ():
            claim = self._claims[each] = _Claim(each, now + _LEASE)
            claim.task = self._running.begin(self._curate_and_finish(claim), "curate")
            claim.task.add_done_callback(functools.partial(self._ended, claim))

    async def _renew_claims(self, now: datetime) -> None:
        """Hold what takes long; leave what another worker may have by now, after a standstill."""
        for each in list(self._claims.values()):
            if each.until - now > _LEASE / 2:
                continue
            async with each.changing:
                held = await self._due.renew(each.bond_id, each.until, now + _LEASE)
                each.until = now + _LEASE
            if not held and each.task is not None:
                each.task.cancel()

    def _ended(self, claim: "_Claim", _: asyncio.Task[None]) -> None:
        if self._claims.get(claim.bond_id) is claim:
            del self._claims[claim.bond_id]
        self._something.set()

    async def _curate_and_finish(self, claim: "_Claim") -> None:
        bond_id = claim.bond_id
        again: datetime | None = claim.until
        try:
            again = await self.curate(bond_id)
        except Conflict:
            _log.info("curation.begins_anew", relationship_id=bond_id)
            again = self._clock.now()  # what it was made of has changed meanwhile
        except ForemindError as error:
            _log.warning("curation.failed", relationship_id=bond_id, reason=error.code)
            again = self._clock.now() + _AGAIN  # what is not done stays as it was
        except Exception as error:  # a defect in one relationship must not stop the others
            _log.exception("curation.broken", relationship_id=bond_id, reason=type(error).__name__)
        async with claim.changing:
            with contextlib.suppress(ForemindError):  # the claim ends without it too
                await self._due.finish(bond_id, claim.until, again)

    async def curate(self, bond_id: int) -> datetime | None:
        """Do whatever is due in a relationship; return when it is due next.

        Raises:
            ModelServerError, StorageUnavailable, Overloaded, Conflict: try again later.
        """
        bond = await self._due.bond(bond_id)
        if bond is None:
            return None
        work = await self._work(bond)
        await let_go(work, self._expirer)  # needs no model, and waits for none
        since = min(bond.noted_turn_id, bond.summarised_turn_id, bond.told_turn_id)
        turns = await self._due.turns_after(bond_id, since)
        await keep_notes(work, [each for each in turns if each.id > bond.noted_turn_id])
        for portion in bond.remade:
            if portion.layer != "hot":
                await note_again(work, portion, await self._due.turns(bond_id, portion.turns))
        upto: int | None = bond.summarised_turn_id
        while upto is not None:
            upto = await summarise(work, [each for each in turns if each.id > upto])
        untold = [each for each in turns if each.id > bond.told_turn_id and not each.told]
        await self._tell(work, untold)
        await self._let_go_unkept(work)
        sessions = await self._due.open_sessions(bond_id)
        return next_look(sessions, work.policy, work.now)

    async def _work(self, bond: Bond) -> Work:
        own = in_force(bond.companion_settings, bond.settings, self._settings)
        whole = policy_for(own, self._settings)
        policy = whole.layers
        return Work(
            bond=bond,
            policy=policy,
            server=self._voices.server_of(whole.voice),
            count=counter_for(policy.tokenizer),
            store=self._records,
            embedder=self._embedder,
            metrics=self._metrics,
            now=self._clock.now().astimezone(ZoneInfo(bond.time_zone)),
            records=await self._records.all(bond.id),
        )

    async def _let_go_unkept(self, work: Work) -> None:
        """Erase what was not to be remembered of sessions that are over."""
        turns = await self._due.unkept_turns(work.bond.id)
        if turns:
            names = (work.bond.user_name, work.bond.companion_name)
            await self._forgetter.forget_turns(work.bond.id, names, turns)

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
        anew = [each for each in work.bond.remade if each.layer == "hot"]
        if ended or fallen or anew or is_stale(work.records):
            await distil(work)
            await curate_state(work)
        for each in anew:
            async with work.changing() as changes:
                await changes.noted_again(each)
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
