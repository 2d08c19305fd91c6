"""What judging a turn changes, in one transaction under its relationship's lock."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.companions import CompanionSettings
from foremind.errors import ModelMismatch
from foremind.storage.database import Connection, Database
from foremind.storage.turns import Speaker


class MemoryAnnouncement(msgspec.Struct, frozen=True):
    """What became of a turn, as every server process is told."""

    relationship_id: int
    message_id: str | None
    speaker: Speaker
    significance: float
    memory_id: int | None = None
    memory_type: str | None = None
    memory_version: int | None = None


@dataclass(frozen=True, slots=True)
class TurnToRemember:
    """A turn that waits to be judged; `message_id` is that of the user's turn it is or answers."""

    id: int
    relationship_id: int
    speaker: Speaker
    content: str
    created_at: datetime
    message_id: str | None
    user_name: str
    companion_name: str
    settings: CompanionSettings


@dataclass(frozen=True, slots=True)
class ExchangeTurn:
    """A turn among its neighbours in a session; vector and memory where it has them.

    `vector` is the unit vector of the turn's exact text, float32 [dimension].
    """

    id: int
    speaker: Speaker
    vector: npt.NDArray[np.float32] | None
    memory_id: int | None


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory about to be stored; `terms` counts its stemmed words."""

    significance: float
    memory_type: str
    vector: npt.NDArray[np.float32]
    terms: dict[str, int]


class RememberingTransaction:
    """Keeps a turn's vector, stores its memory, rereads its neighbours', and announces it."""

    def __init__(self, connection: Connection, turn: TurnToRemember, fingerprint: str) -> None:
        self._connection = connection
        self._turn = turn
        self._fingerprint = fingerprint
        self._changed = False

    @classmethod
    @asynccontextmanager
    async def begin(
        cls, database: Database, turn: TurnToRemember, fingerprint: str
    ) -> AsyncIterator[Self]:
        """Begin; turns of one relationship are remembered one after the other.

        Each then sees the vectors of those before it, whichever job runs first.
        """
        async with database.transaction() as connection:
            await connection.execute("lock_relationship", turn.relationship_id)
            yield cls(connection, turn, fingerprint)

    async def exchange(self, vector: npt.NDArray[np.float32]) -> list[ExchangeTurn]:
        """Keep the turn's vector; return the turns around it, in order, itself among them.

        Raises:
            ModelMismatch: the vector is not of the model this store belongs to.
        """
        turn = self._turn
        kept = await self._connection.row(
            "keep_turn_vector",
            turn.id,
            HalfVector(vector),
            self._fingerprint,
            turn.relationship_id,
        )
        if kept is None:
            raise ModelMismatch("The store was given to another embedding model meanwhile.")
        rows = await self._connection.rows("exchange_around", turn.id, turn.relationship_id)
        return [
            ExchangeTurn(
                id=row["id"],
                speaker=row["speaker"],
                vector=(
                    None
                    if row["embedding"] is None
                    else np.asarray(row["embedding"].to_numpy(), np.float32)
                ),
                memory_id=row["memory_id"],
            )
            for row in rows
        ]

    async def insert(self, memory: NewMemory) -> int:
        """Store the turn's memory, unless that is done already; return its id."""
        turn = self._turn
        row = await self._connection.row(
            "insert_memory",
            turn.relationship_id,
            turn.created_at,
            turn.id,
            memory.significance,
            sum(memory.terms.values()),
            memory.memory_type,
            turn.speaker,
            HalfVector(memory.vector),
            turn.content,
            list(memory.terms),
            list(memory.terms.values()),
            self._fingerprint,
        )
        self._changed |= row is not None
        if row is None:
            row = await self._connection.row("find_memory_of_turn", turn.id)
        if row is None:
            raise ModelMismatch("The store was given to another embedding model meanwhile.")
        return int(row["id"])

    async def reread(self, vectors: Mapping[int, npt.NDArray[np.float32]]) -> None:
        """Give memories of this relationship new vectors, by memory id."""
        self._changed |= bool(vectors)
        for memory_id, vector in vectors.items():
            await self._connection.execute(
                "update_memory_vector", memory_id, self._turn.relationship_id, HalfVector(vector)
            )

    async def announce(
        self, significance: float, memory_id: int | None, memory_type: str | None
    ) -> MemoryAnnouncement:
        """Tell every process what became of the turn, once this transaction commits.

        Where a memory was stored or changed, the memory version rises.
        """
        turn = self._turn
        version = (
            await self._connection.row("raise_memory_version", turn.relationship_id)
            if self._changed
            else None
        )
        announcement = MemoryAnnouncement(
            relationship_id=turn.relationship_id,
            message_id=turn.message_id,
            speaker=turn.speaker,
            significance=significance,
            memory_id=memory_id,
            memory_type=memory_type,
            memory_version=None if version is None else version["memory_version"],
        )
        await self._connection.execute(
            "announce_memory", msgspec.json.encode(announcement).decode()
        )
        return announcement
