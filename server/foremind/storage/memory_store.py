"""Memories: stored with their vectors, kept up to date, and read for recall."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.background_step import LULL, TurnStep
from foremind.domain.errors import ModelMismatch
from foremind.domain.memory import (
    Candidate,
    Fact,
    IndexedMemory,
    IndexState,
    KnownMemory,
    MemoryChanges,
    NewMemory,
    ReembeddedMemory,
    RetrievalQuery,
    SimilarMemory,
    StatedFact,
    WordStatistics,
)
from foremind.domain.turn import ExchangeTurn, TurnsToRemember, TurnToRemember
from foremind.storage.companion_store import relationship_settings, settings_from_json
from foremind.storage.database import Database
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.text.tokenization import pack_terms

Vector = npt.NDArray[np.float32]
#: Called with a relationship, the index state that a transaction led to, and what it changed since
#: the version before.
WriteListener = Callable[[int, IndexState, Sequence[IndexedMemory]], None]


@dataclass(frozen=True, slots=True)
class WrittenMemories:
    """The ids of new memories by turn, all written memories, and the index state they lead to."""

    ids: dict[int, int]
    state: IndexState
    memories: Sequence[IndexedMemory]


class _Rows(Protocol):
    async def rows(self, name: str, *args: object) -> Sequence[Any]: ...


class IngestTransaction:
    """Stores what turns became, and announces it."""

    def __init__(
        self,
        transaction: RelationshipTransaction,
        fingerprint: str,
        listeners: Sequence[WriteListener],
    ) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self.relationship_id = transaction.relationship_id
        self._fingerprint = fingerprint
        self._listeners = listeners

    @classmethod
    @asynccontextmanager
    async def begin(
        cls,
        database: Database,
        relationship_id: int,
        fingerprint: str,
        listeners: Sequence[WriteListener],
    ) -> AsyncIterator[Self]:
        """Begin, and lock the relationship: one transaction at a time ingests its turns.

        So each sees the vectors of those ingested before, whatever their order.

        Args:
            listeners: told what was written, unless a part of it is only in the database.
        """
        async with RelationshipTransaction.begin(database, relationship_id) as transaction:
            yield cls(transaction, fingerprint, listeners)

    async def turns(self, turn_ids: Sequence[int]) -> TurnsToRemember | None:
        """Return turns with those around them; None if none is left."""
        return await read_turns(self._connection, self.relationship_id, turn_ids)

    async def similar(self, turns: Sequence[TurnToRemember]) -> dict[int, list[SimilarMemory]]:
        """Return the memories of either speaker that each turn may repeat, nearest first."""
        return await read_similar(self._connection, self.relationship_id, turns)

    async def facts(self, slots: Collection[str]) -> list[StatedFact]:
        """Return what memories state about some slots."""
        rows = await self._connection.rows("facts_of_slots", self.relationship_id, list(slots))
        return [
            StatedFact(
                row["memory_id"], row["speaker"], Fact(row["slot"], row["value"]), row["said_at"]
            )
            for row in rows
        ]

    async def write(self, changes: MemoryChanges, now: datetime) -> dict[int, int]:
        """Change memories; return the ids of new ones by turn.

        Raises:
            ModelMismatch: the store belongs to another embedding model.
        """
        if not changes:
            return {}
        written = await store_memories(
            self._transaction,
            self._fingerprint,
            changes.new,
            changes.reembedded,
            changes.growth,
            changes.used,
            now,
        )

        stored = written.ids
        if not (changes.rescored or changes.superseded):
            told = self.relationship_id, written.state, written.memories
            self._connection.when_committed += [partial(tell, *told) for tell in self._listeners]

        def id_of(memory_id: int) -> int:
            return memory_id if memory_id > 0 else stored[-memory_id]

        version = await self._transaction.memory_version()
        if changes.rescored:
            repeated, rescored = changes.repeated, changes.rescored.values()
            await self._connection.execute(
                "merge_into_memories",
                self.relationship_id,
                [merged.turn_id for merged in repeated],
                [id_of(merged.memory_id) for merged in repeated],
                [merged.said_at for merged in repeated],
                [merged.reason for merged in repeated],
                now,
                [id_of(memory_id) for memory_id in changes.rescored],
                [score.significance for score in rescored],
                [score.reasons for score in rescored],
                [score.said_at for score in rescored],
                version,
            )
        if changes.superseded:
            await self._connection.execute(
                "supersede_memories",
                self.relationship_id,
                [id_of(older) for older in changes.superseded],
                [id_of(newer) for newer, _ in changes.superseded.values()],
                [reason for _, reason in changes.superseded.values()],
                now,
                version,
            )
        return stored

    async def end_wait(
        self,
        turns: Sequence[int],
        steps: Sequence[TurnStep],
        vectors: Mapping[int, Vector],
        now: datetime,
    ) -> None:
        """Store vectors of turns, and record that these steps have processed the turns.

        What was not answered is read by other steps after a lull.

        Raises:
            ModelMismatch: the store belongs to another embedding model.
        """
        row = await self._connection.row(
            "end_wait",
            self.relationship_id,
            list(vectors),
            [HalfVector(vector) for vector in vectors.values()],
            self._fingerprint,
            list(turns),
            list(steps),
            now + LULL,
        )
        if row is None or row["stored"] != len(vectors):
            raise _other_model()

    async def enqueue(
        self, step: TurnStep, turns: Sequence[int], place: str, now: datetime
    ) -> None:
        """Have a step process turns at `place` once this transaction commits."""
        if turns:
            await self._connection.execute(
                "enqueue_turns", self.relationship_id, step, list(turns), place, now
            )

    @property
    def raised_version(self) -> int | None:
        """The memory version, if a memory was stored or changed."""
        return self._transaction.raised_memory_version

    def announce(self, announcement: MemoryAnnouncement) -> None:
        """Announce an outcome when this transaction commits."""
        self._transaction.announce(announcement)


async def read_turns(
    data: _Rows, relationship_id: int, turn_ids: Sequence[int]
) -> TurnsToRemember | None:
    """Return turns of a relationship with those around them; None if none is left."""
    rows = await data.rows("turns_to_ingest", relationship_id, list(turn_ids))
    if not rows:
        return None
    first = rows[0]
    return TurnsToRemember(
        {row["id"]: _turn_to_remember(row) for row in rows},
        first["user_name"],
        first["companion_name"],
        first["time_zone"],
        first["language"],
        settings_from_json(first["companion_settings"]),
        relationship_settings(first),
    )


async def read_similar(
    data: _Rows, relationship_id: int, turns: Sequence[TurnToRemember]
) -> dict[int, list[SimilarMemory]]:
    """Return the memories nearest to turns of a relationship, by turn, nearest first."""
    vectors = {turn.id: HalfVector(turn.vector) for turn in turns if turn.vector is not None}
    similar: dict[int, list[SimilarMemory]] = {}
    if vectors:
        rows = await data.rows(
            "similar_memories", relationship_id, list(vectors), list(vectors.values())
        )
        for row in rows:
            values = dict(row)
            similar.setdefault(values.pop("turn_id"), []).append(SimilarMemory(**values))
    return similar


async def store_memories(
    transaction: RelationshipTransaction,
    fingerprint: str,
    new: Sequence[NewMemory],
    reembedded: Mapping[int, ReembeddedMemory],
    growth: float,
    used: Collection[int] = (),
    used_at: datetime | None = None,
) -> WrittenMemories:
    """Store new memories, new vectors and terms of others by id, and when some were used.

    This raises the memory version, also if there is nothing to store.

    Args:
        growth: by how much the sum of all term weights grows.

    Raises:
        ModelMismatch: the store belongs to another embedding model.
    """
    others = reembedded.values()
    only_used = [memory_id for memory_id in used if memory_id not in reembedded]
    nothing_new = [None] * len(only_used)
    terms = [
        (-memory.turn_id, term, weight)
        for memory in new
        for term, weight in memory.text.terms.items()
    ] + [
        (memory_id, term, memory.text.terms[term])
        for memory_id, memory in reembedded.items()
        for term in memory.new_terms
    ]
    facts = [(memory.turn_id, fact.slot, fact.value) for memory in new for fact in memory.facts]
    version = transaction.next_memory_version()
    rows = await transaction.connection.rows(
        "store_memories",
        transaction.relationship_id,
        version,
        fingerprint,
        [memory.created_at for memory in new],
        [memory.turn_id for memory in new],
        [memory.significance for memory in new],
        [memory.text.length for memory in new],
        [memory.memory_type for memory in new],
        [memory.speaker for memory in new],
        [HalfVector(memory.text.vector) for memory in new],
        [memory.content for memory in new],
        [memory.reasons for memory in new],
        [memory.happened and memory.happened[0] for memory in new],
        [memory.happened and memory.happened[1] for memory in new],
        [pack_terms(memory.text.terms) for memory in new],
        [*reembedded, *only_used],
        [*(HalfVector(memory.text.vector) for memory in others), *nothing_new],
        [*(memory.text.length for memory in others), *nothing_new],
        [*(pack_terms(memory.text.terms) for memory in others), *nothing_new],
        *([row[column] for row in terms] for column in range(3)),
        *([row[column] for row in facts] for column in range(3)),
        len(new),
        growth,
        list(used),
        used_at,
    )
    turns = {memory.turn_id for memory in new}
    ids = {row["source_turn_id"]: row["id"] for row in rows if row["source_turn_id"] in turns}
    if len(ids) != len(turns):
        raise _other_model()
    state = IndexState(version, rows[0]["memory_count"], rows[0]["total_terms"])
    return WrittenMemories(
        ids, state, [indexed_memory(row) for row in rows if row["id"] is not None]
    )


def indexed_memory(row: Any) -> IndexedMemory:
    """Decode a row of `index_changes` or `store_memories`."""
    return IndexedMemory(known_memory(row), row["vector"], row["words"])


def known_memory(row: Any) -> KnownMemory:
    """Decode what ranking needs of a row."""
    return KnownMemory(
        id=row["id"],
        content=row["content"],
        speaker=row["speaker"],
        memory_type=row["memory_type"],
        significance=row["significance"],
        created_at=row["created_at"],
        happened=(
            None if row["happened_from"] is None else (row["happened_from"], row["happened_to"])
        ),
        place=row["place"],
        last_used_at=row["last_used_at"],
        superseded=row["superseded"],
        session=row["session"],
        length=row["term_count"],
        superseded_by=row["superseded_by"],
    )


def decode_exchange_turn(row: Any) -> ExchangeTurn:
    """Decode a row of `window_turns`."""
    return ExchangeTurn(
        row["id"], row["speaker"], row["content"], _vector(row["vector"]), row["memory_id"]
    )


def _turn_to_remember(row: Any) -> TurnToRemember:
    return TurnToRemember(
        id=row["id"],
        speaker=row["speaker"],
        content=row["content"],
        vector=_vector(row["vector"]),
        memory_id=row["memory_id"],
        session_id=row["session_id"],
        event_type=row["event_type"],
        created_at=row["created_at"],
        message_id=row["message_id"],
        removed=row["removed"],
        terms=row["term_count"] or 0.0,
        merged_into=row["merged_into"],
        place=row["place"],
    )


def _vector(embedding: Any) -> Vector | None:
    return None if embedding is None else np.asarray(embedding.to_numpy(), np.float32)


def _other_model() -> ModelMismatch:
    return ModelMismatch("The store belongs to another embedding model by now.")


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
