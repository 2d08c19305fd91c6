"""Stores minds: what they witnessed, and what they perceived of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.background_step import RULES_PLACE
from foremind.domain.memory import Recalled
from foremind.domain.relationship import companion_id_of, user_id_of
from foremind.domain.turn import MemoryType
from foremind.domain.world import Perceived
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.storage.world_events import EventKey, act_for, columns_of

Vector = npt.NDArray[np.float32]
_MAX_COMPARED = 5000  # memories of a mind: 7 ms


@dataclass(frozen=True, slots=True)
class PerceivedEvent:
    """What somebody witnessed; `vector` is that of the text, if anybody has asked yet."""

    key: EventKey
    event: Perceived
    type: str
    memory_type: MemoryType
    scene: str
    happened_at: datetime
    fields: Mapping[str, object]
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Perception:
    """What a mind perceived at a place; `spoken`: somebody said it; `own`: the mind did."""

    turn_id: int
    own: bool
    spoken: bool
    place: str
    text: str


class MindStore:
    """Reads and writes what minds know."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    async def witnessed(self, past: Sequence[int], after: int, limit: int) -> list[PerceivedEvent]:
        """Return what a mind witnessed after an event, oldest first.

        Args:
            past: its relationships in the timelines of its past.
        """
        *earlier, mind = past
        if not earlier:
            data = self._database.for_relationship(mind)
            rows = await data.rows("witnessed_after", mind, after, limit, self._fingerprint)
        else:
            async with self._database.transaction(mind) as connection:
                await _show_past(connection, past)
                rows = await connection.rows(
                    "witnessed_through_time", past, after, limit, self._fingerprint
                )
        return [_perceived(row) for row in rows]

    async def witnessed_last(self, past: Sequence[int], limit: int) -> list[PerceivedEvent]:
        """Return the last that somebody witnessed, oldest first.

        Args:
            past: its relationships in the timelines of its past, oldest first.
        """
        latest: list[PerceivedEvent] = []  # the newest first
        for relationship in reversed(past):
            if len(latest) < limit:
                rows = await self._database.for_relationship(relationship).rows(
                    "witnessed_last", relationship, limit - len(latest), self._fingerprint
                )
                latest += map(_perceived, rows)
        return latest[::-1]

    async def existing(self, relationships: Sequence[int]) -> set[int]:
        """Return which of some relationships exist."""
        rows = await self._database.rows("existing_minds", list(relationships))
        return {row["id"] for row in rows}

    async def begin_mind(self, relationship_id: int, source: int | None) -> None:
        """Let a mind begin with nothing, or with what another one remembers, unless it exists."""
        account, companion = user_id_of(relationship_id), companion_id_of(relationship_id)
        if source is None:
            await self._database.execute("insert_mind", relationship_id, account, companion)
            return
        # Whoever takes something out of the other one waits, and finds the copy.
        async with RelationshipTransaction.begin(self._database, source) as transaction:
            connection = transaction.connection
            if await connection.row("copy_mind", relationship_id, account, source) is not None:
                await connection.raw.execute(f"SET LOCAL foremind.copy = '{relationship_id}'")
                await connection.execute("copy_relationship", source, relationship_id)
                await connection.execute("copy_waiting_turns", source, relationship_id)

    async def perceived_seq(self, relationship_id: int) -> int | None:
        """Return the last event that a mind has perceived; None if there is no such mind."""
        seq: int | None = await self._database.value("find_mind", relationship_id)
        return seq

    async def store_vectors(self, past: Sequence[int], vectors: Mapping[EventKey, Vector]) -> None:
        """Store the vectors of events for all who witnessed them; `past` is as for `witnessed`."""
        async with self._database.transaction(past[-1]) as connection:
            await _show_past(connection, past)
            await connection.execute(
                "store_event_vectors",
                self._fingerprint,
                *columns_of(list(vectors)),
                [HalfVector(vector) for vector in vectors.values()],
            )

    async def perceive(
        self,
        mind: int,
        events: Sequence[PerceivedEvent],
        vectors: Sequence[Vector],
        narrate: Callable[[Perceived], str],
        now: datetime,
    ) -> list[int]:
        """Let a mind perceive events, with their vectors; return the new turns.

        They wait to become memories. What was forgotten meanwhile is not perceived.

        Args:
            narrate: returns an event as the mind remembers it.

        Raises:
            NotFound: there is no such mind.
        """
        async with RelationshipTransaction.begin(self._database, mind) as transaction:
            connection = transaction.connection
            there = await _remaining(connection, events)
            kept = [
                (event, vector)
                for event, vector in zip(events, vectors, strict=True)
                if event.key in there
            ]
            rows = await connection.rows(
                "insert_perceptions",
                mind,
                user_id_of(mind),
                ["companion" if _is_own(event) else "user" for event, _ in kept],
                [event.event.id for event, _ in kept],
                [event.memory_type for event, _ in kept],
                [narrate(event.event) for event, _ in kept],
                [event.happened_at for event, _ in kept],
                [HalfVector(vector) for _, vector in kept],
                [event.event.place for event, _ in kept],
            )
            turns = [row["id"] for row in rows]
            await connection.execute("set_perceived", mind, events[-1].key.seq)
            await connection.execute("enqueue_turns", mind, "ingest", turns, RULES_PLACE, now)
        return turns

    async def turns_of(self, mind: int, events: Sequence[str]) -> list[int]:
        """Return what a mind has perceived of some events."""
        rows = await self._database.for_relationship(mind).rows(
            "turns_of_events", mind, list(events)
        )
        return [row["id"] for row in rows]

    async def events_of_memories(self, mind: int, memories: Sequence[int]) -> list[str]:
        """Return the events that some memories of a mind were made of."""
        rows = await self._database.for_relationship(mind).rows(
            "events_of_memories", mind, list(memories)
        )
        return [row["event_id"] for row in rows]

    async def unfinished(self, mind: int) -> list[int]:
        """Return the turns of a mind that wait to become memories."""
        rows = await self._database.for_relationship(mind).rows("unfinished_perceptions", mind)
        return [row["turn_id"] for row in rows]

    async def perceptions(self, mind: int, limit: int) -> list[Perception]:
        """Return what a mind perceived last, oldest first."""
        rows = await self._database.for_relationship(mind).rows("perceptions", mind, limit)
        return [
            Perception(row["id"], row["own"], row["spoken"], row["place"], row["content"])
            for row in rows
        ]

    async def most_significant(
        self, mind: int, limit: int, since: datetime, permanent: float
    ) -> list[Recalled]:
        """Return the most significant of a mind's last memories, in order of time.

        Args:
            since: older ones count only from the significance `permanent` on.
        """
        rows = await self._database.for_relationship(mind).rows(
            "most_significant_memories", mind, limit, since, permanent, _MAX_COMPARED
        )
        return [
            Recalled(
                row["id"],
                row["content"],
                row["speaker"],
                row["memory_type"],
                row["significance"],
                row["created_at"],
                superseded=False,
                score=0.0,
                relevance=0.0,
                cosine=0.0,
                keyword=0.0,
                place=row["place"],
            )
            for row in rows
        ]


async def _show_past(connection: DatabaseConnection, past: Sequence[int]) -> None:
    """Show a transaction what its mind witnessed in earlier timelines, too."""
    listed = ",".join(str(int(relationship)) for relationship in past)
    await connection.raw.execute(f"SET LOCAL foremind.past = '{{{listed}}}'")


async def _remaining(
    connection: DatabaseConnection, events: Sequence[PerceivedEvent]
) -> set[EventKey]:
    """Return which events nobody has forgotten, and nobody does until the transaction ends."""
    keys = [event.key for event in events]
    await act_for(connection, {key.timeline for key in keys})
    rows = await connection.rows("remaining_events", *columns_of(keys))
    return {EventKey(row["timeline_id"], row["seq"]) for row in rows}


def _is_own(event: PerceivedEvent) -> bool:
    return event.event.how == "own" or event.memory_type != "conversation"


def _perceived(row: Any) -> PerceivedEvent:
    how, spoken = row["how"], row["memory_type"] == "conversation"
    by_mind = row["actor_id"] is not None
    vector = row["vector"]
    return PerceivedEvent(
        EventKey(row["timeline_id"], row["seq"]),
        Perceived(
            how,
            row["id"],
            row["actor"],
            row["addressed"],
            row["chain"],
            row["content"],
            row["place"],
            row["volume"],
            spoken,
            bool(row["chain"]) or row["type"] in ("tell", "told") or (by_mind and how == "told"),
        ),
        row["type"],
        row["memory_type"],
        row["scene"],
        row["happened_at"],
        msgspec.json.decode(row["fields"]),
        None if vector is None else np.asarray(vector.to_numpy(), np.float32),
    )
