"""Relationships as their user may look at them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from foremind.companions import CompanionSettings
from foremind.errors import NotFound
from foremind.storage.companions import settings_from_json
from foremind.storage.database import Database
from foremind.storage.records import LayersChanged
from foremind.storage.remembering import Reason
from foremind.storage.turns import Speaker


@dataclass(frozen=True, slots=True)
class Relationship:
    """One user with one companion, by its slug; `settings` are its own, laid over the companion's.

    `shares_counts`: its user agreed to be counted, with others, by topic.
    """

    id: int
    memory_version: int
    memory_count: int
    settings: CompanionSettings
    shares_counts: bool
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


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session and how much was said in it."""

    id: UUID
    opened_at: datetime
    active_at: datetime
    closed_at: datetime | None
    turns: int


class RelationshipStore:
    """Reads relationships, always as one user's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_user(self, user_id: str) -> list[Relationship]:
        """Return a user's relationships."""
        return await self._read(user_id, None)

    async def any(self, relationship_id: int) -> Relationship:
        """Return a relationship of whatever user, for the operator.

        Raises:
            NotFound: there is none of that id.
        """
        for each in await self._read(None, relationship_id):
            return each
        raise NotFound("id: expected the id of a relationship", param="id")

    async def _read(self, user_id: str | None, relationship_id: int | None) -> list[Relationship]:
        rows = await self._database.rows("relationships_of_user", user_id, relationship_id)
        return [
            Relationship(**(dict(row) | {"settings": settings_from_json(row["settings"])}))
            for row in rows
        ]

    async def find(self, relationship_id: int, user_id: str) -> Relationship:
        """Return a relationship of a user.

        Raises:
            NotFound: this user has none of that id.
        """
        for each in await self.of_user(user_id):
            if each.id == relationship_id:
                return each
        raise NotFound("id: expected the id of a relationship of this user", param="id")

    async def change(
        self, relationship_id: int, settings: CompanionSettings, *, shares_counts: bool
    ) -> None:
        """Give a relationship settings of its own; tell every process."""
        version = await self._database.value(
            "change_relationship",
            relationship_id,
            msgspec.json.encode(settings).decode(),
            shares_counts,
        )
        await self._database.announce(LayersChanged(relationship_id, version))

    async def sessions(self, relationship_id: int, limit: int) -> list[SessionView]:
        """Return the last sessions in which something was said, newest first."""
        rows = await self._database.of(relationship_id).rows(
            "sessions_of_relationship", relationship_id, limit
        )
        return [SessionView(**dict(row)) for row in rows]

    async def running_session(self, relationship_id: int, since: datetime) -> UUID | None:
        """Return the session in which something was said since a time, if one is not closed."""
        found: UUID | None = await self._database.value("latest_session", relationship_id, since)
        return found

    async def memories(self, relationship_id: int, after: int, limit: int) -> list[StoredMemory]:
        """Return at most `limit` memories whose id is greater than `after`, in order."""
        rows = await self._database.of(relationship_id).rows(
            "memories_of_relationship", relationship_id, after, limit
        )
        return [
            StoredMemory(
                **(dict(row) | {"reasons": msgspec.json.decode(row["reasons"], type=list[Reason])})
            )
            for row in rows
        ]
