"""What background work reads of a relationship: turns, sessions, and cursors."""

from collections.abc import Sequence
from datetime import datetime
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
from foremind.storage.user_store import reset_user_without_data

MAX_TURNS = 1000  # per query
_MAX_STEPS = 64  # that are due


class CurationStore:
    """Reads turns, sessions and cursors, and closes sessions; `RecordStore` has the records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def schedule_now(self, relationship_id: int, now: datetime) -> None:
        """Schedule background work on a relationship now."""
        await self._database.execute("schedule_relationship", relationship_id, now)

    async def schedule_retention(
        self, now: datetime, since: datetime, limit: int, *, applies_to_all: bool
    ) -> int:
        """Schedule idle relationships to which retention applies; return how many were looked at.

        Args:
            since: relationships checked later than this are skipped.
            limit: of relationships looked at.
            applies_to_all: retention applies to all of them; otherwise only to those for which the
                companion or the relationship sets it.
        """
        rows = await self._database.rows("relationships_to_check", since, applies_to_all, limit)
        for row in rows:
            await self._database.execute("schedule_retention", row["id"], now, row["applies"])
        return len(rows)

    async def count_turns(self, relationship_id: int, limit: int) -> int:
        """Count what was said, up to a limit."""
        row = await self._database.for_relationship(relationship_id).row(
            "count_turns", relationship_id, limit
        )
        return 0 if row is None else int(row["count"])

    async def unkept_turns(self, relationship_id: int) -> list[int]:
        """Return the ids of turns in closed sessions that were not to be kept."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "unkept_turns", relationship_id
        )
        return [row["id"] for row in rows]

    async def relationship_state(
        self, relationship_id: int, now: datetime
    ) -> RelationshipState | None:
        """Return the state of a relationship, with its steps that are due; None if it is gone."""
        row = await self._database.row("relationship_state", relationship_id, now, _MAX_STEPS)
        if row is None:
            return None
        values = without_settings(row) | {
            "companion_settings": settings_from_json(row["companion_settings"]),
            "dismissed": frozenset(row["dismissed"]),
            "steps_due": frozenset(row["steps_due"]),
            "open_sessions": tuple(
                map(OpenSession, row["sessions_open"], row["sessions_active_at"])
            ),
            "remade": msgspec.json.decode(row["remade"], type=tuple[ChangeSet, ...]),
        }
        del values["sessions_open"], values["sessions_active_at"]
        return RelationshipState(**values, settings=relationship_settings(row))

    async def turns_after(
        self, relationship_id: int, turn_id: int, limit: int = MAX_TURNS
    ) -> list[TranscriptTurn]:
        """Return the turns after a cursor, oldest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "turns_after", relationship_id, turn_id, limit
        )
        turns = []
        for row in rows:
            values = dict(row)
            vector = values.pop("embedding")
            values["vector"] = None if vector is None else np.asarray(vector.to_numpy(), np.float32)
            turns.append(TranscriptTurn(**values))
        return turns

    async def turns(self, relationship_id: int, turn_ids: Sequence[int]) -> list[TranscriptTurn]:
        """Return turns by id, oldest first, except those that were erased."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "turns_by_id", relationship_id, list(turn_ids)
        )
        return [TranscriptTurn(**dict(row)) for row in rows]

    async def answered_by(self, relationship_id: int, turn_id: int) -> list[TranscriptTurn]:
        """Return the message that a reply answers; none if it answers none, or that was erased."""
        row = await self._database.for_relationship(relationship_id).row(
            "message_of_reply", relationship_id, turn_id
        )
        return [] if row is None else await self.turns(relationship_id, [row["reply_to"]])

    async def last_closed_session(self, relationship_id: int) -> list[TranscriptTurn]:
        """Return the turns of the last closed session that still has any text."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "last_closed_session", relationship_id, MAX_TURNS
        )
        return [TranscriptTurn(**dict(row)) for row in rows]

    async def close_session(
        self, relationship_id: int, session_id: UUID, now: datetime, idle_since: datetime
    ) -> None:
        """Close a session and delete its state, unless it was active after `idle_since`."""
        async with self._database.transaction(relationship_id) as connection:
            cleared = await connection.rows(
                "close_session", session_id, relationship_id, now, idle_since
            )
            if cleared:
                connection.announce(StateChanged(relationship_id))

    async def delete_empty_sessions(self, relationship_id: int) -> None:
        """Delete closed sessions without turns; with the last one, reset the user's name."""
        async with self._database.transaction(relationship_id) as connection:
            await connection.execute("delete_closed_sessions", relationship_id)
            await reset_user_without_data(connection, relationship_id)

    async def session_usage(self, relationship_id: int) -> list[SessionUsage]:
        """Return when the latest sessions were and what was said in them, newest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "session_usage", relationship_id
        )
        return [SessionUsage(**dict(row)) for row in rows]
