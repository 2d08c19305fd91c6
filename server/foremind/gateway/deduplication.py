"""Deduplication of messages that several connections of this process send."""

import asyncio
from typing import Literal

from foremind.domain.errors import Conflict
from foremind.gateway.transport.enter_precedence import EnterPrecedence
from foremind.storage.turn_store import ANOTHER_COMPANION, ANOTHER_TEXT

#: What a client waits for: the answer to a message that is sent or edited, another reply, or its
#: choice; with the client's id of that, each kind having ids of its own.
RequestKey = tuple[Literal["message", "regenerate", "choose"], str]


class TurnInProgress:
    """A message that is being answered; other connections that sent it wait for it."""

    def __init__(self, relationship_id: int, text: str) -> None:
        loop = asyncio.get_running_loop()
        self._relationship_id = relationship_id
        self._text_hash = hash(text)
        #: What the connection that answers it waits for.
        self.key: RequestKey = ("message", "")
        #: Whether another process is answering it and this one only waits.
        self.elsewhere = False
        #: Whether its message was stored a moment before, in place of another one.
        self.stored_before = False
        #: Whether the stored message may be remembered.
        self.kept = True
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
    """Messages in progress by user and message id, so that one connection answers each.

    Until a message is stored, `precedence` holds back what can wait.
    """

    def __init__(self, precedence: EnterPrecedence) -> None:
        self.precedence = precedence
        self._in_progress: dict[tuple[int, str], TurnInProgress] = {}

    def find(self, user_id: int, message_id: str) -> TurnInProgress | None:
        """Return the turn in progress for a message, if there is one."""
        return self._in_progress.get((user_id, message_id))

    def begin(
        self, user_id: int, message_id: str, relationship_id: int, text: str
    ) -> TurnInProgress:
        """Register a message that the caller is going to answer."""
        turn = self._in_progress[user_id, message_id] = TurnInProgress(relationship_id, text)
        self.precedence.hold_until(turn.stored)
        return turn

    def end(self, user_id: int, message_id: str, reply_turn: int | None) -> None:
        """Remove a message and resolve its futures."""
        turn = self._in_progress.pop((user_id, message_id))
        if not turn.stored.done():
            turn.stored.set_result(None)
        turn.replied.set_result(reply_turn)
