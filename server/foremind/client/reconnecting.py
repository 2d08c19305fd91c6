"""A conversation that outlives its connections: it reconnects, resumes, and sends until sure."""

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Self

from foremind.client.socket_client import Client, Closed, Event, connect, state_patch
from foremind.client.token_source import Token, fetch_token, renewal_delay

MERGE_S = 0.05  # what the protocol allows a client to hold keystrokes back

_FIRST_RETRY_S, _LAST_RETRY_S = 0.25, 15.0
_OPEN_S = 30.0  # for the first session to be opened
_FINAL_CODES = frozenset({4400, 4403, 4409})  # do not reconnect after these
_NOT_AUTHENTICATED = 4401
_MOST_REFUSALS = 3  # fresh tokens that may be refused in a row
_AGAIN_S = 1.0  # after an error that says to come back
_MOST_UNACCEPTED = 16
_MOST_EVENTS = 1024  # that wait to be read; the oldest go first

_log = logging.getLogger("foremind.client")


class Unreachable(ConnectionError):
    """No session could be opened in time; the text says why the last attempt failed."""


class Refused(Exception):
    """The server will not do what was asked; `error` is what it said."""

    def __init__(self, error: Event) -> None:
        super().__init__(error["message"])
        self.error = error


@dataclass(slots=True)
class _PendingMessage:
    text: str
    accepted: "asyncio.Future[Event]"
    done: "asyncio.Future[Event]"
    again: asyncio.TimerHandle | None = None

    def refuse(self, error: Exception) -> None:
        """Tell whoever waits that nothing will come of it; nobody need."""
        for each in (self.accepted, self.done):
            if not each.done():
                each.set_exception(error)
                each.exception()  # taken note of, so that nothing is logged for it


@dataclass(slots=True)
class _Draft:
    text: str | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Undelivered:
    """What goes on, as far as the server has not said that it knows; `id` of the last telling."""

    patch: dict[str, Any]
    id: str


@dataclass(frozen=True, slots=True)
class Identity:
    """With whom a conversation is, and whose: a token (or what gets one), or a named user.

    A function that gets a token is called for every connection, and again when most of a token's
    life is over. Where it fails it is called again, like a connection that cannot be made.
    """

    companion: str
    user_id: str | None = None
    name: str | None = None
    token: Token | None = None
    time_zone: str | None = None


class Conversation:
    """One player with one companion, for as long as the block lasts.

    Example:
        >>> async with Conversation(url, Who("wren", user_id="u1", name="Ana")) as mind:
        ...     mind.type("What did I")  # on every keystroke
        ...     reply = await mind.say("What did I promise?")
        ...     print(reply["text"])

    Args:
        url: `ws://HOST:PORT/v1/ws`.
        first_retry_s: longest wait before the first attempt to reconnect; doubles up to 15 s.
        open_timeout_s: longest wait for the first session; None waits for ever.
        lost: told each time that a connection ended or could not be made, and why; by default that
            is logged as a warning.

    Raises:
        Unreachable: on entering, no session could be opened in time.
        Refused: on entering, the server will not open a session.
        Closed: on entering, the server said not to reconnect.
    """

    def __init__(
        self,
        url: str,
        who: Identity,
        *,
        first_retry_s: float = _FIRST_RETRY_S,
        open_timeout_s: float | None = _OPEN_S,
        lost: Callable[[Exception], None] | None = None,
    ) -> None:
        self._url = url
        self._who = who
        self._first_retry_s = first_retry_s
        self._open_timeout_s = open_timeout_s
        self._tell_lost = _log_lost if lost is None else lost
        self._last_loss: Exception | None = None
        self._refusals = 0  # of fresh tokens, since a session was opened
        self._renewal: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        #: How often it was connected.
        self.connections = 0
        self._client: Client | None = None
        self._session: str | None = None
        self._seq = 0
        self._unanswered: dict[str, _PendingMessage] = {}
        self._replies: dict[str, str] = {}  # response id -> message id, while it is spoken
        self._draft = _Draft()
        self._untold: _Undelivered | None = None
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(_MOST_EVENTS)  # None: no more
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._stay_connected(), name="conversation")
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait(
                {self._task, opened},
                timeout=self._open_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not self._opened.is_set():
                if self._task.done():
                    self._task.result()
                why = self._last_loss or "the server does not answer"
                self._failure = Unreachable(
                    f"No session was opened in {self._open_timeout_s:g} s: {why}"
                )
                raise self._failure
        except BaseException:
            await self.__aexit__()
            raise
        finally:
            opened.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._forget_draft()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # whoever waited was told
        for sent in self._unanswered.values():
            if sent.again is not None:
                sent.again.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)

    def type(self, text: str) -> None:
        """Tell the whole draft as it now stands; keystrokes within 50 ms are merged."""
        self._draft.text = text
        if self._draft.timer is None:
            loop = asyncio.get_running_loop()
            self._draft.timer = loop.call_later(MERGE_S, self._send_draft)

    def say(self, text: str, message_id: str | None = None) -> "asyncio.Future[Event]":
        """Press Enter; await `response.done`, however often the connection is lost meanwhile.

        Where the reply was over before this client asked, it is `message.accepted` again.

        Raises:
            OverflowError: too many messages wait for their answer.
            Refused: awaited, the server will never take it.
            Closed: awaited, the server said not to come back.
        """
        return self._sent(text, message_id).done

    def send(self, text: str, message_id: str | None = None) -> "asyncio.Future[Event]":
        """Press Enter; await `message.accepted`: it is stored. Raises as `say` does."""
        return self._sent(text, message_id).accepted

    def set_state(self, task: str | None = None, flags: dict[str, Any] | None = None) -> None:
        """Tell what goes on in the session: what is not given stays, a flag of None goes.

        It holds for what is sent after it, and is told again after a lost connection until the
        server knows.

        Args:
            task: what is to be done now; empty, nothing is.
        """
        patch = state_patch(task, flags)
        if self._untold is not None:
            before = self._untold.patch
            patch = {**before, **patch, "flags": {**before.get("flags", {}), **(flags or {})}}
        self._untold = _Undelivered(patch, uuid.uuid4().hex)
        self._tell_state()

    def cancel(self, response_id: str) -> None:
        """Stop a reply."""
        self._write({"type": "response.cancel", "response_id": response_id})

    async def events(self) -> AsyncIterator[Event]:
        """Yield every event, once and in order; what waits too long to be read is dropped.

        Raises:
            Refused: the server will not open a session.
            Closed: the server said not to come back.
        """
        while (event := await self._events.get()) is not None:
            yield event
        if self._failure is not None:
            raise self._failure

    def _sent(self, text: str, message_id: str | None) -> _PendingMessage:
        message_id = message_id or uuid.uuid4().hex
        known = self._unanswered.get(message_id)
        if known is not None:
            return known
        if len(self._unanswered) >= _MOST_UNACCEPTED:
            raise OverflowError(f"at most {_MOST_UNACCEPTED} messages may wait for their answer")
        self._forget_draft()
        loop = asyncio.get_running_loop()
        sent = _PendingMessage(text, loop.create_future(), loop.create_future())
        if self._failure is not None:
            sent.refuse(self._failure)
            return sent
        self._unanswered[message_id] = sent
        self._submit(message_id)
        return sent

    async def _stay_connected(self) -> None:
        attempt = 0
        try:
            while True:
                before = self.connections
                try:
                    await self._serve_connection()
                except (Closed, OSError) as error:
                    if self._is_final(error):
                        raise
                    self._last_loss = error
                    self._tell_lost(error)
                attempt = 0 if self.connections > before else attempt + 1
                longest = min(_LAST_RETRY_S, self._first_retry_s * 2**attempt)
                # Full jitter: clients that lost the same server do not come back at once.
                await asyncio.sleep(random.uniform(0, longest))  # noqa: S311
        except Exception as error:  # whatever it is, nobody may wait for ever
            self._failure = error
            for sent in self._unanswered.values():
                sent.refuse(error)
            self._keep(None)
            raise

    async def _serve_connection(self) -> None:
        token = await fetch_token(self._who.token)  # first: the server waits only so long for it
        async with connect(self._url) as client:
            await self._open(client, token)
            try:
                while True:
                    self._received(await client.next_event())
            finally:
                self._client = None
                if self._renewal is not None:
                    self._renewal.cancel()
                    await asyncio.wait({self._renewal})

    def _is_final(self, error: Exception) -> bool:
        """Tell whether it would be the same again: a fresh token may do what an old one did not."""
        if not isinstance(error, Closed):
            return False
        if error.code != _NOT_AUTHENTICATED:
            return error.code in _FINAL_CODES
        self._refusals += 1
        return not callable(self._who.token) or self._refusals >= _MOST_REFUSALS

    async def _open(self, client: Client, token: str | None) -> None:
        opened = await client.open_session(
            self._who.companion,
            user_id=self._who.user_id,
            name=self._who.name,
            token=token,
            time_zone=self._who.time_zone,
            resume=None if self._session is None else (self._session, self._seq),
        )
        if opened["type"] == "error":
            error = opened["error"]
            # What is wrong with a token is told by the close code that follows.
            if error["code"] == "not_authenticated":
                await client.next_event()
            if error["retryable"]:
                raise ConnectionError(error["message"])
            raise Refused(error)
        self._session, self._seq, self._client = opened["session_id"], opened["seq"], client
        self._refusals = 0
        self.connections += 1
        self._opened.set()
        self._keep(opened)
        if callable(self._who.token) and token is not None:
            self._renewal = asyncio.create_task(self._renew(client, token), name="token-renewal")
        self._tell_state()
        for message_id in self._unanswered:
            self._submit(message_id)

    async def _renew(self, client: Client, token: str) -> None:
        """Give the session a fresh token before the one that it has expires."""
        while (delay := renewal_delay(token, time.time())) is not None:
            await asyncio.sleep(delay)
            try:
                token = await fetch_token(self._who.token) or token
                await client.send_raw({"type": "session.update", "token": token})
            except (Closed, OSError) as error:  # the next connection gets one of its own
                self._tell_lost(error)
                return

    def _received(self, event: Event) -> None:
        self._seq = event["seq"]
        self._keep(event)
        match event:
            case {"type": "message.accepted", "id": message_id}:
                self._accepted(message_id, event)
            case {"type": "response.created"}:
                self._replies[event["response_id"]] = event["message_id"]
            case {"type": "response.done", "response_id": response_id}:
                self._answered(self._replies.pop(response_id, ""), event)
            case {"type": "session.updated", "event_id": str(event_id)}:
                self._told_state(event_id)
            case {"type": "error", "error": error}:
                self._failed(error)

    def _accepted(self, message_id: str, event: Event) -> None:
        sent = self._unanswered.get(message_id)
        if sent is None:
            return
        if not sent.accepted.done():
            sent.accepted.set_result(event)
        if event["duplicate"]:
            # Mostly it was answered before: what was said then is among the turns.
            asyncio.get_running_loop().call_later(_AGAIN_S, self._unspoken, message_id, event)

    def _unspoken(self, message_id: str, accepted: Event) -> None:
        """Take a message as answered where no reply to it has begun."""
        if message_id not in self._replies.values():
            self._answered(message_id, accepted)

    def _answered(self, message_id: str, event: Event) -> None:
        sent = self._unanswered.pop(message_id, None)
        if sent is not None and not sent.done.done():
            if not sent.accepted.done():
                sent.accepted.set_result(event)
            sent.done.set_result(event)

    def _tell_state(self) -> None:
        if self._untold is not None:
            self._write(
                {"type": "session.update", "state": self._untold.patch,
                 "event_id": self._untold.id}
            )  # fmt: skip

    def _told_state(self, event_id: str) -> None:
        if self._untold is not None and self._untold.id == event_id:
            self._untold = None

    def _failed(self, error: Event) -> None:
        if not error["retryable"]:
            self._told_state(error["event_id"] or "")
        sent = self._unanswered.get(error["event_id"] or "")
        if sent is None:
            return
        if error["retryable"]:
            loop = asyncio.get_running_loop()
            sent.again = loop.call_later(_AGAIN_S, self._submit, error["event_id"])
            return
        del self._unanswered[error["event_id"]]
        sent.refuse(Refused(error))

    def _submit(self, message_id: str) -> None:
        sent = self._unanswered.get(message_id)
        if sent is not None:
            # The event id of a message is its own, so that an error can be told to be about it.
            self._write(
                {"type": "message.send", "id": message_id, "text": sent.text,
                 "event_id": message_id}
            )  # fmt: skip

    def _send_draft(self) -> None:
        text = self._draft.text
        self._forget_draft()
        if text is not None:
            self._write({"type": "draft.update", "text": text})

    def _forget_draft(self) -> None:
        if self._draft.timer is not None:
            self._draft.timer.cancel()
        self._draft = _Draft()

    def _keep(self, event: Event | None) -> None:
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(event)

    def _write(self, message: dict[str, Any]) -> None:
        if self._client is None:
            return
        task = asyncio.create_task(self._write_to(self._client, message))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_to(self, client: Client, message: dict[str, Any]) -> None:
        with contextlib.suppress(Closed, OSError):  # it is sent again where that matters
            await client.send_raw(message)


def _log_lost(error: Exception) -> None:
    _log.warning("The connection is lost and will be made again: %s", error)
