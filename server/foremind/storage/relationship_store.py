"""Relationships: their settings, consent, versions, and the state of their sessions.

Session state, set by the game or client: the current task, and flags.

It is part of every prompt of its session, and is deleted when the session is closed.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from cachetools import LRUCache

from foremind.domain.announcements import (
    Announcement,
    ConsentGiven,
    MemoriesForgotten,
    SettingsChanged,
    StateChanged,
)
from foremind.domain.errors import Conflict, NotFound
from foremind.domain.memory import Reason, StoredMemory
from foremind.domain.relationship import (
    Relationship,
    SessionView,
    TranscriptEntry,
    relationship_id_of,
)
from foremind.domain.session_state import (
    NO_STATE,
    SessionState,
    StatePatch,
    apply_state_patch,
)
from foremind.domain.settings.settings import RelationshipSettings
from foremind.domain.turn import CompanionVersions, RelationshipVersions, VersionsInForce
from foremind.storage.companion_store import relationship_settings, without_settings
from foremind.storage.database import Database
from foremind.storage.relationship_transaction import RelationshipTransaction

_MAX_RELATIONSHIPS = 10_000  # for others, the check before writing finds the erasure


class ErasureWatch:
    """The number of erasures per relationship, as far as this process knows."""

    def __init__(self) -> None:
        self._erasures: LRUCache[int, int] = LRUCache(_MAX_RELATIONSHIPS)

    def on_announcement(self, announcement: Announcement) -> None:
        """Update the number of erasures."""
        if isinstance(announcement, MemoriesForgotten):
            relationship_id = announcement.relationship_id
            known = 0 if announcement.went_back else self.erasures_of(relationship_id)
            self._erasures[relationship_id] = max(announcement.erasures, known)

    def erasures_of(self, relationship_id: int) -> int:
        """Return the known number of erasures."""
        return int(self._erasures.get(relationship_id, 0))

    def check(self, relationship_id: int, erasures: int) -> None:
        """Check that nothing was erased since there had been this many erasures.

        Raises:
            Conflict: something was.
        """
        if self.erasures_of(relationship_id) > erasures:
            raise Conflict("Something was forgotten or corrected meanwhile.")


def versions_of(row: Any) -> VersionsInForce:
    """Return the versions in a row."""
    return VersionsInForce(
        RelationshipVersions(*(row[name] for name in RelationshipVersions.__struct_fields__)),
        CompanionVersions(row["companion_id"], row["companion_version"], row["documents_version"]),
    )


class VersionStore:
    """Reads versions, for any relationships."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self, relationships: Sequence[int]) -> dict[int, VersionsInForce]:
        """Return the versions by relationship id, without those that do not exist.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        rows = await self._database.rows("relationship_versions", list(relationships))
        return {row["relationship_id"]: versions_of(row) for row in rows}


def state_of(row: Any) -> SessionState:
    """Decode the state in a row."""
    return SessionState(row["task"], msgspec.json.decode(row["flags"]))


def flags_json(state: SessionState) -> str:
    """Encode flags for storage."""
    return msgspec.json.encode(state.flags).decode()


class StateStore:
    """Reads and changes session states; every call names its relationship."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, relationship_id: int, session_id: UUID) -> tuple[SessionState, int]:
        """Return the state of a session and its version; 0 without a state.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        row = await self._database.for_relationship(relationship_id).row(
            "session_state", relationship_id, session_id
        )
        return (NO_STATE, 0) if row is None else (state_of(row), row["version"])

    async def change(
        self, relationship_id: int, session_id: UUID, patch: StatePatch, now: datetime
    ) -> tuple[SessionState, int]:
        """Apply a patch to a session's state and announce it; return the new state and its version.

        Raises:
            InvalidMessage: the state would have too many flags.
            NotFound: the session is closed.
            StorageUnavailable: nothing was changed.
        """
        async with self._database.transaction(relationship_id) as connection:
            row = await connection.row("lock_state", relationship_id, session_id, now)
            if row is None:
                raise NotFound("session: expected one that is not over", param="session")
            state = apply_state_patch(state_of(row), patch)
            put = await connection.row(
                "put_state", relationship_id, session_id, state.task, flags_json(state)
            )
            connection.announce(StateChanged(relationship_id))
            assert put is not None  # it is locked
        return state, put["version"]


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

    async def reasons(
        self, relationship_id: int, memories: Sequence[int]
    ) -> dict[int, list[Reason]]:
        """Return why memories are significant, of those that are remembered."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "reasons_of_memories", relationship_id, memories
        )
        return {row["id"]: msgspec.json.decode(row["reasons"], type=list[Reason]) for row in rows}

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
