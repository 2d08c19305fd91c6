"""Sessions and turns: what was said, stored once, each user turn together with its job."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from foremind.companions import CompanionSettings
from foremind.errors import Conflict, StorageUnavailable
from foremind.storage.companions import settings_from_json
from foremind.storage.database import Database
from foremind.storage.jobs import REMEMBER_TURN

Speaker = Literal["user", "companion"]
Status = Literal["completed", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """Identifiers of a session, the versions its relationship has, and its own settings.

    `begun`: it is a new one, none goes on.
    """

    session_id: UUID
    relationship_id: int
    user_id: int
    memory_version: int
    layers_version: int
    settings: CompanionSettings
    begun: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of either side, as it is stored."""

    id: int
    speaker: Speaker
    message_id: str | None
    status: Status
    content: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """Where a user's message is stored.

    `duplicate` where it already was; `answered` where a reply to it was already given.
    """

    id: int
    duplicate: bool
    answered: bool


class SessionTaken(msgspec.Struct, frozen=True, tag="session_taken"):
    """That a session is used over a new connection; `origin` tells which."""

    session_id: str
    origin: str


class ReplyStored(msgspec.Struct, frozen=True, tag="reply_stored"):
    """That a reply was stored which nobody was connected to hear."""

    relationship_id: int
    session_id: str
    turn_id: int
    origin: str


class TurnStore:
    """Reads and writes sessions and turns; every call names its relationship."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_session(
        self,
        external_id: str,
        name: str,
        companion_id: int,
        now: datetime,
        time_zone: str = "UTC",
        lives: timedelta = timedelta(0),
    ) -> OpenedSession:
        """Go on with a session in which something was said no longer than it `lives` ago.

        Otherwise begin one, creating user and relationship at first sight. `time_zone` is the IANA
        name of the zone that the player's clock is in.
        """
        row = await self._database.row(
            "open_session", external_id, name, companion_id, now, time_zone, lives
        )
        if row is None:
            raise StorageUnavailable("The session could not be opened; try again shortly.")
        values = dict(row)
        return OpenedSession(**(values | {"settings": settings_from_json(row["settings"])}))

    async def working(self, relationship_id: int, session_id: UUID, limit: int) -> list[Turn]:
        """Return the last `limit` turns of a session, oldest first."""
        rows = await self._database.of(relationship_id).rows(
            "working_turns", relationship_id, session_id, limit
        )
        return [Turn(**dict(row)) for row in rows]

    async def recent(self, relationship_id: int, limit: int) -> list[Turn]:
        """Return the last `limit` turns, oldest first."""
        rows = await self._database.of(relationship_id).rows("recent_turns", relationship_id, limit)
        return [Turn(**dict(row)) for row in rows]

    async def commit_message(
        self, session: OpenedSession, message_id: str, text: str, now: datetime
    ) -> StoredTurn:
        """Store a user's message and the job that will judge it, in one transaction.

        When this returns, both are on disk, or the message already was.
        """
        row = await self._database.row(
            "insert_user_turn",
            session.relationship_id,
            session.session_id,
            session.user_id,
            message_id,
            text,
            now,
            REMEMBER_TURN,
        )
        if row is None:
            return await self._stored(session, message_id)
        return StoredTurn(row["id"], duplicate=False, answered=False)

    async def commit_reply(
        self,
        session: OpenedSession,
        reply_to: int | None,
        status: Status,
        text: str,
        now: datetime,
        *,
        judged: bool = True,
        unheard: Callable[[int], ReplyStored | None] = lambda _: None,
    ) -> int | None:
        """Store what the player was shown of a reply, once for the turn it answers.

        With the job that judges it, unless it is not to be `judged`; and with what `unheard`
        says of the turn, if anything, announced to every process. Return the turn, or None where a
        reply to `reply_to` is stored already.
        """
        async with self._database.transaction(session.relationship_id) as connection:
            row = await connection.row(
                "insert_reply",
                session.relationship_id,
                session.session_id,
                session.user_id,
                reply_to,
                status,
                text,
                now,
                REMEMBER_TURN if judged else None,
            )
            if row is None:
                return None
            told = unheard(row["id"])
            if told is not None:
                await connection.announce(told)
            return int(row["id"])

    async def find(self, relationship_id: int, turn_id: int) -> Turn | None:
        """Return a turn of a relationship, if it is there and was not removed."""
        row = await self._database.of(relationship_id).row("find_turn", relationship_id, turn_id)
        return None if row is None else Turn(**dict(row))

    async def announce(self, told: SessionTaken) -> None:
        """Tell every process something about a session."""
        await self._database.announce(told)

    async def _stored(self, session: OpenedSession, message_id: str) -> StoredTurn:
        found = await self._database.of(session.relationship_id).row(
            "find_user_turn", session.user_id, message_id
        )
        if found is None:
            # Row-level security shows it only where it was said to this companion.
            raise Conflict("id: expected one that is not used with another companion", param="id")
        return StoredTurn(found["id"], duplicate=True, answered=found["answered"])
