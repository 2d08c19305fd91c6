"""Sessions and turns: what was said, stored once, each user turn together with its job."""

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
        held_for: timedelta = timedelta(minutes=5),
    ) -> None:
        """Claim turns that are to be answered for this process; none where it has no presence.

        Args:
            held_for: the longest that it may take to answer one; then another process may.
        """
        self._database = database
        self._presence = presence or Presence()
        self._held_for = held_for

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
        """Go on with a session in which something was said no longer than it `lives` ago.

        Otherwise begin one, creating user and relationship at first sight. `time_zone` is the IANA
        name of the zone that the player's clock is in; `consent` whether the user agrees to be
        remembered, None where nothing is said of that.
        """
        row = await self._database.row(
            "open_session", external_id, name, companion_id, now, time_zone, lives, consent
        )
        if row is None:
            raise StorageUnavailable("The session could not be opened; try again shortly.")
        return OpenedSession(**without_settings(row), settings=relationship_settings(row))

    async def go_on(self, session: OpenedSession, now: datetime, lives: timedelta) -> OpenedSession:
        """Return the session that goes on after a silence: the same, another's, or a new one."""
        found = await self._database.value("session_going_on", session.relationship_id, now, lives)
        return replace(session, session_id=found, active_at=now)

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
        self,
        session: OpenedSession,
        message_id: str,
        text: str,
        now: datetime,
        *,
        kept: bool = True,
    ) -> StoredTurn:
        """Store a user's message and the job that will judge it, in one transaction.

        What is not to be `kept` is not judged, and is erased when its session is over.

        When this returns, both are on disk, or the message already was.

        Raises:
            Conflict: its id is that of another message.
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
            now + self._held_for,
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
        """Store what the player was shown of a reply, once for the turn it answers.

        With the job that judges it, unless it is not to be `judged`; and with what `unheard`
        says of the turn, if anything, announced to every process. Return the turn, or None where a
        reply to `reply_to` is stored already, or where more was erased than `erasures` since its
        prompt was put together.
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
            told = unheard(row["id"])
            if told is not None:
                await connection.announce(told)
            return int(row["id"])

    async def release(self, session: OpenedSession, message_id: str) -> None:
        """Let another process answer a user's message that this one did not."""
        await self._database.of(session.relationship_id).execute(
            "release_turn", session.user_id, message_id, self._presence.number
        )

    async def answer_elsewhere(
        self, relationship_id: int, turn_id: int, now: datetime
    ) -> tuple[int | None, bool]:
        """Return the turn that answers a user's turn, if any, and whether one is still to come."""
        row = await self._database.of(relationship_id).row(
            "answer_of_turn", relationship_id, turn_id, now
        )
        return (None, False) if row is None else (row["reply"], row["under_way"])

    async def find(self, relationship_id: int, turn_id: int) -> Turn | None:
        """Return a turn of a relationship, if it is there and was not removed."""
        row = await self._database.of(relationship_id).row("find_turn", relationship_id, turn_id)
        return None if row is None else Turn(**dict(row))

    async def announce(self, told: SessionTaken) -> None:
        """Tell every process something about a session."""
        await self._database.announce(told)

    async def _stored(
        self, session: OpenedSession, message_id: str, text: str, now: datetime
    ) -> StoredTurn:
        found = await self._database.of(session.relationship_id).row(
            "claim_user_turn",
            session.user_id,
            message_id,
            text,
            self._presence.number,
            now + self._held_for,
            now,
        )
        if found is None:
            # Row-level security shows it only where it was said to this companion.
            raise Conflict(ANOTHER_COMPANION, param="id")
        if found["differs"]:
            raise Conflict(ANOTHER_TEXT, param="id")
        answered = found["answered"]
        elsewhere = not answered and not found["claimed"]
        return StoredTurn(found["id"], duplicate=True, answered=answered, elsewhere=elsewhere)
