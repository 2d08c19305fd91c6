"""Stores sessions and turns, each turn exactly once and together with its wait for ingest."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import asyncpg

from foremind.domain.announcements import ReplyStored, SessionTaken
from foremind.domain.background_step import (
    GATHERED_FOR,
    LULL,
    MAX_GATHERED_MESSAGES,
    RULES_PLACE,
    WITH_REPLY,
)
from foremind.domain.errors import Conflict, NotAuthenticated, NotFound, StorageUnavailable
from foremind.domain.relationship import relationship_id_of
from foremind.domain.turn import (
    MAX_PROMPTS,
    MAX_REPLIES,
    AnswerElsewhere,
    InForce,
    LastExchange,
    MadePrompt,
    MadeReply,
    OpenedSession,
    ReportedEvent,
    SessionTurn,
    Status,
    StoredEvent,
    StoredTurn,
    Turn,
)
from foremind.storage.companion_store import relationship_settings, without_settings
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.presence import Presence
from foremind.storage.quotas import UserQuota
from foremind.storage.relationship_store import versions_of
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.storage.user_store import TokenIdentity, find_or_create_user


class _QueryRunner(Protocol):
    async def rows(self, name: str, *args: object) -> Sequence[Any]: ...

    async def row(self, name: str, *args: object) -> Any: ...


async def read_last_exchange(
    data: _QueryRunner, relationship_id: int, session_id: UUID
) -> LastExchange | None:
    """Return the last exchange of a session; None if nothing in it was said, or remains."""
    row = await data.row("last_exchange", relationship_id, session_id)
    if row is None:
        return None
    others = await data.rows("alternative_replies", relationship_id, row["turn_id"])
    standing = (
        None
        if row["reply_id"] is None
        else MadeReply(row["position"], row["status"], row["reply"], row["created_at"])
    )
    return LastExchange(
        row["turn_id"],
        row["message_id"],
        row["text"],
        row["kept"],
        row["regenerated_by"],
        row["reply_id"],
        standing,
        [MadeReply(**dict(other)) for other in others],
    )


async def is_stored(
    data: _QueryRunner, relationship_id: int, user_id: int, message_id: str
) -> bool:
    """Return whether a message id is used in a relationship."""
    return await data.row("turn_of_message", relationship_id, user_id, message_id) is not None


class ExchangeTransaction:
    """Changes the replies to a message, within a transaction of its relationship."""

    def __init__(self, connection: DatabaseConnection, relationship_id: int, turn_id: int) -> None:
        self._connection = connection
        self._relationship_id = relationship_id
        self._turn_id = turn_id

    async def put_alternatives(self, replies: Sequence[MadeReply]) -> None:
        """Replace the replies that do not stand."""
        await self._connection.execute("delete_alternatives", self._relationship_id)
        if replies:
            await self._connection.execute(
                "insert_alternatives",
                self._relationship_id,
                self._turn_id,
                [reply.position for reply in replies],
                [reply.status for reply in replies],
                [reply.text for reply in replies],
                [reply.created_at for reply in replies],
            )

    async def untie_removed_reply(self) -> None:
        """Make room for another reply, where the one that stood was removed."""
        await self._connection.execute("untie_removed_reply", self._relationship_id, self._turn_id)

    async def note_regeneration(self, request_id: str) -> None:
        """Record which request for another reply was the last."""
        await self._connection.execute(
            "note_regeneration", self._relationship_id, self._turn_id, request_id
        )

    async def insert_reply(
        self, reply: MadeReply, *, needs_consent: bool
    ) -> tuple[int, bool] | None:
        """Store the reply that stands, kept as its message is.

        Args:
            needs_consent: whether it is kept only with the user's consent.

        Returns:
            Its turn, and whether it is kept; None if another one stands already.
        """
        row = await self._connection.row(
            "insert_standing_reply",
            self._relationship_id,
            self._turn_id,
            reply.status,
            reply.text,
            reply.created_at,
            reply.position,
            needs_consent,
        )
        return None if row is None else (row["id"], row["kept"])


ANOTHER_COMPANION = "id: expected one that is not used with another companion"
ANOTHER_TEXT = "id: expected one that is not used for another text"

#: Relationship, session, user, message id, text and time of a turn that is to be stored.
_NewTurn = tuple[int, UUID, int, str, str, datetime]
#: Which process answers it, and until when.
_Claim = tuple[int | None, datetime]
#: Whether it is kept only with consent, and what its sender's token may be revoked by.
_Terms = tuple[bool, list[str] | None, str | None, datetime | None]


class TurnStore:
    """Reads and writes sessions and turns; every call names its relationship."""

    def __init__(
        self,
        database: Database,
        presence: Presence | None = None,
        claim_duration: timedelta = timedelta(minutes=5),
        quota: UserQuota | None = None,
    ) -> None:
        """Configure how this process claims the turns that it answers.

        Args:
            presence: by which other processes know that this one is alive; without it, nothing is
                claimed.
            claim_duration: after it, another process may answer the turn.
            quota: of what users store; without it, there is no limit.
        """
        self._quota = quota
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
        lifetime: timedelta = timedelta(0),
        consent: bool | None = None,
        session_id: UUID | None = None,
        language: str | None = None,
    ) -> OpenedSession:
        """Resume the session that was active within the time it `lives`, or begin one.

        User and relationship are created if they do not exist.

        Args:
            time_zone: the IANA name of the player's time zone.
            consent: whether the user agrees to be remembered; None leaves it unchanged.
            session_id: resume this session instead, if it exists.
            language: the player's, if stated; None leaves it unchanged.

        Raises:
            StorageUnavailable: try again later.
        """
        user = await find_or_create_user(self._database, external_id, name, time_zone, language)
        try:
            row = await self._database.row(
                "open_session",
                relationship_id_of(user.id, companion_id),
                user.id,
                companion_id,
                now,
                now + lifetime,
                now - lifetime,
                consent,
                session_id,
            )
        except asyncpg.ForeignKeyViolationError:  # the user was erased meanwhile
            row = None
        if row is None:
            raise StorageUnavailable("The session could not be opened; try again shortly.")
        return OpenedSession(
            **without_settings(row), settings=relationship_settings(row), language=user.language_tag
        )

    async def continue_session(
        self, session: OpenedSession, now: datetime, lifetime: timedelta
    ) -> OpenedSession:
        """Return the session for the next turn: the latest active within `lives`, or a new one."""
        session_id = await self._database.value(
            "roll_over_session", session.relationship_id, now, lifetime
        )
        return replace(session, session_id=session_id, active_at=now)

    async def session_turns(self, relationship_id: int, session_id: UUID, limit: int) -> list[Turn]:
        """Return the last `limit` turns of a session, oldest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "session_turns", relationship_id, session_id, limit
        )
        return [Turn(**dict(row)) for row in rows]

    async def messages_before(
        self, relationship_id: int, session_id: UUID | None, limit: int
    ) -> list[str]:
        """Return the beginnings of the user's last messages before a session, newest first.

        Args:
            session_id: None for those of every session.
        """
        rows = await self._database.for_relationship(relationship_id).rows(
            "messages_before", relationship_id, session_id, limit
        )
        return [row["content"] for row in rows]

    async def recent_turns(self, relationship_id: int, limit: int) -> list[Turn]:
        """Return the last `limit` turns, oldest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "recent_turns", relationship_id, limit
        )
        return [Turn(**dict(row)) for row in rows]

    async def newest_turns(self, relationship_id: int, limit: int) -> list[SessionTurn]:
        """Return the last `limit` turns with their sessions, oldest first; erased ones, too."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "newest_turns", relationship_id, limit
        )
        return [SessionTurn(**dict(row)) for row in reversed(rows)]

    async def commit_message(
        self,
        session: OpenedSession,
        message_id: str,
        text: str,
        now: datetime,
        *,
        kept: bool = True,
        needs_consent: bool = False,
        token: TokenIdentity | None = None,
    ) -> StoredTurn:
        """Store a user's message, and that it waits to be ingested, in one transaction.

        It also tells what was in force then, by which the caller judges the reply.

        When this returns, both are on disk, or the message already was. It is ingested together
        with its reply, or without one if that takes longer.

        Args:
            kept: otherwise the turn is not ingested, and is erased after its session. A message
                that was stored before stays as it is.
            needs_consent: whether it is kept only with the user's consent.
            token: nothing is stored if it was revoked; None where there are no tokens.

        Raises:
            Conflict: the id belongs to another message.
            NotAuthenticated: the token was revoked.
            NotFound: the user was erased.
            StorageFull: the user has stored as much as one may.
        """
        if self._quota is not None:
            await self._quota.admit(session.user_id, len(text.encode()))
        relationship_id, claimed_until = session.relationship_id, now + self._claim_duration
        turn = (relationship_id, session.session_id, session.user_id, message_id, text, now)
        terms = (needs_consent, *(token or (None, None, None)))
        insert = self._insert_in_transaction if self._database.sharded else self._insert
        row = _permitted(await insert(turn, kept, (self._presence.number, claimed_until), terms))
        in_force = InForce(versions_of(row), row["state_version"], row["previous_turn_id"])
        if row["id"] is None:
            stored = await self._stored(session, message_id, text, now)
            permitted = row["consented"] or not needs_consent
            return replace(stored, kept=stored.kept and permitted, in_force=in_force)
        return StoredTurn(
            row["id"], duplicate=False, answered=False, kept=row["kept"], in_force=in_force
        )

    async def insert_message(
        self,
        connection: DatabaseConnection,
        session: OpenedSession,
        message_id: str,
        text: str,
        now: datetime,
        *,
        kept: bool = True,
        needs_consent: bool = False,
        token: TokenIdentity | None = None,
    ) -> None:
        """Store a user's message within a transaction, as `commit_message` does by itself.

        This process answers it.

        Raises:
            Conflict: the id belongs to another message.
            NotAuthenticated: the token was revoked.
            NotFound: the user was erased.
        """
        turn = (
            session.relationship_id, session.session_id, session.user_id, message_id, text, now
        )  # fmt: skip
        answering = (self._presence.number, now + self._claim_duration)
        terms = (needs_consent, *(token or (None, None, None)))
        row = _permitted(await _insert_stepwise(connection, turn, kept, answering, terms))
        if row["id"] is None:  # with this companion it was not used
            raise Conflict(ANOTHER_COMPANION, param="id")

    async def commit_reply(
        self,
        session: OpenedSession,
        reply_to: int | None,
        status: Status,
        text: str,
        now: datetime,
        *,
        ingested: bool = True,
        kept: bool = True,
        erasures: int | None = None,
        origin: str = "",
        urgent: bool = False,
        prompt: MadePrompt | None = None,
    ) -> int | None:
        """Store what the player was shown of a reply, once per turn that it answers.

        Args:
            ingested: whether the reply is ingested.
            kept: otherwise it is not ingested either, and is erased after its session.
            erasures: the number of erasures that its prompt reflects.
            origin: the window that it was made for, of which the others are told; empty for none.
            urgent: background work on the exchange waits for no lull of the conversation.
            prompt: what it was made of, stored with it unless something was removed since.

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
                ingested and kept,
                erasures,
                kept,
                urgent,
                MAX_GATHERED_MESSAGES,
                now + LULL,
                GATHERED_FOR,
                None if prompt is None else prompt.text,
                None if prompt is None else prompt.removals,
                MAX_PROMPTS,
            )
            if row is None:
                return None
            if row["alternatives"]:
                await connection.execute(
                    "delete_other_alternatives", session.relationship_id, reply_to, MAX_REPLIES - 1
                )
            turn_id = int(row["id"])
            relationship_id, session_id = session.relationship_id, session.session_id
            if origin:
                connection.announce(
                    ReplyStored(relationship_id, session_id, reply_to, turn_id, origin)
                )
            return turn_id

    async def insert_events(
        self,
        relationship_id: int,
        user_id: int,
        events: Sequence[ReportedEvent],
        now: datetime,
        *,
        needs_consent: bool,
    ) -> list[StoredEvent] | None:
        """Store what happened, and that it waits to be ingested, in one transaction.

        Args:
            user_id: the user's key in the database.
            needs_consent: whether it is stored only with the user's consent.

        Returns:
            The events in their order; None if the user has not agreed to be remembered.

        Raises:
            NotFound: there is no such relationship.
            StorageFull: the user has stored as much as one may.
            StorageUnavailable: nothing was stored; try again later, with the same ids.
        """
        if self._quota is not None:
            size = sum(len(event.text.encode()) for event in events)
            await self._quota.admit(user_id, size, len(events))
        stored: list[StoredEvent] = []
        async with RelationshipTransaction.begin(self._database, relationship_id) as transaction:
            connection = transaction.connection
            in_force = await connection.row("relationship_versions", [relationship_id])
            assert in_force is not None  # it is locked
            if needs_consent and not in_force["consented"]:
                return None
            for event in events:
                row = await connection.row(
                    "insert_event",
                    relationship_id,
                    user_id,
                    event.id,
                    event.type,
                    event.text,
                    event.at,
                )
                duplicate = row is None
                row = row or await connection.row("turn_of_event", relationship_id, event.id)
                assert row is not None  # no turn is deleted without the relationship's lock
                stored.append(StoredEvent(event.id, row["id"], duplicate))
            new = [event.turn_id for event in stored if not event.duplicate]
            await connection.execute(
                "enqueue_turns", relationship_id, "ingest", new, RULES_PLACE, now
            )
        return stored

    async def release(self, session: OpenedSession, message_id: str) -> None:
        """Release the claim on a user's message that this process did not answer."""
        await self._database.for_relationship(session.relationship_id).execute(
            "release_turn",
            session.relationship_id,
            session.user_id,
            message_id,
            self._presence.number,
        )

    async def find_answer(
        self, relationship_id: int, turn_id: int, now: datetime
    ) -> AnswerElsewhere:
        """Return the reply to a user's turn, if any, and whether a process is answering it."""
        async with self._database.transaction(relationship_id) as connection:
            row = await connection.row("answer_of_turn", relationship_id, turn_id)
            if row is None:
                return AnswerElsewhere(None, under_way=False, abandoned=False)
            under_way = await _is_answering(connection, row, now)
            abandoned = row["answering_by"] is not None and not under_way
            return AnswerElsewhere(row["reply"], under_way, abandoned)

    async def find(self, relationship_id: int, turn_id: int) -> Turn | None:
        """Return a turn of a relationship; None if it does not exist or was erased."""
        row = await self._database.for_relationship(relationship_id).row(
            "find_turn", relationship_id, turn_id
        )
        return None if row is None else Turn(**dict(row))

    async def prompt(self, relationship_id: int, turn_id: int) -> str | None:
        """Return what a reply was made of, by its turn or that of the message that it answers.

        Returns:
            None if there is no such turn; "" if what it was made of is not kept.
        """
        row = await self._database.for_relationship(relationship_id).row(
            "prompt_of_turn", relationship_id, turn_id
        )
        return None if row is None else row["prompt"] or ""

    async def remaining(self, relationship_id: int, turn_ids: Sequence[int]) -> set[int]:
        """Return which of some turns of a relationship were not erased."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "remaining_turns", relationship_id, turn_ids
        )
        return {row["id"] for row in rows}

    async def announce(self, announcement: SessionTaken) -> None:
        """Announce that a window was taken over."""
        await self._database.announce(announcement)

    async def _stored(
        self, session: OpenedSession, message_id: str, text: str, now: datetime
    ) -> StoredTurn:
        relationship_id, own = session.relationship_id, self._presence.number
        async with self._database.transaction(relationship_id) as connection:
            turn = await connection.row(
                "lock_user_turn", relationship_id, session.user_id, message_id
            )
            if turn is None:
                # Row-level security hides messages to other companions.
                raise Conflict(ANOTHER_COMPANION, param="id")
            state = await connection.row("user_turn", relationship_id, turn["id"], text)
            assert state is not None  # it is locked
            if state["differs"]:
                raise Conflict(ANOTHER_TEXT, param="id")
            if state["answered"]:
                return StoredTurn(turn["id"], True, answered=True, kept=state["kept"])
            # With the reply that is made now there may be one too many: then the earliest goes.
            alternatives = min(state["alternatives"], MAX_REPLIES - 1)
            elsewhere = state["answering_by"] != own and await _is_answering(connection, state, now)
            if not elsewhere:
                until = now + self._claim_duration
                await connection.execute("claim_turn", relationship_id, turn["id"], own, until)
            return StoredTurn(
                turn["id"], True, False, elsewhere, state["kept"], alternatives=alternatives
            )

    async def _insert(
        self, turn: _NewTurn, kept: bool, claim: _Claim, terms: _Terms
    ) -> Mapping[str, Any] | None:
        due_at = turn[-1] + WITH_REPLY
        return await self._database.row("insert_user_turn", *turn, kept, *claim, *terms, due_at)

    async def _insert_in_transaction(
        self, turn: _NewTurn, kept: bool, claim: _Claim, terms: _Terms
    ) -> Mapping[str, Any] | None:
        async with self._database.transaction(turn[0]) as connection:
            return await _insert_stepwise(connection, turn, kept, claim, terms)


def _permitted(row: Any) -> Any:
    """Return the row of a message that was to be inserted.

    Raises:
        NotAuthenticated: the token was revoked.
        NotFound: the user was erased.
    """
    if row is None:
        raise NotFound("id: this user was erased", param="id")
    if row["revoked"]:
        raise NotAuthenticated("token: revoked", param="token")
    return row


async def _insert_stepwise(
    connection: DatabaseConnection, turn: _NewTurn, kept: bool, claim: _Claim, terms: _Terms
) -> Mapping[str, Any] | None:
    """Do as `insert_user_turn` does, in several statements.

    A sharded database plans each part of a large statement by itself, which takes longer, and
    does not pass on to its workers the relationship that a statement names.
    """
    relationship_id, session_id, _, message_id, _, now = turn
    found = await connection.row(
        "turn_in_force", relationship_id, session_id, kept, *terms, message_id
    )
    if found is None or found["revoked"]:
        return found
    row = await connection.row("insert_turn", *turn, found["kept"], *claim)
    await connection.execute("keep_session_active", relationship_id, session_id, now)
    if row is not None and found["kept"]:
        await connection.execute(
            "enqueue_turn", relationship_id, row["id"], found["companion_id"], now, now + WITH_REPLY
        )
    return {**found, "id": None if row is None else row["id"]}


async def _is_answering(connection: DatabaseConnection, claim: Any, now: datetime) -> bool:
    """Return whether the process that claimed a turn is alive and has time left."""
    row = await connection.row(
        "process_is_answering", claim["answering_by"], claim["answering_until"], now
    )
    return row is not None and bool(row[0])
