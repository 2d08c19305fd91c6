"""TODO."""

from dataclasses import dataclass
from datetime import datetime

import msgspec


class ExportedRevocation(msgspec.Struct, frozen=True):
    """That tokens of a user, or the one `token_id`, no longer count."""

    token_id: str | None
    until: datetime


@dataclass(frozen=True, slots=True)
class User:
    """A user by both ids: `id` is the database's, `external_id` the one that clients know."""

    id: int
    external_id: str
    name: str
    time_zone: str
