"""Session state, set by the game or client: the current task, and flags.

It is part of every prompt of its session, and is deleted when the session is closed.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from foremind.domain.announcements import StateChanged
from foremind.domain.errors import NotFound
from foremind.domain.session_state import (
    NO_STATE,
    SessionState,
    StatePatch,
    apply_state_patch,
)
from foremind.storage.database import Database


def state_of(row: Any) -> SessionState:
    """Decode the state in a row."""
    return SessionState(row["task"], msgspec.json.decode(row["flags"]))


def flags_json(state: SessionState) -> str:
    """Encode flags for storage."""
    return msgspec.json.encode(state.flags).decode()


class StateStore:
    """Reads and changes session states; every call names its relationship."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, relationship_id: int, session_id: UUID) -> tuple[SessionState, int]:
        """Return the state of a session and its version; 0 without a state.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        row = await self._database.for_relationship(relationship_id).row(
            "session_state", relationship_id, session_id
        )
        return (NO_STATE, 0) if row is None else (state_of(row), row["version"])

    async def change(
        self, relationship_id: int, session_id: UUID, patch: StatePatch, now: datetime
    ) -> tuple[SessionState, int]:
        """Apply a patch to a session's state and announce it; return the new state and its version.

        Raises:
            InvalidMessage: the state would have too many flags.
            NotFound: the session is closed.
            StorageUnavailable: nothing was changed.
        """
        async with self._database.transaction(relationship_id) as connection:
            row = await connection.row("lock_state", relationship_id, session_id, now)
            if row is None:
                raise NotFound("session: expected one that is not over", param="session")
            state = apply_state_patch(state_of(row), patch)
            put = await connection.row(
                "put_state", relationship_id, session_id, state.task, flags_json(state)
            )
            connection.announce(StateChanged(relationship_id))
            assert put is not None  # it is locked
        return state, put["version"]
