"""Forgetting for good: what a user takes back is in no table, index or cache afterwards."""

import contextlib
from collections.abc import Mapping
from datetime import datetime

import msgspec
import structlog

from foremind.clock import Clock
from foremind.errors import NotFound
from foremind.memory.exchange import reread
from foremind.memory.remember import Rememberer
from foremind.memory.terms import terms_of
from foremind.storage.database import Database
from foremind.storage.forgetting import ForgettingTransaction
from foremind.storage.remembering import MemoryText

_log = structlog.get_logger("foremind.memory")


class Receipt(msgspec.Struct, frozen=True):
    """What was removed: memories, the texts of turns, records made of them; what was read anew."""

    memories: tuple[int, ...]
    turns: int
    records: int
    reread: int


class Scope(msgspec.Struct, frozen=True):
    """What is to be forgotten: one memory, one session, whatever mentions some words, or all."""

    memory: int | None = None
    session: str | None = None
    about: str | None = None

    @property
    def everything(self) -> bool:
        """True where nothing is named."""
        return self == Scope()

    def __str__(self) -> str:
        """Name the kind, never the words."""
        if self.memory is not None:
            return f"memory {self.memory}"
        if self.session is not None:
            return f"session {self.session}"
        return "everything" if self.about is None else "a topic"


class Forgetter:
    """Removes memories together with everything that holds what they say.

    That is: the turns they were made of, every turn that quotes one of these word for word (such
    as a reply that reminded of it) and its memory, facts, traces and vectors, and every summary,
    episode, note or other record that was made of them, however far. Memories of the turns beside
    are read anew, since they shared words and vector, and records are made anew without.
    """

    def __init__(self, database: Database, rememberer: Rememberer, clock: Clock) -> None:
        self._database = database
        self._rememberer = rememberer
        self._clock = clock

    async def forget(
        self,
        relationship_id: int,
        names: tuple[str, str],
        scope: Scope,
        *,
        actor: str,
        read_in_exchange: bool,
    ) -> Receipt:
        """Forget something of a relationship.

        Args:
            names: the user's and the companion's.
            actor: who asked for it, for the audit trail.
            read_in_exchange: whether the companion's memories share with those beside them.

        Raises:
            NotFound: the relationship has nothing of the kind.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        vectors = await self._rememberer.name_vectors(*names)
        async with ForgettingTransaction.begin(self._database, relationship_id) as transaction:
            memories, turns = await _everything_within(transaction, scope)
            now = self._clock.now()
            records = await transaction.remove_records(turns, everything=scope.everything)
            emptied = await transaction.remove(memories, turns, now)
            texts: dict[int, MemoryText] = {}
            # Of everything, nothing is left beside it.
            for turn in turns if read_in_exchange and not scope.everything else ():
                around = await transaction.exchange(turn)
                texts |= {
                    each: reading.text for each, reading in reread(around, turn, vectors).items()
                }
            for each_id, text in texts.items():
                await transaction.rewrite(each_id, text)
            await transaction.rebuild(turns, now)
            await transaction.audit(actor, "forget", str(scope), now)
            await transaction.announce(turns)
        _log.info("memories.forgotten", relationship_id=relationship_id, memories=len(memories))
        return Receipt(tuple(sorted(memories)), emptied, records, len(texts))

    async def forget_older(
        self,
        relationship_id: int,
        names: tuple[str, str],
        memory_type: str,
        before: datetime,
        limit: int,
    ) -> None:
        """Forget memories of a type that were last said before a time, at most `limit`."""
        rows = await self._database.of(relationship_id).rows(
            "memories_older", relationship_id, memory_type, before, limit
        )
        for row in rows:
            with contextlib.suppress(NotFound):  # gone with one before it
                await self.forget(
                    relationship_id,
                    names,
                    Scope(memory=row["id"]),
                    actor="server",
                    read_in_exchange=True,
                )


async def _everything_within(
    transaction: ForgettingTransaction, scope: Scope
) -> tuple[set[int], set[int]]:
    """Return the memories and turns within a scope, and those that hold what these say."""
    if scope.everything:
        turns = await transaction.all_turns()
        return await transaction.memories_behind(turns), turns
    if scope.memory is not None:
        memories, turns = {scope.memory}, set()
    else:
        turns = (
            await transaction.turns_of_session(scope.session)
            if scope.session is not None
            else _mentioning(scope.about or "", await transaction.texts())
        )
        memories = await transaction.memories_behind(turns)
    while True:
        found = turns | await transaction.turns_behind(memories)
        if not found:
            name = "memory" if scope.memory else "session" if scope.session else "about"
            raise NotFound(f"{name}: expected something that is remembered here", param=name)
        more = memories | await transaction.memories_behind(found)
        if found == turns and more == memories:
            return memories, turns
        memories, turns = more, found


def _mentioning(about: str, texts: Mapping[int, str]) -> set[int]:
    """Return the turns that hold every word of `about`, as search reads words."""
    wanted = set(terms_of(about))
    return {turn for turn, text in texts.items() if wanted and wanted <= set(terms_of(text))}
