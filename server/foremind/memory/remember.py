"""Remembering what a program reports, without a conversation."""

from collections.abc import Sequence
from contextlib import suppress

import structlog

from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.clock import Clock
from foremind.domain.errors import Conflict, NotFound, Overloaded, StorageUnavailable
from foremind.domain.turn import OpenedSession, ReportedEvent, StoredEvent
from foremind.memory.ingest import MemoryIngester
from foremind.storage.turn_store import TurnStore
from foremind.storage.user_store import TokenIdentity

_log = structlog.get_logger("foremind.memory")


class Rememberer:
    """Keeps a text as a memory: as if its user had said it just now, or as what happened."""

    def __init__(self, turns: TurnStore, ingester: MemoryIngester, clock: Clock) -> None:
        self._turns = turns
        self._ingester = ingester
        self._clock = clock

    async def remember(
        self,
        session: OpenedSession,
        message_id: str,
        text: str,
        *,
        needs_consent: bool,
        token: TokenIdentity | None,
    ) -> MemoryAnnouncement:
        """Store a text as a turn of its user, and its memory at once; return what it became.

        It is kept however little it would matter in a conversation. A text that repeats a memory
        becomes part of that one. The same message id again returns the same memory.

        Args:
            needs_consent: whether it is kept only with the user's consent.
            token: nothing is stored if it was revoked; None where there are no tokens.

        Raises:
            Conflict: the user has not agreed to be remembered, or the id belongs to another text.
            NotFound: it was erased meanwhile.
            NotAuthenticated: the token was revoked.
            StorageUnavailable, Overloaded: try again later, with the same id.
        """
        if needs_consent and not session.consented:
            raise _no_consent()
        turn = await self._turns.commit_message(
            session,
            message_id,
            text,
            self._clock.now(),
            needs_consent=needs_consent,
            token=token,
        )
        await self._turns.release(session, message_id)  # nobody is going to answer it
        if not turn.kept:  # withdrawn meanwhile: the turn is erased with its session
            raise _no_consent()
        stored = await self._ingester.ingest(session.relationship_id, turn.id, requested=True)
        if stored is None or stored.memory_id is None:
            raise NotFound("id: this text was erased", param="id")
        _log.info("memory.requested", memory_id=stored.memory_id)
        return stored

    async def report(
        self,
        relationship_id: int,
        user_id: int,
        events: Sequence[ReportedEvent],
        *,
        needs_consent: bool,
    ) -> list[StoredEvent]:
        """Store what happened, which nobody said, and make memories of it; all or nothing.

        An event whose id is stored changes nothing. What cannot be ingested at once is ingested
        in the background.

        Args:
            user_id: the user's key in the database.
            needs_consent: whether it is kept only with the user's consent.

        Raises:
            Conflict: the user has not agreed to be remembered.
            NotFound: the user was erased.
            StorageFull: the user has stored as much as one may.
            StorageUnavailable: nothing was stored; try again later, with the same ids.
        """
        stored = await self._turns.insert_events(
            relationship_id, user_id, events, self._clock.now(), needs_consent=needs_consent
        )
        if stored is None:
            raise _no_consent()
        with suppress(StorageUnavailable, Overloaded):
            new = [event.turn_id for event in stored if not event.duplicate]
            await self._ingester.ingest_turns(relationship_id, new)
        _log.info("events.reported", events=len(stored))
        return stored


def _no_consent() -> Conflict:
    return Conflict("user: expected one who has agreed to be remembered", param="user")
