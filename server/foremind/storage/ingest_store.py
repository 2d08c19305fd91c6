"""What judging a turn changes, in one transaction under its relationship's lock."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.errors import Conflict, ModelMismatch, NotFound
from foremind.domain.memory import Fact, NewMemory, Reason, ReembeddedMemory, SimilarMemory
from foremind.domain.turn import ExchangeTurn, TurnToRemember
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.job_queue import RATE_TURN
from foremind.storage.memory_version import MemoryVersion
from foremind.text.packed_terms import pack_words


class IngestTransaction:
    """Keeps a turn's vector, stores or merges its memory, rereads its neighbours', announces it."""

    def __init__(
        self, connection: DatabaseConnection, turn: TurnToRemember, fingerprint: str
    ) -> None:
        self._connection = connection
        self._turn = turn
        self._fingerprint = fingerprint
        self._version = MemoryVersion(connection, turn.relationship_id)

    @classmethod
    @asynccontextmanager
    async def begin(
        cls, database: Database, turn: TurnToRemember, fingerprint: str
    ) -> AsyncIterator[Self]:
        """Begin; turns of one relationship are remembered one after the other.

        Each then sees the vectors of those before it, whichever job runs first.
        """
        async with database.transaction(turn.relationship_id) as connection:
            await connection.execute("lock_relationship", turn.relationship_id)
            yield cls(connection, turn, fingerprint)

    async def exchange(self, vector: npt.NDArray[np.float32]) -> list[ExchangeTurn]:
        """Keep the turn's vector; return the turns around it, in order, itself among them.

        Raises:
            ModelMismatch: the vector is not of the model this store belongs to.
            NotFound: the turn was removed before this transaction had the lock.
            Conflict: it says something else by now.
        """
        turn = self._turn
        kept = await self._connection.row(
            "keep_turn_vector",
            turn.id,
            HalfVector(vector),
            self._fingerprint,
            turn.relationship_id,
            turn.content,
        )
        if kept is None:
            now = await self._connection.row("turn_to_remember", turn.id)
            if now is None:
                raise NotFound("The turn was removed meanwhile.")
            if now["content"] != turn.content:
                raise Conflict("The turn was corrected meanwhile.")
            raise ModelMismatch("The store was given to another embedding model meanwhile.")
        rows = await self._connection.rows("exchange_around", turn.id, turn.relationship_id)
        return [exchange_turn(row) for row in rows]

    async def memory(self) -> int | None:
        """Return the memory that the turn was made into or merged into, if that is done."""
        row = await self._connection.row("find_memory_of_turn", self._turn.id)
        return None if row is None else int(row["id"])

    async def similar(self) -> list[SimilarMemory]:
        """Return the memories, of either speaker, that may say the same, nearest first."""
        turn = self._turn
        rows = await self._connection.rows("similar_memories", turn.relationship_id, turn.id)
        return [SimilarMemory(**dict(row)) for row in rows]

    async def insert(self, memory: NewMemory) -> int:
        """Store the turn's memory and return its id.

        Raises:
            ModelMismatch: the vector is not of the model this store belongs to.
        """
        turn = self._turn
        row = await self._connection.row(
            "insert_memory",
            turn.relationship_id,
            turn.created_at,
            turn.id,
            memory.significance,
            memory.text.length,
            memory.memory_type,
            turn.speaker,
            HalfVector(memory.text.vector),
            turn.content,
            list(memory.text.terms),
            list(memory.text.terms.values()),
            self._fingerprint,
            memory.reasons,
            *(memory.happened or (None, None)),
            pack_words(memory.text.terms),
            await self._version.stamp(),
        )
        if row is None:
            raise ModelMismatch("The store was given to another embedding model meanwhile.")
        return int(row["id"])

    async def merge_into(
        self, memory_id: int, significance: float, reasons: str, why: str, now: datetime
    ) -> None:
        """Let a memory stand for this turn too."""
        turn = self._turn
        await self._connection.execute(
            "merge_into_memory",
            memory_id,
            turn.relationship_id,
            turn.id,
            turn.created_at,
            why,
            now,
            significance,
            reasons,
            await self._version.stamp(),
        )

    async def rescore(self, memory_id: int, significance: float, reasons: str) -> None:
        """Give a memory another significance."""
        await self._connection.execute(
            "rescore_memory",
            memory_id,
            self._turn.relationship_id,
            significance,
            reasons,
            await self._version.stamp(),
        )

    async def ask_for_rating(self) -> None:
        """Have the turn rated by a language model, once this transaction commits."""
        turn = self._turn
        await self._connection.execute("enqueue", RATE_TURN, turn.relationship_id, turn.id)

    async def state(self, memory_id: int, fact: Fact, now: datetime) -> None:
        """Note what the turn's memory states; of two that contradict, the older is superseded."""
        turn = self._turn
        key = (turn.relationship_id, turn.speaker, fact.slot, fact.value)
        await self._connection.execute("state_fact", *key, memory_id, turn.created_at)
        why = f"another {fact.slot}"
        for row in await self._connection.rows("contradicting_facts", *key, memory_id):
            older, newer = row["memory_id"], memory_id
            if row["said_at"] > turn.created_at:
                older, newer = newer, older
            await self.supersede(older, newer, why, now)

    async def supersede(self, older: int, newer: int, why: str, now: datetime) -> None:
        """Mark a memory of this relationship as no longer true since another."""
        await self._connection.execute(
            "supersede_memory",
            older,
            self._turn.relationship_id,
            newer,
            why,
            now,
            await self._version.stamp(),
        )

    async def reread(self, readings: Mapping[int, ReembeddedMemory]) -> None:
        """Give memories of this relationship new vectors and words, by memory id."""
        for memory_id, reading in readings.items():
            terms = {term: reading.text.terms[term] for term in reading.new_terms}
            await self._connection.execute(
                "reread_memory",
                memory_id,
                self._turn.relationship_id,
                HalfVector(reading.text.vector),
                reading.text.length,
                list(terms),
                list(terms.values()),
                pack_words(reading.text.terms),
                await self._version.stamp(),
            )

    async def announce(
        self,
        significance: float,
        reasons: tuple[Reason, ...],
        memory_id: int | None,
        memory_type: str | None,
    ) -> MemoryAnnouncement:
        """Tell every process what became of the turn, once this transaction commits.

        It names the memory version where a memory was stored or changed.
        """
        turn = self._turn
        announcement = MemoryAnnouncement(
            relationship_id=turn.relationship_id,
            message_id=turn.message_id,
            speaker=turn.speaker,
            significance=significance,
            reasons=reasons,
            memory_id=memory_id,
            memory_type=memory_type,
            memory_version=self._version.raised,
        )
        await self._connection.announce(announcement)
        return announcement


def exchange_turn(row: Any) -> ExchangeTurn:
    """Read a row of `exchange_around`."""
    vector = row["embedding"]
    return ExchangeTurn(
        id=row["id"],
        speaker=row["speaker"],
        content=row["content"],
        vector=None if vector is None else np.asarray(vector.to_numpy(), np.float32),
        memory_id=row["memory_id"],
    )
