"""Deduplication of messages that several connections of this process send."""

import asyncio

from foremind.domain.errors import Conflict
from foremind.gateway.transport.enter_precedence import EnterPrecedence
from foremind.storage.turn_store import ANOTHER_COMPANION, ANOTHER_TEXT


class MessageClaim:
    """That one connection answers a message; others that sent it wait for it.

    Args:
        key: the user and the id of the message.
    """

    def __init__(self, key: tuple[int, str], relationship_id: int, text: str) -> None:
        loop = asyncio.get_running_loop()
        self.key = key
        self._relationship_id = relationship_id
        self._text_hash = hash(text)
        #: Whether its message was stored a moment before, in place of another one.
        self.stored_before = False
        #: Whether the stored message may be remembered.
        self.kept = True
        #: Whether the connection was told that the message is stored.
        self.accepted = False
        #: Resolved once the message is stored: its turn id, None if it could not be stored.
        self.stored: asyncio.Future[int | None] = loop.create_future()
        #: Resolved at the end: the turn id of the reply, None if there is none.
        self.replied: asyncio.Future[int | None] = loop.create_future()

    def check_same(self, relationship_id: int, text: str) -> None:
        """Check that a message with the same id is the same message.

        Raises:
            Conflict: its companion or its text differs.
        """
        if relationship_id != self._relationship_id:
            raise Conflict(ANOTHER_COMPANION, param="id")
        if hash(text) != self._text_hash:
            raise Conflict(ANOTHER_TEXT, param="id")


class Deduplicator:
    """The claimed messages by user and message id, so that one connection answers each.

    Until a message is stored, `precedence` holds back what can wait.
    """

    def __init__(self, precedence: EnterPrecedence) -> None:
        self.precedence = precedence
        self._claims: dict[tuple[int, str], MessageClaim] = {}

    def find(self, user_id: int, message_id: str) -> MessageClaim | None:
        """Return the claim of a message, if a connection is answering it."""
        return self._claims.get((user_id, message_id))

    def claim(self, user_id: int, message_id: str, relationship_id: int, text: str) -> MessageClaim:
        """Register a message that the caller is going to answer."""
        key = (user_id, message_id)
        claim = self._claims[key] = MessageClaim(key, relationship_id, text)
        self.precedence.hold_until(claim.stored)
        return claim

    def release(self, claim: MessageClaim, reply_turn: int | None) -> None:
        """Remove a claim and resolve its futures, unless that is done.

        Args:
            reply_turn: the turn id of the reply, None if there is none.
        """
        if claim.replied.done():
            return
        del self._claims[claim.key]
        if not claim.stored.done():
            claim.stored.set_result(None)
        claim.replied.set_result(reply_turn)
