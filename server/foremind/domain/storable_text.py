"""Rejects values that PostgreSQL cannot store, by the name of their field. Pure."""

from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, datetime

import msgspec

from foremind.domain.errors import InvalidMessage


def check_storable(part: object, path: str = "") -> None:
    """Check that everything in a decoded message, file or query can be stored.

    Args:
        part: text, a datetime, or a struct, mapping or sequence of these.
        path: the name of its field; empty for a whole message.

    Raises:
        InvalidMessage: naming the first field that cannot be stored, and what was expected.
    """
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


def _is_text(text: str) -> bool:
    """Return whether a text is UTF-8 without NUL; lone surrogates are not."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
