"""What goes on in a session as the game or client tells it: the task in hand, and flags.

It stands in the prompt while the session lasts, and is gone when that is over.
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
    """Return the state in a row."""
    return SessionState(row["task"], msgspec.json.decode(row["flags"]))


def flags_json(state: SessionState) -> str:
    """Return flags as they are stored."""
    return msgspec.json.encode(state.flags).decode()


class StateStore:
    """Reads and changes the states of sessions; every call names its relationship."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, relationship_id: int, session_id: UUID) -> SessionState:
        """Return what goes on in a session.

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
        """Change what goes on in a session; tell every process.

        Raises:
            InvalidMessage: it would have too many flags.
            NotFound: the session is over.
            StorageUnavailable: nothing was changed.
        """
        async with self._database.transaction(relationship_id) as connection:
            row = await connection.row("state_to_change", relationship_id, session_id, now)
            if row is None:
                raise NotFound("session: expected one that is not over", param="session")
            state = patched(state_of(row), patch)
            await connection.execute(
                "put_state", relationship_id, session_id, state.task, flags_json(state)
            )
            await connection.announce(StateChanged(relationship_id))
        return state
