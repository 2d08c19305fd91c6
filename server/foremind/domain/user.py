"""Users, what they are called, and the revocations that are exported with their data."""

import re
from dataclasses import dataclass
from datetime import datetime

import msgspec

#: What a user is called whose name is not known.
NO_NAME = "the user"
MAX_NAME_CHARS = 64
_NAME = re.compile(r"(?!(?:player|user)\Z)[^\W\d_]+(?:[ .'’-]+[^\W\d_]+)*\.?", re.IGNORECASE)


class ExportedRevocation(msgspec.Struct, frozen=True):
    """A revocation of all tokens of a user, or of the single `token_id`."""

    token_id: str | None
    until: datetime


@dataclass(frozen=True, slots=True)
class User:
    """A user; `id` is the database id, `external_id` the one that clients use.

    `language` is the first subtag of the BCP 47 tag that a client has stated, None if none has, and
    `region` that of its region.
    """

    id: int
    external_id: str
    name: str
    time_zone: str
    language: str | None
    region: str | None = None

    @property
    def language_tag(self) -> str | None:
        """The language with its region, where that is known: "pt-BR"."""
        return with_region(self.language, self.region)


def name_of(stated: str | None, user_id: str) -> str:
    """Return what a user is called: as stated, else by an id that reads like a name. Pure."""
    if stated:
        return stated[:MAX_NAME_CHARS]
    named = len(user_id) <= MAX_NAME_CHARS and _NAME.fullmatch(user_id) is not None
    return user_id if named else NO_NAME


def with_region(language: str | None, region: str | None) -> str | None:
    """Return a language with its region, "pt-BR"; without one as it is."""
    return f"{language}-{region}" if language and region else language
