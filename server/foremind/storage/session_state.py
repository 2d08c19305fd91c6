"""What goes on in a session as the game or client tells it: the task in hand, and flags.

It stands in the prompt while the session lasts, and is gone when that is over.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from foremind.errors import InvalidMessage, NotFound
from foremind.storage.database import Database

MOST_FLAGS = 32
MOST_TASK = 300  # characters
_MOST_VALUE = 200  # characters
_MOST_WHOLE = 2**53 - 1  # what every JSON reader can hold

Task = Annotated[str, Meta(max_length=MOST_TASK)]
FlagName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_.-]{0,63}$")]
Flag = (
    bool
    | Annotated[int, Meta(ge=-_MOST_WHOLE, le=_MOST_WHOLE)]
    | float
    | Annotated[str, Meta(max_length=_MOST_VALUE)]
)
Flags = Annotated[dict[FlagName, Flag], Meta(max_length=MOST_FLAGS)]


class SessionState(msgspec.Struct, frozen=True):
    """The task in hand, and flags by name; at first none."""

    task: Task = ""
    flags: Flags = {}


NO_STATE = SessionState()


class StatePatch(msgspec.Struct, frozen=True):
    """A JSON merge patch of a session's state: what it does not name stays, null takes away."""

    task: Task | UnsetType | None = UNSET
    flags: dict[FlagName, Flag | None] | UnsetType | None = UNSET


class StateChanged(msgspec.Struct, frozen=True, tag="state_changed"):
    """That something else goes on in a relationship's session, as every process is told."""

    relationship_id: int


def patched(state: SessionState, patch: StatePatch) -> SessionState:
    """Return a state after a patch.

    Raises:
        InvalidMessage: it would have too many flags.
    """
    task = state.task if patch.task is UNSET else patch.task or ""
    flags: Mapping[str, Flag | None] = state.flags
    if patch.flags is None:
        flags = {}
    elif patch.flags is not UNSET:
        flags = {**flags, **patch.flags}
    left = {name: value for name, value in flags.items() if value is not None}
    if len(left) > MOST_FLAGS:
        raise InvalidMessage(f"state.flags: expected at most {MOST_FLAGS}", param="state.flags")
    return SessionState(task, left)


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
