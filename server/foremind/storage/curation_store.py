"""What background work on a relationship reads: its turns and sessions, how far each step is."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from foremind.domain.announcements import StateChanged
from foremind.domain.relationship import (
    ChangeSet,
    OpenSession,
    RelationshipState,
    SessionUsage,
    TranscriptTurn,
)
from foremind.storage.companion_store import (
    relationship_settings,
    settings_from_json,
    without_settings,
)
from foremind.storage.database import Database

MOST_TURNS = 1000  # that are read at once


class CurationStore:
    """Reads what is to be curated, and ends sessions; records go through `RecordStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_due(self, bond_id: int, now: datetime) -> None:
        """Let a relationship be curated as soon as may be."""
        await self._database.execute("make_due", bond_id, now)

    async def wake(self, now: datetime, since: datetime, limit: int, *, all_let_go: bool) -> None:
        """Have sleeping relationships looked at that were not since a time, some at once.

        Only where something is let go by age: of all, or by settings of the companion or its own.
        """
        await self._database.execute("wake_for_retention", now, since, all_let_go, limit)

    async def unkept_turns(self, bond_id: int) -> list[int]:
        """Return the turns of sessions that are over which were not to be kept."""
        rows = await self._database.of(bond_id).rows("unkept_turns", bond_id)
        return [row["id"] for row in rows]

    async def bond(self, bond_id: int) -> RelationshipState | None:
        """Return a relationship, or None where it is gone."""
        row = await self._database.of(bond_id).row("relationship_to_curate", bond_id)
        if row is None:
            return None
        values = without_settings(row) | {
            "companion_settings": settings_from_json(row["companion_settings"]),
            "dismissed": frozenset(row["dismissed"]),
            "remade": msgspec.json.decode(row["remade"], type=tuple[ChangeSet, ...]),
        }
        return RelationshipState(**values, settings=relationship_settings(row))

    async def turns_after(
        self, bond_id: int, turn_id: int, limit: int = MOST_TURNS
    ) -> list[TranscriptTurn]:
        """Return the first turns after one, oldest first."""
        rows = await self._database.of(bond_id).rows("turns_after", bond_id, turn_id, limit)
        return [_turn(row) for row in rows]

    async def turns(self, bond_id: int, turn_ids: Sequence[int]) -> list[TranscriptTurn]:
        """Return turns that were not removed, oldest first."""
        rows = await self._database.of(bond_id).rows("turns_by_id", bond_id, list(turn_ids))
        return [_turn(row) for row in rows]

    async def last_session_over(self, bond_id: int) -> list[TranscriptTurn]:
        """Return the turns of the last session that is over and of which something is left."""
        rows = await self._database.of(bond_id).rows("last_session_over", bond_id, MOST_TURNS)
        return [_turn(row) for row in rows]

    async def open_sessions(self, bond_id: int) -> Sequence[OpenSession]:
        """Return the sessions that are not closed, the longest silent first."""
        rows = await self._database.rows("open_sessions", bond_id)
        return [OpenSession(**dict(row)) for row in rows]

    async def close_session(
        self, bond_id: int, session_id: UUID, now: datetime, silent_since: datetime
    ) -> None:
        """Close a session, unless something was said in it since; its state is gone then."""
        async with self._database.transaction(bond_id) as connection:
            cleared = await connection.rows("close_session", session_id, bond_id, now, silent_since)
            if cleared:
                await connection.announce(StateChanged(bond_id))

    async def leave_nothing(self, bond_id: int) -> None:
        """Delete sessions that are over and of which nothing is left; after the last, the name."""
        async with self._database.transaction(bond_id) as connection:
            await connection.execute("delete_closed_sessions", bond_id)
            await connection.execute("forget_name", bond_id)

    async def habits(self, bond_id: int) -> list[SessionUsage]:
        """Return the last sessions, newest first."""
        rows = await self._database.of(bond_id).rows("session_habits", bond_id)
        return [SessionUsage(**dict(row)) for row in rows]


def _turn(row: Any) -> TranscriptTurn:
    values = dict(row)
    vector = values.pop("embedding")
    return TranscriptTurn(
        **values, vector=None if vector is None else np.asarray(vector.to_numpy(), np.float32)
    )
