"""Stores sessions and turns, each turn exactly once and together with its job."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from foremind.domain.announcements import ReplyStored, SessionTaken
from foremind.domain.errors import Conflict, StorageUnavailable
from foremind.domain.turn import OpenedSession, Status, StoredTurn, Turn
from foremind.storage.companion_store import relationship_settings, without_settings
from foremind.storage.database import Database
from foremind.storage.job_queue import REMEMBER_TURN
from foremind.storage.presence import Presence

ANOTHER_COMPANION = "id: expected one that is not used with another companion"
ANOTHER_TEXT = "id: expected one that is not used for another text"


class TurnStore:
    """Reads and writes sessions and turns; every call names its relationship."""

    def __init__(
        self,
        database: Database,
        presence: Presence | None = None,
        claim_duration: timedelta = timedelta(minutes=5),
    ) -> None:
        """Configure how this process claims the turns that it answers.

        Args:
            presence: by which other processes know that this one is alive; without it, nothing is
                claimed.
            claim_duration: after it, another process may answer the turn.
        """
        self._database = database
        self._presence = presence or Presence()
        self._claim_duration = claim_duration

    async def open_session(
        self,
        external_id: str,
        name: str,
        companion_id: int,
        now: datetime,
        time_zone: str = "UTC",
        lives: timedelta = timedelta(0),
        consent: bool | None = None,
    ) -> OpenedSession:
        """Resume the session that was active within the time it `lives`, or begin one.

        User and relationship are created if they do not exist.

        Args:
            time_zone: the IANA name of the player's time zone.
            consent: whether the user agrees to be remembered; None leaves it unchanged.

        Raises:
            StorageUnavailable: try again later.
        """
        row = await self._database.row(
            "open_session", external_id, name, companion_id, now, time_zone, lives, consent
        )
        if row is None:
            raise StorageUnavailable("The session could not be opened; try again shortly.")
        return OpenedSession(**without_settings(row), settings=relationship_settings(row))

    async def go_on(self, session: OpenedSession, now: datetime, lives: timedelta) -> OpenedSession:
        """Return the session for the next turn: the latest active within `lives`, or a new one."""
        session_id = await self._database.value(
            "roll_over_session", session.relationship_id, now, lives
        )
        return replace(session, session_id=session_id, active_at=now)

    async def working(self, relationship_id: int, session_id: UUID, limit: int) -> list[Turn]:
        """Return the last `limit` turns of a session, oldest first."""
        rows = await self._database.of(relationship_id).rows(
            "session_turns", relationship_id, session_id, limit
        )
        return [Turn(**dict(row)) for row in rows]

    async def recent(self, relationship_id: int, limit: int) -> list[Turn]:
        """Return the last `limit` turns, oldest first."""
        rows = await self._database.of(relationship_id).rows("recent_turns", relationship_id, limit)
        return [Turn(**dict(row)) for row in rows]

    async def commit_message(
        self,
        session: OpenedSession,
        message_id: str,
        text: str,
        now: datetime,
        *,
        kept: bool = True,
    ) -> StoredTurn:
        """Store a user's message and the job that ingests it, in one transaction.

        When this returns, both are on disk, or the message already was.

        Args:
            kept: otherwise the turn is not ingested, and is erased after its session.

        Raises:
            Conflict: the id belongs to another message.
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
            kept,
            self._presence.number,
            now + self._claim_duration,
        )
        if row is None:
            return await self._stored(session, message_id, text, now)
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
        kept: bool = True,
        erasures: int | None = None,
        unheard: Callable[[int], ReplyStored | None] = lambda _: None,
    ) -> int | None:
        """Store what the player was shown of a reply, once per turn that it answers.

        Args:
            judged: whether the reply is ingested.
            kept: otherwise it is not ingested either, and is erased after its session.
            erasures: the number of erasures that its prompt reflects.
            unheard: returns what to announce of the stored turn, if anything.

        Returns:
            The id of the turn; None if a reply to `reply_to` is stored already, or if something
            was erased since the prompt was built.
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
                REMEMBER_TURN if judged and kept else None,
                erasures,
                kept,
            )
            if row is None:
                return None
            announcement = unheard(row["id"])
            if announcement is not None:
                await connection.announce(announcement)
            return int(row["id"])

    async def release(self, session: OpenedSession, message_id: str) -> None:
        """Release the claim on a user's message that this process did not answer."""
        await self._database.of(session.relationship_id).execute(
            "release_turn", session.user_id, message_id, self._presence.number
        )

    async def answer_elsewhere(
        self, relationship_id: int, turn_id: int, now: datetime
    ) -> tuple[int | None, bool]:
        """Return the reply to a user's turn, if any, and whether a process is answering it."""
        row = await self._database.of(relationship_id).row(
            "answer_of_turn", relationship_id, turn_id, now
        )
        return (None, False) if row is None else (row["reply"], row["under_way"])

    async def find(self, relationship_id: int, turn_id: int) -> Turn | None:
        """Return a turn of a relationship; None if it does not exist or was erased."""
        row = await self._database.of(relationship_id).row("find_turn", relationship_id, turn_id)
        return None if row is None else Turn(**dict(row))

    async def announce(self, announcement: SessionTaken) -> None:
        """Announce that a session was taken over."""
        await self._database.announce(announcement)

    async def _stored(
        self, session: OpenedSession, message_id: str, text: str, now: datetime
    ) -> StoredTurn:
        row = await self._database.of(session.relationship_id).row(
            "claim_user_turn",
            session.user_id,
            message_id,
            text,
            self._presence.number,
            now + self._claim_duration,
            now,
        )
        if row is None:
            # Row-level security hides messages to other companions.
            raise Conflict(ANOTHER_COMPANION, param="id")
        if row["differs"]:
            raise Conflict(ANOTHER_TEXT, param="id")
        answered = row["answered"]
        elsewhere = not answered and not row["claimed"]
        return StoredTurn(row["id"], duplicate=True, answered=answered, elsewhere=elsewhere)
