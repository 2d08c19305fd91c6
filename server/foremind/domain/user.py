"""Users, and the revocations that are exported with their data."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from foremind.domain.errors import InvalidMessage

_MAX_LANGUAGE_CHARS, _MAX_SUBTAG_CHARS = 35, 8  # of a tag, by RFC 5646


class ExportedRevocation(msgspec.Struct, frozen=True):
    """A revocation of all tokens of a user, or of the single `token_id`."""

    token_id: str | None
    until: datetime


@dataclass(frozen=True, slots=True)
class User:
    """A user; `id` is the database id, `external_id` the one that clients use.

    `language` is the first subtag of the BCP 47 tag that a client has stated, None if none has.
    """

    id: int
    external_id: str
    name: str
    time_zone: str
    language: str | None


def parse_language(tag: str | None) -> str | None:
    """Return the first subtag of a BCP 47 tag, "pt" of "pt-BR"; None if no tag is given.

    Raises:
        InvalidMessage: it is no such tag.
    """
    if tag is None:
        return None
    language, *others = tag.lower().split("-")
    if (
        len(tag) > _MAX_LANGUAGE_CHARS
        or not tag.isascii()
        or not (language.isalpha() and 2 <= len(language) <= _MAX_SUBTAG_CHARS)
        or not all(other.isalnum() and len(other) <= _MAX_SUBTAG_CHARS for other in others)
    ):
        raise InvalidMessage(
            "language: expected a BCP 47 tag such as de or pt-BR", param="language"
        )
    return language
