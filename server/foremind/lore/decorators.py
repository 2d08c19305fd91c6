"""Decorators of a lorebook entry: lines at the head of its content that begin with @@. Pure.

Source: "Decorators" of the lorebook specification, Character Card V3. A line of `@@@` is used if
the one before it is unknown, invalid or unsupported.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

Role = Literal["assistant", "system", "user"]
_ROLES: tuple[str, ...] = get_args(Role)
_POSITIONS = {"after_desc": "after_char", "before_desc": "before_char"}
MAX_DECORATORS = 100  # lines of an entry that are read as decorators
_MAX_NUMBER = 1_000_000_000


class Decorators(msgspec.Struct):
    """The decorators of an entry that are supported; None where there is none.

    `additional_keys` has a tuple for each such line: a match needs one key of each.
    """

    activate: bool = False
    dont_activate: bool = False
    activate_only_after: int | None = None
    activate_only_every: int | None = None
    keep_activate_after_match: bool = False
    dont_activate_after_match: bool = False
    depth: int | None = None
    role: Role | None = None
    scan_depth: int | None = None
    position: str | None = None
    ignore_on_max_context: bool = False
    additional_keys: tuple[tuple[str, ...], ...] = ()
    exclude_keys: tuple[str, ...] | None = None


def split_decorators(content: str) -> tuple[Decorators, str]:
    """Return the decorators of a content, and the content without them.

    Every decorator is removed, supported or not. Of several with one name, the first counts, except
    for `additional_keys`.
    """
    decorators = Decorators()
    lines = content.splitlines()
    names: set[str] = set()
    open_chain = False  # whether a fallback may still be used
    first = 0
    for line in lines[:MAX_DECORATORS]:
        text = line.strip()
        if text and not text.startswith("@@"):
            break
        first += 1
        if not text:
            continue
        is_fallback = text.startswith("@@@")
        name, _, value = text.lstrip("@").partition(" ")
        if is_fallback and not open_chain:
            continue
        open_chain = not _apply(decorators, names, name, value.strip())
    return decorators, "\n".join(lines[first:]).strip()


def _apply(decorators: Decorators, names: set[str], name: str, value: str) -> bool:
    """Record a decorator; return False if it is not supported or its value is invalid."""
    read = _READERS.get(name)
    parsed = None if read is None else read(value)
    if parsed is None:
        return False
    if name == "additional_keys":
        decorators.additional_keys = (*decorators.additional_keys, parsed)
    elif name not in names:
        setattr(decorators, name, parsed)
    names.add(name)
    return True


def _flag(value: str) -> bool | None:
    return True if value.lower() in ("", "true") else None


def _whole(value: str) -> int | None:
    """Return a whole number, None if it is no number; fractions are cut off."""
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if abs(number) <= _MAX_NUMBER else None  # neither infinite nor NaN


def _positive(value: str) -> int | None:
    number = _whole(value)
    return None if number is None or number < 1 else number


def _keys(value: str) -> tuple[str, ...] | None:
    return tuple(key for part in value.split(",") if (key := part.strip())) or None


_READERS: dict[str, Callable[[str], Any]] = {
    "activate": _flag,
    "dont_activate": _flag,
    "activate_only_after": _whole,
    "activate_only_every": _positive,
    "keep_activate_after_match": _flag,
    "dont_activate_after_match": _flag,
    "depth": _whole,
    "role": lambda value: value if value in _ROLES else None,
    "scan_depth": _positive,
    "position": _POSITIONS.get,
    "ignore_on_max_context": _flag,
    "additional_keys": _keys,
    "exclude_keys": _keys,
}
#: The decorators that are supported.
SUPPORTED = frozenset(_READERS)
