"""TODO."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from foremind.domain.errors import InvalidMessage

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
