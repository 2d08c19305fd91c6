"""Session state: the current task, and flags that the game sets."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from foremind.domain.errors import InvalidMessage

MAX_FLAGS = 32
MAX_TASK_CHARS = 300  # characters
_MAX_VALUE_CHARS = 200
_MAX_INTEGER = 2**53 - 1  # that every JSON parser represents exactly

Task = Annotated[str, Meta(max_length=MAX_TASK_CHARS)]
FlagName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_.-]{0,63}$")]
Flag = (
    bool
    | Annotated[int, Meta(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]
    | float
    | Annotated[str, Meta(max_length=_MAX_VALUE_CHARS)]
)
Flags = Annotated[dict[FlagName, Flag], Meta(max_length=MAX_FLAGS)]


class SessionState(msgspec.Struct, frozen=True):
    """The current task, and flags by name; both initially empty."""

    task: Task = ""
    flags: Flags = {}


NO_STATE = SessionState()


class StatePatch(msgspec.Struct, frozen=True):
    """A JSON merge patch (RFC 7396) of a session's state: absent keeps a value, null removes it."""

    task: Task | UnsetType | None = UNSET
    flags: dict[FlagName, Flag | None] | UnsetType | None = UNSET


def apply_state_patch(state: SessionState, patch: StatePatch) -> SessionState:
    """Return a state after a patch.

    Raises:
        InvalidMessage: the result would have too many flags.
    """
    task = state.task if patch.task is UNSET else patch.task or ""
    flags: Mapping[str, Flag | None] = state.flags
    if patch.flags is None:
        flags = {}
    elif patch.flags is not UNSET:
        flags = {**flags, **patch.flags}
    remaining = {name: value for name, value in flags.items() if value is not None}
    if len(remaining) > MAX_FLAGS:
        raise InvalidMessage(f"state.flags: expected at most {MAX_FLAGS}", param="state.flags")
    return SessionState(task, remaining)
