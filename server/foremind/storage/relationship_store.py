"""Reads relationships for the API, and changes their settings and consent."""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from foremind.domain.announcements import ConsentGiven, SettingsChanged
from foremind.domain.companion import RelationshipSettings
from foremind.domain.errors import NotFound
from foremind.domain.memory import Reason, StoredMemory
from foremind.domain.relationship import (
    Relationship,
    SessionView,
    TranscriptEntry,
    relationship_id_of,
)
from foremind.storage.companion_store import relationship_settings, without_settings
from foremind.storage.database import Database
from foremind.storage.relationship_transaction import RelationshipTransaction


class RelationshipStore:
    """Reads and changes relationships."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def relationships_of_user(self, user_id: str) -> list[Relationship]:
        """Return all relationships of a user."""
        rows = await self._database.rows("relationships_of_user", user_id)
        return [_relationship(row) for row in rows]

    async def find_any(self, relationship_id: int) -> Relationship:
        """Return a relationship of any user, for operators.

        Raises:
            NotFound: there is none with that id.
        """
        row = await self._database.row("relationship", relationship_id)
        if row is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        return _relationship(row)

    async def find(self, relationship_id: int, user_id: str) -> Relationship:
        """Return a relationship of a user.

        Raises:
            NotFound: this user has none with that id.
        """
        row = await self._database.row("relationship", relationship_id)
        if row is None or row["user_id"] != user_id:
            raise NotFound("id: expected the id of a relationship of this user", param="id")
        return _relationship(row)

    async def settings(self, relationship_id: int) -> RelationshipSettings | None:
        """Return a relationship's own settings; None if it does not exist."""
        row = await self._database.row("relationship_settings", relationship_id)
        return None if row is None else relationship_settings(row)

    async def settings_with_companion(
        self, user_id: str, companion_id: int
    ) -> RelationshipSettings:
        """Return the settings of a user's relationship with a companion, which need not exist."""
        user = await self._database.row("find_user", user_id)
        if user is None:
            return RelationshipSettings()
        known = await self.settings(relationship_id_of(user["id"], companion_id))
        return known or RelationshipSettings()

    async def change(
        self,
        relationship_id: int,
        change: Callable[[RelationshipSettings], RelationshipSettings],
    ) -> SettingsChanged:
        """Change a relationship's own settings under a lock; return what is announced of it.

        Args:
            change: returns the new settings, or raises.
        """
        async with RelationshipTransaction.begin(self._database, relationship_id) as transaction:
            connection = transaction.connection
            row = await connection.row("relationship_settings", relationship_id)
            assert row is not None  # it is locked
            new = change(relationship_settings(row))
            raised = await connection.row(
                "change_relationship",
                relationship_id,
                msgspec.json.encode(new.user).decode(),
                msgspec.json.encode(new.operator).decode(),
            )
            assert raised is not None  # it is locked
            await transaction.layers_version()
            changed = SettingsChanged(relationship_id, raised["version"])
            transaction.announce(changed)
        return changed

    async def consent(
        self, relationship_id: int, actor: str, now: datetime, *, given: bool
    ) -> None:
        """Record whether the user agrees to be remembered, and announce it.

        Raises:
            NotFound: the relationship was deleted.
            StorageUnavailable: nothing was changed.
        """
        async with self._database.transaction(relationship_id) as connection:
            raised = await connection.row("set_consent", relationship_id, given, now)
            if raised is None:
                raise NotFound("id: expected the id of a relationship", param="id")
            subject = "given" if given else "withdrawn"
            await connection.execute("add_audit", relationship_id, actor, "consent", subject, now)
            connection.announce(ConsentGiven(relationship_id, given, raised["version"]))

    async def sessions(self, relationship_id: int, limit: int) -> list[SessionView]:
        """Return the latest sessions that have turns, newest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "sessions_of_relationship", relationship_id, limit
        )
        return [SessionView(**dict(row)) for row in rows]

    async def turns(
        self, relationship_id: int, after: int, limit: int, session: UUID | None
    ) -> list[TranscriptEntry]:
        """Return at most `limit` turns whose id is greater than `after`, in order.

        Args:
            session: restricts the turns to one session.
        """
        rows = await self._database.for_relationship(relationship_id).rows(
            "turns_of_relationship", relationship_id, after, limit, session
        )
        return [TranscriptEntry(**dict(row)) for row in rows]

    async def latest_open_session(self, relationship_id: int, since: datetime) -> UUID | None:
        """Return the latest open session that was active since a time; None if there is none."""
        session: UUID | None = await self._database.value("latest_session", relationship_id, since)
        return session

    async def memories(self, relationship_id: int, after: int, limit: int) -> list[StoredMemory]:
        """Return at most `limit` memories whose id is greater than `after`, in order."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "memories_of_relationship", relationship_id, after, limit
        )
        return [
            StoredMemory(
                **(dict(row) | {"reasons": msgspec.json.decode(row["reasons"], type=list[Reason])})
            )
            for row in rows
        ]


def _relationship(row: asyncpg.Record) -> Relationship:
    return Relationship(**without_settings(row), settings=relationship_settings(row))
