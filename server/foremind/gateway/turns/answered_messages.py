"""Answered messages that are recognised without the database when they are sent again."""

from dataclasses import dataclass

from cachetools import LRUCache

from foremind.gateway.protocol.client_messages import MessageSend
from foremind.gateway.turns.requests import check_same_text

_MAX_ANSWERED = 256


@dataclass(frozen=True, slots=True)
class AnsweredMessage:
    """The stored turn of an answered message; `kept`: it may be remembered."""

    text_hash: int
    turn_id: int
    kept: bool


class AnsweredMessages:
    """The messages of one session that were answered last, by their ids."""

    def __init__(self) -> None:
        self._answered: LRUCache[str, AnsweredMessage] = LRUCache(_MAX_ANSWERED)

    def find(self, message: MessageSend) -> AnsweredMessage | None:
        """Return an answered message that is sent again, None if it is not known as answered.

        Raises:
            Conflict: the message with its id has another text.
        """
        answered = self._answered.get(message.id)
        if answered is not None:
            check_same_text(answered.text_hash, message.text)
        return answered

    def add(self, message: MessageSend, turn_id: int, *, kept: bool) -> None:
        """Record that a message is answered."""
        self._answered[message.id] = AnsweredMessage(hash(message.text), turn_id, kept)

    def clear(self) -> None:
        """Forget all: hashes of texts that may be erased."""
        self._answered.clear()
