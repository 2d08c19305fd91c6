"""Erasure of memories and users: afterwards nothing here contains what a user took back."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, NotFound
from foremind.memory.erasure.scope import (
    ErasedContent,
    RelationshipTexts,
    SimilarityThresholds,
    find_erased_content,
)
from foremind.memory.erasure.steps import (
    Decide,
    ErasureCounts,
    ErasureSteps,
    Names,
    find_and_lock,
)
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.fair_queue import ConnectionQueue
from foremind.storage.database import Count, Database, DatabaseConnection
from foremind.storage.erasure_store import ErasureReader, ErasureTransaction
from foremind.storage.user_store import UserErasure, UserStore, count_erased
from foremind.text.mentions import Mention


class ErasureReceipt(msgspec.Struct, frozen=True):
    """What was removed: memories, the texts of turns, records by layer.

    `remade` are those of the records that are regenerated from what remains, `shortened` counts
    records that lost lines only, `reread` neighbouring memories that were re-embedded. Of a
    `dry_run`, what would have been removed.
    """

    memories: tuple[str, ...]
    turns: int
    records: int
    reread: int
    layers: dict[str, int] = {}
    remade: dict[str, int] = {}
    shortened: int = 0
    dry_run: bool = False


class ErasureScope(msgspec.Struct, frozen=True):
    """What is to be erased: memories, turns, a session, what mentions some words, or everything.

    `not_kept`: the turns were never meant to be kept; other turns that say the same stay.
    """

    memories: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()
    not_kept: bool = False
    session: str | None = None
    about: Mention | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is named."""
        return self == ErasureScope()

    @property
    def param(self) -> str:
        """The name of the parameter that is set."""
        if self.memories:
            return "memory"
        if self.turns:
            return "turn"
        params = ("session", "about")
        return next((param for param in params if getattr(self, param) is not None), "everything")

    def __str__(self) -> str:
        """Describe the scope for the audit trail, without the words of a topic."""
        match self.param:
            case "memory":
                return f"memory {', '.join(map(str, self.memories))}"
            case "turn":
                return f"{len(self.turns)} turns" if self.turns[1:] else f"turn {self.turns[0]}"
            case "about":
                return "a topic"
            case "everything":
                return "everything"
            case param:
                return f"{param} {getattr(self, param)}"


_MAX_TURNS = 2**31 - 1
_NO_TURN = 2**62  # all turns have lower ids
_BATCH_SIZE = 500  # turns that one transaction removes
_MAX_RUNNING = 2  # erasures of this process at once: each holds a connection, and a thread at times
_MAX_WAITING = 20  # further erasures of one relationship
_WAIT_TIMEOUT_S = 60.0

_log = structlog.get_logger("foremind.memory")


@dataclass(frozen=True, slots=True)
class _ErasureRequest:
    """An erasure in progress."""

    relationship_id: int
    scope: ErasureScope
    names: Names | None
    dry_run: bool
    counts: ErasureCounts = field(default_factory=ErasureCounts)


class _RolledBack(Exception):
    """Ends the transaction of a dry run, which has counted what it erased."""


class Replacement(Protocol):
    """What stands in place of turns that are erased for it."""

    async def withdrawn(self, reader: ErasureReader) -> Collection[int]:
        """Return the turns that no longer stand; called again if something changed since.

        Raises:
            RequestError: it is not possible.
        """

    async def store(self, transaction: ErasureTransaction) -> bool:
        """Store what stands instead, after the erasure; return whether anything changed."""


class Eraser:
    """Erases what a user takes back, with everything that contains it or was derived from it.

    That is: turns and their memories, facts, traces and vectors; other turns with the same text
    verbatim; the companion's replies that answer, quote or paraphrase them; and every summary,
    episode, note or other record that was derived from these, directly or not, or contains them.
    Neighbouring memories are re-embedded, since they shared terms and vectors, and records are
    regenerated from what remains.

    Args:
        thresholds: minimum cosines of texts about the same.
    """

    def __init__(
        self,
        database: Database,
        ingester: MemoryIngester,
        embedder: EmbeddingService,
        clock: Clock,
        thresholds: SimilarityThresholds,
    ) -> None:
        self._database = database
        self._ingester = ingester
        self._embedder = embedder
        self._clock = clock
        self._thresholds = thresholds
        self._running = ConnectionQueue(_MAX_RUNNING, 1, _MAX_WAITING, _WAIT_TIMEOUT_S)

    async def erase(
        self,
        relationship_id: int,
        names: tuple[str, str],
        scope: ErasureScope,
        *,
        actor: str,
        read_in_exchange: bool,
        dry_run: bool = False,
    ) -> ErasureReceipt:
        """Erase part or all of a relationship.

        Large amounts are erased in several transactions: first what was derived from the turns,
        then the turns in batches, with replies that were stored in the meantime. If interrupted,
        what is erased stays erased, and a second call erases the rest.

        Args:
            names: the user's and the companion's.
            actor: who requested it, for the audit trail.
            read_in_exchange: whether the companion's memories are embedded with their neighbours.
            dry_run: only count what would be erased: one transaction erases it, and is rolled back.

        Raises:
            NotFound: nothing in the relationship matches the scope.
            RateLimited: too many erasures of this relationship are waiting, or one for too long.
            StorageUnavailable, Overloaded: try again later.
        """
        vectors = await self._ingester.name_vectors(*names)
        request = _ErasureRequest(
            relationship_id, scope, vectors if read_in_exchange else None, dry_run
        )
        async with self._running.turn(relationship_id):
            try:
                if scope.everything:
                    await self._erase_everything(request, actor)
                else:
                    await self._erase_named(request, actor)
            except _RolledBack:
                pass
            except NotFound:
                if not dry_run:  # it may be in prompts alone: the state of a session that is over
                    await self.erase_prompts(relationship_id)
                raise
        if not dry_run:
            _log.info(
                "memories.forgotten",
                relationship_id=relationship_id,
                memories=len(request.counts.memories),
            )
        return _receipt(request.counts, dry_run=dry_run)

    async def erase_turns(
        self, relationship_id: int, names: tuple[str, str], turns: Collection[int]
    ) -> None:
        """Erase turns that were never meant to be kept, with replies that have mentioned them.

        Turns that say the same and are kept stay, and so does what was edited manually.

        Raises:
            StorageUnavailable, Overloaded: try again later.
        """
        await self.erase(
            relationship_id,
            names,
            ErasureScope(turns=tuple(turns), not_kept=True),
            actor="server",
            read_in_exchange=True,
        )

    async def replace(
        self,
        relationship_id: int,
        names: tuple[str, str],
        replacement: Replacement,
        *,
        actor: str,
        read_in_exchange: bool,
    ) -> None:
        """Erase turns as those that were never meant to be kept, and store what stands instead.

        Both are one transaction. Arguments as of `erase`.

        Raises:
            RequestError: the replacement is not possible; nothing was changed.
            RateLimited, StorageUnavailable, Overloaded: try again later; nothing was changed.
        """
        vectors = await self._ingester.name_vectors(*names)
        names_vectors = vectors if read_in_exchange else None

        async def prepare(reader: ErasureReader) -> Decide:
            return partial(
                find_erased_content,
                named_turns=await replacement.withdrawn(reader),
                keep_other_mentions=True,
                thresholds=self._thresholds,
            )

        async with (
            self._running.turn(relationship_id),
            find_and_lock(self._database, relationship_id, self._embedder, prepare) as (
                transaction,
                _,
                erased,
            ),
        ):
            now, touched = self._clock.now(), [*sorted(erased.turns), *erased.replies]
            steps = ErasureSteps(transaction, self._embedder, names_vectors, now, ErasureCounts())
            if touched:
                await transaction.delete_alternatives()
                await steps.remove(touched, erased)
                await transaction.audit(actor, "replace", f"{len(touched)} turns", now)
            if await replacement.store(transaction) or touched:
                await transaction.announce(touched, since=min(touched, default=_NO_TURN))

    async def erase_prompts(self, relationship_id: int) -> None:
        """Erase the kept prompts of a relationship."""
        data = self._database.for_relationship(relationship_id)
        await data.execute("delete_prompts", relationship_id)

    async def erase_record(
        self,
        relationship_id: int,
        record_id: int,
        subject: str,
        *,
        actor: str,
        digests: Collection[str],
    ) -> ErasureReceipt:
        """Erase a record and what was derived from it.

        Args:
            subject: its name in the audit trail.
            digests: digests of content that background work must not create again.

        Raises:
            NotFound: the relationship has no such record.
            StorageUnavailable: try again later; nothing was half done.
        """
        now, counts = self._clock.now(), ErasureCounts()
        async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
            if not await transaction.record_texts([record_id]):
                raise NotFound("record: expected the id of a record here", param="record")
            steps = ErasureSteps(transaction, self._embedder, None, now, counts)
            await transaction.delete_alternatives()
            await steps.remove((), records=[record_id])
            if digests:
                await transaction.add_dismissed(digests)
            await transaction.audit(actor, "forget", subject, now)
            await transaction.announce(())
        return _receipt(counts)

    async def erase_relationship(
        self,
        relationship_id: int,
        count: Count,
    ) -> None:
        """Erase all of a relationship, and that there was one; if interrupted, erase the rest.

        Args:
            count: stores what each transaction erased, by kind, within it.

        Raises:
            NotFound: nothing is left of it.
            RateLimited, StorageUnavailable, Overloaded: try again later.
        """
        async with self._running.turn(relationship_id):
            turns = [0]
            while turns:
                async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
                    deleted = await transaction.delete_records(await transaction.every_record())
                    turns = await transaction.first_turns(_MAX_TURNS, _BATCH_SIZE)
                    memories, deleted_turns = await transaction.delete(turns)
                    counts = {
                        "turns": deleted_turns,
                        "memories": len(memories),
                        "records": sum(deleted.values()),
                    }
                    if turns:
                        await transaction.announce(turns)
                    else:
                        counts |= await transaction.delete_relationship()
                    await count(transaction.connection, counts)

    async def _erase_named(self, request: _ErasureRequest, actor: str) -> None:
        scope, relationship_id = request.scope, request.relationship_id
        prepare = partial(self._prepare, scope)
        async with find_and_lock(self._database, relationship_id, self._embedder, prepare) as (
            transaction,
            texts,
            erased,
        ):
            turns = sorted(erased.turns)
            few = turns if len(turns) <= _BATCH_SIZE or request.dry_run else []
            last_turn = transaction.seen.last_turn
            touched = [*few, *erased.replies]
            steps = self._steps(request, transaction)
            if scope.not_kept or not await steps.clear_states(
                texts, erased, scope.about, scope.session
            ):
                await asyncio.to_thread(_check, scope, texts, erased)
            await transaction.delete_alternatives()
            await steps.remove(touched, erased)
            if request.dry_run:
                raise _RolledBack
            if few or not turns:
                await transaction.audit(actor, "forget", str(scope), self._clock.now())
            await transaction.announce(touched)
        remaining = [] if few else turns
        for first in range(0, len(remaining), _BATCH_SIZE):
            batch = remaining[first : first + _BATCH_SIZE]
            async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
                batch += await transaction.replies_after(last_turn)
                await self._steps(request, transaction).remove(batch)
                if first + _BATCH_SIZE >= len(remaining):
                    await transaction.audit(actor, "forget", str(scope), self._clock.now())
                await transaction.announce(batch)

    async def _erase_everything(self, request: _ErasureRequest, actor: str) -> None:
        """Delete all rows, so that not even their number remains."""
        relationship_id, counts = request.relationship_id, request.counts
        async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
            last_turn = transaction.seen.last_turn
            deleted = await transaction.delete_records(await transaction.every_record())
            counts.records.update(deleted)
            await transaction.delete_alternatives()
            if request.dry_run:
                turns = await transaction.first_turns(last_turn, _MAX_TURNS)
                counts.memories, counts.turns = await transaction.delete(turns)
                raise _RolledBack
            await transaction.reset_relationship()
            await transaction.delete_states()
            await transaction.announce(())
        while True:
            async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
                turns = await transaction.first_turns(last_turn, _BATCH_SIZE)
                turns += await transaction.replies_after(last_turn)
                memories, deleted_turns = await transaction.delete(turns)
                counts.memories |= memories
                counts.turns += deleted_turns
                if not turns:
                    # Records that were derived in the meantime from turns not yet deleted.
                    deleted = await transaction.delete_records(await transaction.every_record())
                    counts.records.update(deleted)
                    await transaction.delete_closed_sessions()
                    await transaction.audit(actor, "forget", str(request.scope), self._clock.now())
                await transaction.announce(turns)
            if not turns:
                return

    def _steps(self, request: _ErasureRequest, transaction: ErasureTransaction) -> ErasureSteps:
        now = self._clock.now()
        return ErasureSteps(transaction, self._embedder, request.names, now, request.counts)

    async def _prepare(self, scope: ErasureScope, reader: ErasureReader) -> Decide:
        """Read which turns are named; return the function that finds all that contains them."""
        named: Collection[int] = ()
        if scope.memories:
            named = await reader.turns_of_memories(scope.memories)
        elif scope.session is not None:
            named = await reader.turns_of_session(scope.session)
        elif scope.turns:
            named = scope.turns

        def decide(texts: RelationshipTexts) -> ErasedContent:
            return find_erased_content(
                texts,
                named,
                about=scope.about,
                # When a session is erased, other sessions may go on saying the same.
                include_repetitions=bool(scope.memories or scope.turns) and not scope.not_kept,
                keep_other_mentions=scope.not_kept,
                thresholds=self._thresholds,
            )

        return decide


def _receipt(counts: ErasureCounts, *, dry_run: bool = False) -> ErasureReceipt:
    return ErasureReceipt(
        memories=tuple(map(str, sorted(counts.memories))),
        turns=counts.turns,
        records=counts.records.total(),
        reread=len(counts.reembedded),
        layers=dict(counts.records),
        remade=dict(counts.regenerated),
        shortened=len(counts.shortened),
        dry_run=dry_run,
    )


def _check(scope: ErasureScope, texts: RelationshipTexts, erased: ErasedContent) -> None:
    """Make sure that there is something to erase.

    Raises:
        NotFound: there is not.
    """
    if (
        not erased.states
        and not erased.shortened
        and not any(turn in texts.turns for turn in erased.turns)
        and not any(record.turns & erased.turns for record in texts.records.values())
    ):
        near = scope.about.near_spellings(_all_texts(texts)) if scope.about else []
        similar = f"; words that are spelled alike: {', '.join(near)}" if near else ""
        raise NotFound(
            f"{scope.param}: expected something that is stored here{similar}", param=scope.param
        )


def _all_texts(texts: RelationshipTexts) -> Iterator[str]:
    """Yield what was said and what is recorded."""
    yield from (turn.content for turn in texts.turns.values())
    yield from (state.text for state in texts.states.values())


class UserErasureReceipt(msgspec.Struct, frozen=True):
    """How much of a user was erased; nothing in it identifies the user.

    `events` of worlds were forgotten, by the `minds` of some characters.
    """

    relationships: int = 0
    sessions: int = 0
    turns: int = 0
    memories: int = 0
    records: int = 0
    audit: int = 0
    events: int = 0
    minds: tuple[str, ...] = ()


_MIND = "mind "  # what the kinds of counts begin with that name the minds which forgot


class PlayerEraser(Protocol):
    """Erases players from worlds."""

    async def forget_player(self, erasure: UserErasure, count: Count) -> None:
        """Forget what a player said, did or was told, and that there was one."""


class UserEraser:
    """Erases users: everything they said, what was derived from it, and their existence.

    An erasure is recorded before anything else. What is interrupted after that, by a kill or a full
    disk, is finished by whoever finds it unfinished.
    """

    def __init__(
        self, users: UserStore, eraser: Eraser, worlds: PlayerEraser, clock: Clock
    ) -> None:
        self._users = users
        self._eraser = eraser
        self._worlds = worlds
        self._clock = clock

    async def erase(self, user_id: str, *, by_operator: bool) -> UserErasureReceipt:
        """Erase a user, or finish what was interrupted; every process ends their sessions.

        Returns:
            What was erased in all, also before an interruption.

        Raises:
            NotFound: there is no user with that id.
            RateLimited, StorageUnavailable, Overloaded: nothing was recorded, and nothing erased;
                or it is recorded, and will be finished.
        """
        erasure = await self._users.begin_erasure(
            user_id, self._clock.now(), by_operator=by_operator
        )
        return await self._finish(erasure)

    async def finish_interrupted(self) -> None:
        """Finish the erasures that are recorded and not finished; those that fail are left.

        Raises:
            StorageUnavailable: try again later.
        """
        for erasure in await self._users.unfinished_erasures():
            try:
                await self._finish(erasure)
            except ForemindError as error:
                _log.warning("user.not_erased", erasure=erasure.id, reason=error.code)

    async def _finish(self, erasure: UserErasure) -> UserErasureReceipt:
        async def count(connection: DatabaseConnection, counts: Mapping[str, int]) -> None:
            await count_erased(connection, erasure, counts)

        await self._worlds.forget_player(erasure, count)
        receipt = None
        while receipt is None:
            for relationship_id in await self._users.relationships_of(erasure):
                with suppress(NotFound):  # somebody else has finished it
                    await self._eraser.erase_relationship(relationship_id, count)
            receipt = await self._users.finish_erasure(erasure)
        _log.info("user.erased", relationships=receipt.get("relationships", 0))
        minds = sorted(kind.removeprefix(_MIND) for kind in receipt if kind.startswith(_MIND))
        return msgspec.convert(receipt | {"minds": minds}, UserErasureReceipt)
