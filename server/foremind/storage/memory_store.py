"""Stores memories and finds candidates for recall."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from pgvector import HalfVector

from foremind.domain.memory import (
    Candidate,
    IndexedMemory,
    IndexState,
    RetrievalQuery,
    SimilarMemory,
    WordStatistics,
)
from foremind.domain.turn import TurnsToRemember, TurnToRemember
from foremind.storage.database import Database
from foremind.storage.ingest_store import (
    IngestTransaction,
    WriteListener,
    indexed_memory,
    known_memory,
    read_similar,
    read_turns,
)
from foremind.storage.relationship_transaction import RelationshipTransaction

_BATCH_SIZE = 500  # rows decoded at once: about two milliseconds


class MemoryStore:
    """Reads and writes memories, always within one relationship."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint
        #: Told what ingest wrote of memories, as soon as that is committed.
        self.listeners: list[WriteListener] = []

    async def turns(self, relationship_id: int, turn_ids: Sequence[int]) -> TurnsToRemember | None:
        """Return turns with those around them; None if none is left."""
        data = self._database.for_relationship(relationship_id)
        return await read_turns(data, relationship_id, turn_ids)

    async def similar(self, relationship_id: int, turn: TurnToRemember) -> list[SimilarMemory]:
        """Return the memories nearest to a turn whose vector is stored, nearest first."""
        data = self._database.for_relationship(relationship_id)
        return (await read_similar(data, relationship_id, [turn])).get(turn.id, [])

    def begin_ingest(self, relationship_id: int) -> AbstractAsyncContextManager[IngestTransaction]:
        """Begin the transaction that ingests turns."""
        return IngestTransaction.begin(
            self._database, relationship_id, self._fingerprint, self.listeners
        )

    async def candidates(self, query: RetrievalQuery) -> tuple[list[Candidate], WordStatistics]:
        """Return the best recallable memories by vector and by lexical search."""
        policy = query.policy
        rows = await self._database.for_relationship(query.relationship_id).rows(
            "memory_candidates",
            query.relationship_id,
            HalfVector(query.vector),
            query.terms,
            policy.significance_threshold,
            policy.oldest_recalled(query.now),
            policy.candidate_limit,
            policy.permanent_significance,
            [since for since, _ in query.times],
            [until for _, until in query.times],
        )
        return [_candidate(row) for row in rows], _statistics(rows)

    async def changes(
        self, relationship_id: int, after_version: int
    ) -> tuple[IndexState, list[IndexedMemory]]:
        """Return the memories changed after a version (-1: all), and the index state they lead to.

        Both are of one snapshot. Rows are decoded in batches, so that thousands of them do not
        hold the event loop.
        """
        changed: list[IndexedMemory] = []
        async with self._database.snapshot(relationship_id) as connection:
            row = await connection.row("index_state", relationship_id)
            state = IndexState(-1, 0, 0.0) if row is None else IndexState(*row)
            batches = connection.batches(
                "index_changes", _BATCH_SIZE, relationship_id, after_version, state.version
            )
            async for rows in batches:
                changed += map(indexed_memory, rows)
        return state, changed

    async def mark_used(
        self, relationship_id: int, memory_ids: Sequence[int], now: datetime
    ) -> None:
        """Record that memories were used in a reply, which restarts their decay."""
        async with RelationshipTransaction.begin(self._database, relationship_id) as transaction:
            version = await transaction.memory_version()
            await transaction.connection.execute(
                "mark_memories_used", relationship_id, list(memory_ids), now, version
            )


def _candidate(row: Any) -> Candidate:
    matches = dict(zip(row["terms"] or (), row["frequencies"] or (), strict=True))
    return Candidate(known_memory(row), row["cosine"], matches)


def _statistics(rows: Any) -> WordStatistics:
    if not rows:
        return WordStatistics(0, 0, {})
    first = rows[0]
    document_frequencies = zip(
        first["statistics_terms"] or (), first["statistics_memories"] or (), strict=True
    )
    return WordStatistics(first["memory_count"], first["total_terms"], dict(document_frequencies))
