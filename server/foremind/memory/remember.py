"""Remembering what a program says that a user wants to be remembered, without a conversation."""

import structlog

from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.clock import Clock
from foremind.domain.errors import Conflict, NotFound
from foremind.domain.turn import OpenedSession
from foremind.memory.ingest import MemoryIngester
from foremind.storage.revocation_store import TokenIdentity
from foremind.storage.turn_store import TurnStore

_log = structlog.get_logger("foremind.memory")


class Rememberer:
    """Keeps a text as a memory, as if its user had said it in the session that goes on."""

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


def _no_consent() -> Conflict:
    return Conflict("user: expected one who has agreed to be remembered", param="user")
