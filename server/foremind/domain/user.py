"""Users, and the revocations that are exported with their data."""

from dataclasses import dataclass
from datetime import datetime

import msgspec


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


def with_region(language: str | None, region: str | None) -> str | None:
    """Return a language with its region, "pt-BR"; without one as it is."""
    return f"{language}-{region}" if language and region else language
