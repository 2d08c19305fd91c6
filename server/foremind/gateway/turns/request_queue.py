"""The requests of one session: those that wait for their end, and messages answered lately."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from cachetools import LRUCache

from fair_transport import Precedence
from foremind.domain.errors import Conflict, Overloaded
from foremind.domain.policy import Policy
from foremind.gateway.flow_control import MAX_WAITING_MESSAGES
from foremind.gateway.protocol.client_messages import MessageSend
from foremind.runtime.supervision import begin
from foremind.storage.turn_store import ANOTHER_COMPANION, ANOTHER_TEXT

_STOP_AGAIN_S = 0.05  # at the end: the next reply may have begun meanwhile
_MAX_ANSWERED = 256

#: What a client waits for: the answer to a message that is sent or edited, another reply, or its
#: choice; with the client's id of that, each kind having ids of its own.
RequestKey = tuple[Literal["message", "regenerate", "choose"], str]


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message that is to be answered.

    Attributes:
        policy: the settings in force for its turn when it arrived.
        arrived: the monotonic time at which it did.
        key: the request that it is answered for.
    """

    message: MessageSend
    policy: Policy
    arrived: float
    key: RequestKey


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that waits for its end; `text_hash` is that of the message it sends, if any."""

    task: "asyncio.Task[None]"
    text_hash: int | None = None


class RequestQueue:
    """Requests in progress; at most `MAX_WAITING_MESSAGES`, in the order in which they came."""

    def __init__(self) -> None:
        #: Held while a message is answered here, or the last exchange changed.
        self.one_at_a_time = asyncio.Lock()
        self._waiting: dict[RequestKey, _Waiting] = {}
        #: Those of the waiting requests that another connection answers.
        self._following: set[RequestKey] = set()
        self._newest: RequestKey | None = None  # the request that was made last

    @property
    def busy(self) -> bool:
        """True while a request waits."""
        return bool(self._waiting)

    @property
    def newer_waiting(self) -> bool:
        """Whether another message waits to be answered here, besides the one that is."""
        return len(self._waiting) - len(self._following) > 1

    def check_room(self, param: str) -> None:
        """Check that one more request may wait.

        Args:
            param: the field that an error names.

        Raises:
            Overloaded: too many messages of this session are unanswered.
        """
        if len(self._waiting) >= MAX_WAITING_MESSAGES:
            raise Overloaded(
                f"At most {MAX_WAITING_MESSAGES} messages may be unanswered.", param=param
            )

    def contains(self, key: RequestKey, text: str | None = None) -> bool:
        """Return whether a request is in progress.

        Args:
            text: that of the message that it sends, if any.

        Raises:
            Conflict: it sends another text.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        if waiting.text_hash is not None and text is not None:
            _check_same_text(waiting.text_hash, text)
        return True

    def is_newest(self, key: RequestKey) -> bool:
        """Return whether no request was made after one."""
        return self._newest == key

    def start(
        self, key: RequestKey, work: Coroutine[Any, Any, None], name: str, text: str | None = None
    ) -> None:
        """Begin the work of a request, which waits until that ends.

        Args:
            name: that of the task.
            text: that of the message that it sends, if any.
        """
        task = begin(work, name)
        self._newest = key
        self._waiting[key] = _Waiting(task, None if text is None else hash(text))
        task.add_done_callback(lambda task: self.end(key, task))

    def end(self, key: RequestKey, task: "asyncio.Task[None] | None") -> None:
        """End the wait of a request; from here on it may be made again."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.task is task:  # otherwise it was sent again meanwhile
            del self._waiting[key]
            self._following.discard(key)

    def follow(self, key: RequestKey) -> None:
        """Record that another connection answers a request: later ones need not wait for it."""
        self._following.add(key)

    def unfollow(self, key: RequestKey) -> None:
        """Record that a request is answered here after all."""
        self._following.discard(key)

    async def settle(self) -> None:
        """Wait until every request has ended."""
        while self._waiting:
            await asyncio.wait(self._tasks())

    async def close(self, stop_reply: Callable[[], None]) -> None:
        """Follow no longer, and have every reply stopped until each request has ended."""
        for key in self._following:
            self._waiting[key].task.cancel()
        while self._waiting:
            stop_reply()
            await asyncio.wait(self._tasks(), timeout=_STOP_AGAIN_S)

    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [waiting.task for waiting in self._waiting.values()]


@dataclass(frozen=True, slots=True)
class _AnsweredMessage:
    """The stored turn of an answered message; `kept`: it may be remembered."""

    text_hash: int
    turn_id: int
    kept: bool


class AnsweredMessages:
    """The messages of one session that were answered last, by their ids."""

    def __init__(self) -> None:
        self._answered: LRUCache[str, _AnsweredMessage] = LRUCache(_MAX_ANSWERED)

    def find(self, message: MessageSend) -> _AnsweredMessage | None:
        """Return an answered message that is sent again, None if it is not known as answered.

        Raises:
            Conflict: the message with its id has another text.
        """
        answered = self._answered.get(message.id)
        if answered is not None:
            _check_same_text(answered.text_hash, message.text)
        return answered

    def add(self, message: MessageSend, turn_id: int, *, kept: bool) -> None:
        """Record that a message is answered."""
        self._answered[message.id] = _AnsweredMessage(hash(message.text), turn_id, kept)

    def clear(self) -> None:
        """Forget all: hashes of texts that may be erased."""
        self._answered.clear()


def _check_same_text(text_hash: int, text: str) -> None:
    """Check that a message sent again has the same text.

    Raises:
        Conflict: it has not.
    """
    if text_hash != hash(text):
        raise Conflict(ANOTHER_TEXT, param="id")


class MessageClaim:
    """The claim of one connection to answer a message; others that sent it wait for that.

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

    def __init__(self, precedence: Precedence) -> None:
        self._precedence = precedence
        self._claims: dict[tuple[int, str], MessageClaim] = {}

    def find(self, user_id: int, message_id: str) -> MessageClaim | None:
        """Return the claim of a message, if a connection is answering it."""
        return self._claims.get((user_id, message_id))

    def claim(self, user_id: int, message_id: str, relationship_id: int, text: str) -> MessageClaim:
        """Register a message that the caller is going to answer."""
        key = (user_id, message_id)
        claim = self._claims[key] = MessageClaim(key, relationship_id, text)
        self._precedence.hold_until(claim.stored)
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
