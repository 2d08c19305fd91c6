"""Forgetting for good: what a user takes back is in no table, index or cache afterwards."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import NotFound
from foremind.memory.erasure_scope import ErasedContent, ErasedTexts, Similarity, all_that_holds
from foremind.memory.erasure_steps import (
    Decide,
    ErasureCounts,
    ErasureSteps,
    Names,
    found_and_locked,
)
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureReader, ErasureTransaction
from foremind.storage.fair_queue import ConnectionQueue

_AT_ONCE = 500  # turns that one transaction removes
_RUNNING = 2  # forgets of this process at once: each holds a connection and a thread at times
_WAITING = 20  # more of one relationship, or a minute or so of waiting, are refused
_PATIENCE_S = 60.0

_log = structlog.get_logger("foremind.memory")


class ErasureReceipt(msgspec.Struct, frozen=True):
    """What was removed: memories, the texts of turns, records by layer.

    `remade` are those of the records that are made anew of what is left, `shortened` counts others
    that lost lines only, `reread` memories that were said beside what went.
    """

    memories: tuple[str, ...]
    turns: int
    records: int
    reread: int
    layers: dict[str, int] = {}
    remade: dict[str, int] = {}
    shortened: int = 0


class ErasureScope(msgspec.Struct, frozen=True):
    """What is to be forgotten: memories, a turn, a session, what mentions some words, or all.

    `unkept`: the turns were never to be remembered; whatever else says the same stays.
    """

    memories: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()
    unkept: bool = False
    session: str | None = None
    about: str | None = None

    @property
    def everything(self) -> bool:
        """True where nothing is named."""
        return self == ErasureScope()

    @property
    def param(self) -> str:
        """The name of what is named."""
        if self.memories:
            return "memory"
        if self.turns:
            return "turn"
        named = ("session", "about")
        return next((each for each in named if getattr(self, each) is not None), "everything")

    def __str__(self) -> str:
        """Name the kind, never the words."""
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


@dataclass(frozen=True, slots=True)
class _ErasureRequest:
    """A forget under way."""

    relationship_id: int
    scope: ErasureScope
    names: Names | None
    tally: ErasureCounts = field(default_factory=ErasureCounts)


class Eraser:
    """Removes what its user takes back, together with everything that holds it or was made of it.

    That is: turns and their memories, facts, traces and vectors; whoever said the same word for
    word; the companion's replies that answered it, quote it or speak of it in other words; and
    every summary, episode, note or other record that was made of these, however far, or holds
    them. Memories of the turns beside are read anew, since they shared words and vector, and
    records are made anew from what is left.

    Args:
        near: from which cosines on two texts are held to speak of the same.
    """

    def __init__(
        self,
        database: Database,
        rememberer: MemoryIngester,
        embedder: EmbeddingService,
        clock: Clock,
        near: Similarity,
    ) -> None:
        self._database = database
        self._rememberer = rememberer
        self._embedder = embedder
        self._clock = clock
        self._near = near
        self._running = ConnectionQueue(_RUNNING, 1, _WAITING, _PATIENCE_S)

    async def forget(
        self,
        relationship_id: int,
        names: tuple[str, str],
        scope: ErasureScope,
        *,
        actor: str,
        read_in_exchange: bool,
    ) -> ErasureReceipt:
        """Forget something of a relationship.

        What is a lot goes in several transactions: first what was made of it, then a portion of
        the turns after the other, with replies that were stored meanwhile. If it is broken off,
        what is gone stays gone, and asking again removes the rest.

        Args:
            names: the user's and the companion's.
            actor: who asked for it, for the audit trail.
            read_in_exchange: whether the companion's memories share with those beside them.

        Raises:
            NotFound: the relationship has nothing of the kind.
            RateLimited: too much is being forgotten of this relationship.
            StorageUnavailable, Overloaded: try again later.
        """
        vectors = await self._rememberer.name_vectors(*names)
        asked = _ErasureRequest(relationship_id, scope, vectors if read_in_exchange else None)
        async with self._running.turn(relationship_id):
            if scope.everything:
                await self._forget_everything(asked, actor)
            else:
                await self._forget_named(asked, actor)
        _log.info(
            "memories.forgotten",
            relationship_id=relationship_id,
            memories=len(asked.tally.memories),
        )
        return _receipt(asked.tally)

    async def forget_turns(
        self, relationship_id: int, names: tuple[str, str], turns: Collection[int]
    ) -> None:
        """Forget turns that were never to be kept, with whatever replies told of them since.

        What was said of the same to be kept, or was written by hand, stays.

        Raises:
            StorageUnavailable, Overloaded: try again later.
        """
        await self.forget(
            relationship_id,
            names,
            ErasureScope(turns=tuple(turns), unkept=True),
            actor="server",
            read_in_exchange=True,
        )

    async def forget_record(
        self,
        relationship_id: int,
        record_id: int,
        subject: str,
        *,
        actor: str,
        digests: Collection[str],
    ) -> ErasureReceipt:
        """Forget a record and what was made of it.

        Args:
            subject: what the audit trail calls it.
            digests: those of what no background work may make again.

        Raises:
            NotFound: the relationship has no such record.
            StorageUnavailable: try again later; nothing was half done.
        """
        now, tally = self._clock.now(), ErasureCounts()
        async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
            if not await transaction.states([record_id]):
                raise NotFound("record: expected the id of a record here", param="record")
            eraser = ErasureSteps(transaction, self._embedder, None, now, tally)
            await eraser.remove((), records=[record_id])
            if digests:
                await transaction.dismiss(digests)
            await transaction.audit(actor, "forget", subject, now)
            await transaction.announce(())
        return _receipt(tally)

    async def _forget_named(self, asked: _ErasureRequest, actor: str) -> None:
        scope, whose = asked.scope, asked.relationship_id
        prepare = partial(self._prepare, scope)
        async with found_and_locked(self._database, whose, self._embedder, prepare) as found:
            transaction, said, gone = found
            turns = sorted(gone.turns)
            few = turns if len(turns) <= _AT_ONCE else []
            upto = transaction.seen.last_turn
            touched = [*few, *gone.replies]
            eraser = self._eraser(asked, transaction)
            if scope.unkept or not await eraser.clear_states(
                said, gone, scope.about, scope.session
            ):
                _check(scope, said, gone)
            await eraser.remove(touched, gone)
            if few or not turns:
                await transaction.audit(actor, "forget", str(scope), self._clock.now())
            await transaction.announce(touched)
        left = [] if few else turns
        for first in range(0, len(left), _AT_ONCE):
            part = left[first : first + _AT_ONCE]
            async with ErasureTransaction.begin(self._database, whose) as transaction:
                part += await transaction.replies_after(upto)
                await self._eraser(asked, transaction).remove(part)
                if first + _AT_ONCE >= len(left):
                    await transaction.audit(actor, "forget", str(scope), self._clock.now())
                await transaction.announce(part)

    async def _forget_everything(self, asked: _ErasureRequest, actor: str) -> None:
        """Delete what there is, so that nothing shows how much there was."""
        whose, tally = asked.relationship_id, asked.tally
        async with ErasureTransaction.begin(self._database, whose) as transaction:
            upto = transaction.seen.last_turn
            removed = await transaction.delete_records(await transaction.every_record())
            tally.records.update(removed)
            await transaction.begin_anew()
            await transaction.delete_states()
            await transaction.announce(())
        while True:
            async with ErasureTransaction.begin(self._database, whose) as transaction:
                turns = await transaction.first_turns(upto, _AT_ONCE)
                turns += await transaction.replies_after(upto)
                memories, count = await transaction.delete(turns)
                tally.memories |= memories
                tally.turns += count
                if not turns:
                    # What was made of what was still there meanwhile.
                    more = await transaction.delete_records(await transaction.every_record())
                    tally.records.update(more)
                    await transaction.delete_closed_sessions()
                    await transaction.audit(actor, "forget", str(asked.scope), self._clock.now())
                await transaction.announce(turns)
            if not turns:
                return

    def _eraser(self, asked: _ErasureRequest, transaction: ErasureTransaction) -> ErasureSteps:
        now = self._clock.now()
        return ErasureSteps(transaction, self._embedder, asked.names, now, asked.tally)

    async def _prepare(self, scope: ErasureScope, reader: ErasureReader) -> Decide:
        """Read which turns are named; return what finds everything that holds what they say."""
        named: Collection[int] = ()
        if scope.memories:
            named = await reader.of_memories(scope.memories)
        elif scope.session is not None:
            named = await reader.of_session(scope.session)
        elif scope.turns:
            named = scope.turns

        def decide(said: ErasedTexts) -> ErasedContent:
            turns = set(named)
            if scope.about is not None:
                turns |= said.corpus.mentioning(scope.about)
            # What was said again in another session is that session's.
            again = bool(scope.memories or scope.turns) and not scope.unkept
            return all_that_holds(
                said,
                turns,
                about=scope.about,
                repeated=again,
                alone=scope.unkept,
                near=self._near,
            )

        return decide


def _receipt(tally: ErasureCounts) -> ErasureReceipt:
    return ErasureReceipt(
        tuple(map(str, sorted(tally.memories))),
        tally.turns,
        tally.records.total(),
        len(tally.reread),
        dict(tally.records),
        dict(tally.remade),
        len(tally.shortened),
    )


def _check(scope: ErasureScope, said: ErasedTexts, gone: ErasedContent) -> None:
    """Make sure that there is something to forget.

    Raises:
        NotFound: there is not.
    """
    if (
        not gone.written
        and not gone.shortened
        and not any(turn in said.turns for turn in gone.turns)
        and not any(record.turns & gone.turns for record in said.records.values())
    ):
        raise NotFound(
            f"{scope.param}: expected something that is remembered here", param=scope.param
        )
