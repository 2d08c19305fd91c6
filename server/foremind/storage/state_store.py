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
    patched,
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

    async def read(self, relationship_id: int, session_id: UUID) -> SessionState:
        """Return the state of a session.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        row = await self._database.of(relationship_id).row(
            "session_state", relationship_id, session_id
        )
        return NO_STATE if row is None else state_of(row)

    async def change(
        self, relationship_id: int, session_id: UUID, patch: StatePatch, now: datetime
    ) -> SessionState:
        """Apply a patch to a session's state and announce it; return the new state.

        Raises:
            InvalidMessage: the state would have too many flags.
            NotFound: the session is closed.
            StorageUnavailable: nothing was changed.
        """
        async with self._database.transaction(relationship_id) as connection:
            row = await connection.row("lock_state", relationship_id, session_id, now)
            if row is None:
                raise NotFound("session: expected one that is not over", param="session")
            state = patched(state_of(row), patch)
            await connection.execute(
                "put_state", relationship_id, session_id, state.task, flags_json(state)
            )
            await connection.announce(StateChanged(relationship_id))
        return state
