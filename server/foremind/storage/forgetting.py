"""What forgetting changes, in one transaction under its relationship's lock."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.errors import NotFound
from foremind.storage.database import Connection, Database
from foremind.storage.packed_words import pack_words
from foremind.storage.record_changes import delete_records, records_made_of
from foremind.storage.remembering import ExchangeTurn, Fact, MemoryText, exchange_turn


class MemoriesForgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """That something of a relationship was forgotten, as every server process is told."""

    relationship_id: int
    memory_version: int
    turn_ids: tuple[int, ...]


class ForgettingTransaction:
    """Finds everything that holds a text, removes it, and announces that."""

    def __init__(self, connection: Connection, relationship_id: int) -> None:
        self._connection = connection
        self._relationship_id = relationship_id

    @classmethod
    @asynccontextmanager
    async def begin(cls, database: Database, relationship_id: int) -> AsyncIterator[Self]:
        """Begin; no turn of the relationship is remembered meanwhile."""
        async with database.transaction(relationship_id) as connection:
            await connection.execute("lock_relationship", relationship_id)
            yield cls(connection, relationship_id)

    async def all_turns(self) -> set[int]:
        """Return every turn of the relationship."""
        return await self._ids("turns_of_relationship")

    async def turns_of_session(self, session_id: str) -> set[int]:
        """Return the turns of a session."""
        return await self._ids("turns_of_session", session_id)

    async def texts(self) -> dict[int, str]:
        """Return what was said in the relationship, by turn."""
        rows = await self._connection.rows("texts_of_relationship", self._relationship_id)
        return {row["id"]: row["content"] for row in rows}

    async def turns_behind(self, memories: Collection[int]) -> set[int]:
        """Return the turns that memories were made of, and those that quote these."""
        turns = await self._ids("turns_behind_memories", list(memories))
        return turns | await self._ids("turns_quoting", list(turns))

    async def memories_behind(self, turns: Collection[int]) -> set[int]:
        """Return the memories that were made of turns."""
        return await self._ids("memories_behind_turns", list(turns))

    async def remove(self, memories: Collection[int], turns: Collection[int], now: datetime) -> int:
        """Remove memories, and the texts of turns; return how many turns had one."""
        ids, turn_ids = list(memories), list(turns)
        await self._connection.execute("forget_memories", self._relationship_id, ids, turn_ids)
        await self._connection.execute("delete_sources", self._relationship_id, ids, turn_ids)
        await self._connection.execute("delete_memories", self._relationship_id, ids)
        return len(await self._connection.rows("empty_turns", self._relationship_id, turn_ids, now))

    async def remove_records(self, turns: Collection[int], *, everything: bool) -> int:
        """Remove what was made of turns, or holds what they said; return how many records.

        `everything` removes whatever there is.
        """
        whose = self._relationship_id
        found = (
            await self._ids("every_record")
            if everything
            else await records_made_of(self._connection, whose, turns, ())
        )
        return await delete_records(self._connection, whose, found)

    async def rebuild(self, turns: Collection[int], now: datetime) -> None:
        """Have what was made of turns, and is removed, made anew without them."""
        first = min(turns, default=_NEVER)
        await self._connection.execute("curate_again", self._relationship_id, now, first)

    async def audit(self, actor: str, action: str, subject: str, now: datetime) -> None:
        """Note what was done; `subject` never holds what was said."""
        await self._connection.execute(
            "add_audit", self._relationship_id, actor, action, subject, now
        )

    async def said_and_quoted(self, memory_id: int) -> tuple[set[int], set[int]]:
        """Return the turns that a memory was made of, and others that quote these.

        Raises:
            NotFound: the relationship has no such memory.
        """
        said = await self._ids("turns_behind_memories", [memory_id])
        if not said:
            raise NotFound("memory: expected the id of a memory here", param="memory")
        return said, await self._ids("turns_quoting", list(said)) - said

    async def say_instead(
        self,
        memory_id: int,
        turns: Collection[int],
        content: str,
        vector: npt.NDArray[np.float32],
    ) -> None:
        """Put other words, and their unit vector, in the place of a memory's and its turns'."""
        await self._connection.execute(
            "say_instead",
            self._relationship_id,
            memory_id,
            list(turns),
            content,
            HalfVector(vector),
        )

    async def state_anew(self, memory_id: int, facts: Sequence[Fact]) -> None:
        """Note what a memory states now."""
        await self._connection.execute("unstate_facts", self._relationship_id, memory_id)
        for fact in facts:
            await self._connection.execute(
                "restate_fact", self._relationship_id, memory_id, fact.slot, fact.value
            )

    async def exchange(self, turn_id: int) -> list[ExchangeTurn]:
        """Return the turns around one, in order, itself among them."""
        rows = await self._connection.rows("exchange_around", turn_id, self._relationship_id)
        return [exchange_turn(row) for row in rows]

    async def rewrite(self, memory_id: int, text: MemoryText) -> None:
        """Give a memory another text, and no word of the one before."""
        await self._connection.execute("forget_words", self._relationship_id, memory_id)
        await self._connection.execute(
            "reread_memory",
            memory_id,
            self._relationship_id,
            HalfVector(text.vector),
            text.length,
            list(text.terms),
            list(text.terms.values()),
            pack_words(text.terms),
        )

    async def announce(self, turns: Collection[int]) -> MemoriesForgotten:
        """Tell every process, once this transaction commits; the first turns by name."""
        row = await self._connection.row("raise_memory_version", self._relationship_id)
        version = 0 if row is None else row["memory_version"]
        announcement = MemoriesForgotten(
            self._relationship_id, version, tuple(sorted(turns))[:_ANNOUNCED_TURNS]
        )
        await self._connection.announce(announcement)
        return announcement

    async def _ids(self, name: str, *args: object) -> set[int]:
        rows = await self._connection.rows(name, self._relationship_id, *args)
        return {row["id"] for row in rows}


_NEVER = 2**62

# A notification holds at most 8,000 bytes. The ids only empty a cache that lasts two minutes.
_ANNOUNCED_TURNS = 400
