"""Relationships as their user may look at them."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from foremind.errors import NotFound
from foremind.storage.database import Database
from foremind.storage.remembering import Reason
from foremind.storage.turns import Speaker


@dataclass(frozen=True, slots=True)
class Relationship:
    """One user with one companion, by its slug."""

    id: int
    memory_version: int
    memory_count: int
    user_id: str
    user_name: str
    time_zone: str
    companion: str


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with everything that is known of it; `superseded_by` is a memory's id."""

    id: int
    content: str
    speaker: Speaker
    memory_type: str
    significance: float
    reasons: list[Reason]
    created_at: datetime
    happened_from: datetime | None
    happened_to: datetime | None
    last_used_at: datetime | None
    superseded_by: int | None
    times_said: int


class RelationshipStore:
    """Reads relationships, always as one user's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_user(self, user_id: str) -> list[Relationship]:
        """Return a user's relationships."""
        rows = await self._database.rows("relationships_of_user", user_id)
        return [Relationship(**dict(row)) for row in rows]

    async def find(self, relationship_id: int, user_id: str) -> Relationship:
        """Return a relationship of a user.

        Raises:
            NotFound: this user has none of that id.
        """
        for each in await self.of_user(user_id):
            if each.id == relationship_id:
                return each
        raise NotFound("id: expected the id of a relationship of this user", param="id")

    async def memories(self, relationship_id: int, after: int, limit: int) -> list[StoredMemory]:
        """Return at most `limit` memories whose id is greater than `after`, in order."""
        rows = await self._database.rows("memories_of_relationship", relationship_id, after, limit)
        return [
            StoredMemory(
                **(dict(row) | {"reasons": msgspec.json.decode(row["reasons"], type=list[Reason])})
            )
            for row in rows
        ]
