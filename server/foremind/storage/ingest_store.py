"""What ingesting a turn changes, in one transaction under its relationship's lock."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.errors import Conflict, ModelMismatch, NotFound
from foremind.domain.memory import Fact, NewMemory, Reason, ReembeddedMemory, SimilarMemory
from foremind.domain.step import RULES_PLACE, TurnStep
from foremind.domain.turn import ExchangeTurn, TurnToRemember
from foremind.storage.database import Database
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.text.packed_terms import pack_terms


class IngestTransaction:
    """Stores a turn's vector and memory, re-embeds neighbouring memories, and announces it."""

    def __init__(
        self, transaction: RelationshipTransaction, turn: TurnToRemember, fingerprint: str
    ) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._turn = turn
        self._fingerprint = fingerprint

    @classmethod
    @asynccontextmanager
    async def begin(
        cls, database: Database, turn: TurnToRemember, fingerprint: str
    ) -> AsyncIterator[Self]:
        """Begin, and lock the relationship: its turns are ingested one at a time.

        So each sees the vectors of those ingested before, whatever their order.
        """
        async with RelationshipTransaction.begin(database, turn.relationship_id) as transaction:
            yield cls(transaction, turn, fingerprint)

    async def context_window(self, vector: npt.NDArray[np.float32]) -> list[ExchangeTurn]:
        """Store the turn's vector; return the turns around it in order, including itself.

        Raises:
            ModelMismatch: the store belongs to another embedding model.
            NotFound: the turn was erased before this transaction had the lock.
            Conflict: the turn has been corrected.
        """
        turn = self._turn
        stored = await self._connection.row(
            "store_turn_vector",
            turn.id,
            HalfVector(vector),
            self._fingerprint,
            turn.relationship_id,
            turn.content,
        )
        if stored is None:
            current = await self._connection.row("turn_to_ingest", turn.relationship_id, turn.id)
            if current is None:
                raise NotFound("The turn was erased meanwhile.")
            if current["content"] != turn.content:
                raise Conflict("The turn was corrected meanwhile.")
            raise ModelMismatch("The store belongs to another embedding model by now.")
        rows = await self._connection.rows("context_window", turn.id, turn.relationship_id)
        return [decode_exchange_turn(row) for row in rows]

    async def memory(self) -> int | None:
        """Return the memory that the turn became or was merged into; None if neither."""
        row = await self._connection.row(
            "find_memory_of_turn", self._turn.relationship_id, self._turn.id
        )
        return None if row is None else int(row["id"])

    async def similar(self) -> list[SimilarMemory]:
        """Return the memories of either speaker that the turn may repeat, nearest first."""
        turn = self._turn
        rows = await self._connection.rows("similar_memories", turn.relationship_id, turn.id)
        return [SimilarMemory(**dict(row)) for row in rows]

    async def insert(self, memory: NewMemory) -> int:
        """Store the turn's memory and return its id.

        Raises:
            ModelMismatch: the store belongs to another embedding model.
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
            pack_terms(memory.text.terms),
            await self._transaction.memory_version(),
        )
        if row is None:
            raise ModelMismatch("The store belongs to another embedding model by now.")
        return int(row["id"])

    async def merge_into(
        self, memory_id: int, significance: float, reasons: str, reason: str, now: datetime
    ) -> None:
        """Merge the turn into a memory that it repeats, for a `reason`."""
        turn = self._turn
        await self._connection.execute(
            "merge_into_memory",
            memory_id,
            turn.relationship_id,
            turn.id,
            turn.created_at,
            reason,
            now,
            significance,
            reasons,
            await self._transaction.memory_version(),
        )

    async def rescore(self, memory_id: int, significance: float, reasons: str) -> None:
        """Change the significance of a memory."""
        await self._connection.execute(
            "rescore_memory",
            memory_id,
            self._turn.relationship_id,
            significance,
            reasons,
            await self._transaction.memory_version(),
        )

    async def enqueue_rating(self, place: str, now: datetime) -> None:
        """Have the turn rated by the language model at `place` once this transaction commits."""
        await self._enqueue("rating", self._turn.id, place, now)

    async def enqueue_ingest(self, turn_id: int, now: datetime) -> None:
        """Have another turn of this relationship ingested again once this transaction commits."""
        await self._enqueue("ingest", turn_id, RULES_PLACE, now)

    async def dequeue(self, steps: Sequence[TurnStep]) -> None:
        """Record that these steps have processed the turn when this transaction commits."""
        turn = self._turn
        await self._connection.execute("dequeue_turn", turn.relationship_id, turn.id, list(steps))

    async def state_fact(self, memory_id: int, fact: Fact, now: datetime) -> None:
        """Store a fact that the turn's memory states; the older of two contradicting memories is
        superseded."""
        turn = self._turn
        key = (turn.relationship_id, turn.speaker, fact.slot, fact.value)
        await self._connection.execute("insert_fact", *key, memory_id, turn.created_at)
        reason = f"another {fact.slot}"
        for row in await self._connection.rows("contradicting_facts", *key, memory_id):
            older, newer = row["memory_id"], memory_id
            if row["said_at"] > turn.created_at:
                older, newer = newer, older
            await self.supersede(older, newer, reason, now)

    async def supersede(self, older: int, newer: int, reason: str, now: datetime) -> None:
        """Mark a memory of this relationship as superseded by another."""
        await self._connection.execute(
            "supersede_memory",
            older,
            self._turn.relationship_id,
            newer,
            reason,
            now,
            await self._transaction.memory_version(),
        )

    async def store_reembedded(self, memories: Mapping[int, ReembeddedMemory]) -> None:
        """Store new vectors and terms of memories of this relationship, by memory id."""
        for memory_id, memory in memories.items():
            terms = {term: memory.text.terms[term] for term in memory.new_terms}
            await self._connection.execute(
                "reembed_memory",
                memory_id,
                self._turn.relationship_id,
                HalfVector(memory.text.vector),
                memory.text.length,
                list(terms),
                list(terms.values()),
                pack_terms(memory.text.terms),
                await self._transaction.memory_version(),
            )

    def announce(
        self,
        significance: float,
        reasons: tuple[Reason, ...],
        memory_id: int | None,
        memory_type: str | None,
    ) -> MemoryAnnouncement:
        """Announce the outcome when this transaction commits, and return the announcement.

        It has the memory version if a memory was stored or changed.
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
            memory_version=self._transaction.raised_memory_version,
        )
        self._transaction.announce(announcement)
        return announcement

    async def _enqueue(self, step: TurnStep, turn_id: int, place: str, now: datetime) -> None:
        await self._connection.execute(
            "enqueue_turns", self._turn.relationship_id, step, [turn_id], place, now
        )


def decode_exchange_turn(row: Any) -> ExchangeTurn:
    """Decode a row of `context_window` or `window_turns`."""
    vector = row["embedding"]
    return ExchangeTurn(
        id=row["id"],
        speaker=row["speaker"],
        content=row["content"],
        vector=None if vector is None else np.asarray(vector.to_numpy(), np.float32),
        memory_id=row["memory_id"],
    )
