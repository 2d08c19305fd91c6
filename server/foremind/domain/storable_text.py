"""What PostgreSQL cannot store: rejected by the name of its field, or left out. Pure."""

import json
import re
from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, datetime

import msgspec

from foremind.domain.errors import InvalidMessage

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_PATH_CHARS = 200  # that an error repeats


def check_storable(part: object, path: str = "") -> None:
    """Check that everything in a decoded message, file or query can be stored.

    Args:
        part: text, a datetime, or a struct, mapping or sequence of these.
        path: the name of its field; empty for a whole message.

    Raises:
        InvalidMessage: naming the first field that cannot be stored, and what was expected.
    """
    path = path[:MAX_PATH_CHARS]  # a name may be as long as the whole message
    if isinstance(part, str):
        if not _is_text(part):
            raise InvalidMessage(f"{path}: expected text without the character NUL", param=path)
    elif isinstance(part, datetime):
        if part.tzinfo is None or not MINYEAR < part.year < MAXYEAR:
            raise InvalidMessage(f"{path}: expected a date and time with a time zone", param=path)
    elif isinstance(part, msgspec.Struct):
        for field in part.__struct_fields__:
            check_storable(getattr(part, field), f"{path}.{field}" if path else field)
    elif isinstance(part, Mapping):
        for key, value in part.items():
            check_storable(key, path)
            check_storable(value, f"{path}.{key}" if path else key)
    elif isinstance(part, list | tuple | frozenset):
        for position, item in enumerate(part):
            check_storable(item, f"{path}[{position}]")


def storable(text: str) -> str:
    """Return a text without what cannot be stored: NUL, and halves of characters.

    Two halves that follow each other become the character.
    """
    if LONE_SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")
    return text.replace("\0", "")


def _is_text(text: str) -> bool:
    """Return whether a text is UTF-8 without NUL; lone surrogates are not."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def half_character(raw: str | bytes) -> InvalidMessage | None:
    """Return the error about a lone surrogate in otherwise well-formed JSON, if that is all.

    Its `param` is the path of the text, or of the object of a name; None for the whole.
    """
    try:
        frame = json.loads(raw)  # unlike msgspec, accepts lone surrogates
    except (ValueError, RecursionError):  # UnicodeError is a ValueError
        return None
    path = _path_of_half_character(frame)
    if path is None:
        return None
    where = path or "the name of a field"
    return InvalidMessage(
        f"{where}: expected whole characters, got half of one (a lone surrogate)",
        param=path or None,
    )


def _path_of_half_character(frame: object) -> str | None:
    """Return the path of the first text with a lone surrogate; of a name, that of its object."""
    waiting: list[tuple[str, object]] = [("", frame)]
    while waiting:  # a stack, because frames may be nested deeply
        path, part = waiting.pop()
        path = path[:MAX_PATH_CHARS]
        if isinstance(part, str) and LONE_SURROGATE.search(part):
            return path
        if isinstance(part, dict):
            if any(LONE_SURROGATE.search(name) for name in part):
                return path
            members = [(f"{path}.{name}" if path else name, value) for name, value in part.items()]
            waiting += reversed(members)
        elif isinstance(part, list):
            waiting += reversed([(f"{path}[{index}]", item) for index, item in enumerate(part)])
    return None
