"""A conversation that outlives its connections: it reconnects, resumes, and resends messages."""

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

MERGE_S = 0.05  # keystrokes may be merged for this long, by the protocol

_FIRST_RETRY_S, _LAST_RETRY_S = 0.25, 15.0
_OPEN_TIMEOUT_S = 30.0
_FINAL_CODES = frozenset({4400, 4403, 4409})  # do not reconnect after these
_NOT_AUTHENTICATED = 4401
_MAX_TOKEN_REFUSALS = 3  # of fresh tokens in a row
_RESEND_S = 1.0  # delay after a retryable error
_MAX_UNANSWERED = 16
_MAX_EVENTS = 1024  # unread; the oldest are dropped first

_log = logging.getLogger("foremind.client")


class Unreachable(ConnectionError):
    """No session could be opened in time; the message says why the last attempt failed."""


class Refused(Exception):
    """The server refused for good; `error` is its error object."""

    def __init__(self, error: Event) -> None:
        super().__init__(error["message"])
        self.error = error


@dataclass(slots=True)
class _PendingMessage:
    text: str
    accepted: "asyncio.Future[Event]"
    done: "asyncio.Future[Event]"
    resend_timer: asyncio.TimerHandle | None = None

    def refuse(self, error: Exception) -> None:
        """Fail both futures, whether or not anybody awaits them."""
        for future in (self.accepted, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marked as retrieved, so that asyncio does not log it


@dataclass(slots=True)
class _Draft:
    text: str | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _UnconfirmedState:
    """Session state that the server has not confirmed; `id` is the event id of the last update."""

    patch: dict[str, Any]
    id: str


@dataclass(frozen=True, slots=True)
class Identity:
    """The companion, and the user: by a token or a function that gets one, or by id and name.

    The function is called for every connection, and when most of a token's lifetime is over. Its
    failures are retried like failed connections.
    """

    companion: str
    user_id: str | None = None
    name: str | None = None
    token: Token | None = None
    time_zone: str | None = None


class Conversation:
    """One player with one companion, for as long as the block lasts.

    Example:
        >>> async with Conversation(url, Identity("wren", user_id="u1", name="Ana")) as wren:
        ...     wren.type("What did I")  # on every keystroke
        ...     reply = await wren.say("What did I promise?")
        ...     print(reply["text"])

    Args:
        url: `ws://HOST:PORT/v1/ws`.
        first_retry_s: maximum delay before the first attempt to reconnect; doubles up to 15 s.
        open_timeout_s: how long to wait for the first session; None waits for ever.
        lost: called with the error whenever a connection ends or cannot be made; by default, it is
            logged as a warning.

    Raises:
        Unreachable: on entering, no session could be opened in time.
        Refused: on entering, the server refused to open a session.
        Closed: on entering, the server closed with a code after which clients must not reconnect.
    """

    def __init__(
        self,
        url: str,
        identity: Identity,
        *,
        first_retry_s: float = _FIRST_RETRY_S,
        open_timeout_s: float | None = _OPEN_TIMEOUT_S,
        lost: Callable[[Exception], None] | None = None,
    ) -> None:
        self._url = url
        self._identity = identity
        self._first_retry_s = first_retry_s
        self._open_timeout_s = open_timeout_s
        self._on_lost = _log_lost if lost is None else lost
        self._last_loss: Exception | None = None
        self._token_refusals = 0  # since a session was opened
        self._renewal: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        #: The number of sessions opened or resumed.
        self.connections = 0
        self._client: Client | None = None
        self._session: str | None = None
        self._seq = 0
        self._unanswered: dict[str, _PendingMessage] = {}
        self._replies: dict[str, str] = {}  # response id -> message id, of replies in progress
        self._draft = _Draft()
        self._unconfirmed_state: _UnconfirmedState | None = None
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(_MAX_EVENTS)  # None ends them
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[None]] = set()

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
                reason = self._last_loss or "the server does not answer"
                self._failure = Unreachable(
                    f"No session was opened in {self._open_timeout_s:g} s: {reason}"
                )
                raise self._failure
        except BaseException:
            await self.__aexit__()
            raise
        finally:
            opened.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop_draft()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # marked as retrieved
        for sent in self._unanswered.values():
            if sent.resend_timer is not None:
                sent.resend_timer.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)

    def type(self, text: str) -> None:
        """Send the whole draft, on every keystroke; keystrokes within 50 ms are merged."""
        self._draft.text = text
        if self._draft.timer is None:
            loop = asyncio.get_running_loop()
            self._draft.timer = loop.call_later(MERGE_S, self._send_draft)

    def say(self, text: str, message_id: str | None = None) -> "asyncio.Future[Event]":
        """Send a message; the future is its `response.done`, across lost connections.

        If the message was answered before, the future is another `message.accepted`.

        Raises:
            OverflowError: too many messages wait for their answer.
            Refused: when awaited, the server refused the message.
            Closed: when awaited, the server closed the conversation for good.
        """
        return self._enqueue(text, message_id).done

    def send(self, text: str, message_id: str | None = None) -> "asyncio.Future[Event]":
        """Send a message; the future is its `message.accepted`: it is stored. Raises as `say`."""
        return self._enqueue(text, message_id).accepted

    def set_state(self, task: str | None = None, flags: dict[str, Any] | None = None) -> None:
        """Change the session state; parts that are not given stay.

        It applies to messages sent later, and is resent after a lost connection until the server
        confirms it.

        Args:
            task: the current task; empty for none.
            flags: flags to set; None removes a flag.
        """
        patch = state_patch(task, flags)
        if self._unconfirmed_state is not None:
            before = self._unconfirmed_state.patch
            patch = {**before, **patch, "flags": {**before.get("flags", {}), **(flags or {})}}
        self._unconfirmed_state = _UnconfirmedState(patch, uuid.uuid4().hex)
        self._send_state()

    def cancel(self, response_id: str) -> None:
        """Stop a reply."""
        self._write({"type": "response.cancel", "response_id": response_id})

    async def events(self) -> AsyncIterator[Event]:
        """Yield every event once and in order; of too many unread ones, the oldest are dropped.

        Raises:
            Refused: the server refused to open a session.
            Closed: the server closed the conversation for good.
        """
        while (event := await self._events.get()) is not None:
            yield event
        if self._failure is not None:
            raise self._failure

    def _enqueue(self, text: str, message_id: str | None) -> _PendingMessage:
        message_id = message_id or uuid.uuid4().hex
        known = self._unanswered.get(message_id)
        if known is not None:
            return known
        if len(self._unanswered) >= _MAX_UNANSWERED:
            raise OverflowError(f"at most {_MAX_UNANSWERED} messages may wait for their answer")
        self._drop_draft()
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
                    self._on_lost(error)
                attempt = 0 if self.connections > before else attempt + 1
                max_delay_s = min(_LAST_RETRY_S, self._first_retry_s * 2**attempt)
                # Full jitter: clients of a failed server do not all reconnect at once.
                await asyncio.sleep(random.uniform(0, max_delay_s))  # noqa: S311
        except Exception as error:  # no future may stay pending
            self._failure = error
            for sent in self._unanswered.values():
                sent.refuse(error)
            self._queue_event(None)
            raise

    async def _serve_connection(self) -> None:
        token = await fetch_token(
            self._identity.token
        )  # first, as an open connection would time out
        async with connect(self._url) as client:
            await self._open(client, token)
            try:
                while True:
                    self._on_event(await client.next_event())
            finally:
                self._client = None
                if self._renewal is not None:
                    self._renewal.cancel()
                    await asyncio.wait({self._renewal})

    def _is_final(self, error: Exception) -> bool:
        """Return whether reconnecting is pointless; after a refused token, a fresh one may work."""
        if not isinstance(error, Closed):
            return False
        if error.code != _NOT_AUTHENTICATED:
            return error.code in _FINAL_CODES
        self._token_refusals += 1
        return not callable(self._identity.token) or self._token_refusals >= _MAX_TOKEN_REFUSALS

    async def _open(self, client: Client, token: str | None) -> None:
        opened = await client.open_session(
            self._identity.companion,
            user_id=self._identity.user_id,
            name=self._identity.name,
            token=token,
            time_zone=self._identity.time_zone,
            resume=None if self._session is None else (self._session, self._seq),
        )
        if opened["type"] == "error":
            error = opened["error"]
            # The close code that follows says whether to reconnect.
            if error["code"] == "not_authenticated":
                await client.next_event()
            if error["retryable"]:
                raise ConnectionError(error["message"])
            raise Refused(error)
        self._session, self._seq, self._client = opened["session_id"], opened["seq"], client
        self._token_refusals = 0
        self.connections += 1
        self._opened.set()
        self._queue_event(opened)
        if callable(self._identity.token) and token is not None:
            self._renewal = asyncio.create_task(self._renew(client, token), name="token-renewal")
        self._send_state()
        for message_id in self._unanswered:
            self._submit(message_id)

    async def _renew(self, client: Client, token: str) -> None:
        """Update the session's token before it expires."""
        while (delay := renewal_delay(token, time.time())) is not None:
            await asyncio.sleep(delay)
            try:
                token = await fetch_token(self._identity.token) or token
                await client.send_raw({"type": "session.update", "token": token})
            except (Closed, OSError) as error:  # the next connection gets a token of its own
                self._on_lost(error)
                return

    def _on_event(self, event: Event) -> None:
        self._seq = event["seq"]
        self._queue_event(event)
        match event:
            case {"type": "message.accepted", "id": message_id}:
                self._on_accepted(message_id, event)
            case {"type": "response.created"}:
                self._replies[event["response_id"]] = event["message_id"]
            case {"type": "response.done", "response_id": response_id}:
                self._on_answered(self._replies.pop(response_id, ""), event)
            case {"type": "session.updated", "event_id": str(event_id)}:
                self._confirm_state(event_id)
            case {"type": "error", "error": error}:
                self._on_error(error)

    def _on_accepted(self, message_id: str, event: Event) -> None:
        sent = self._unanswered.get(message_id)
        if sent is None:
            return
        if not sent.accepted.done():
            sent.accepted.set_result(event)
        if event["duplicate"]:
            # Usually it was answered before, and the reply is among the turns.
            loop = asyncio.get_running_loop()
            loop.call_later(_RESEND_S, self._resolve_unless_replying, message_id, event)

    def _resolve_unless_replying(self, message_id: str, accepted: Event) -> None:
        """Count a message as answered if no reply to it has begun."""
        if message_id not in self._replies.values():
            self._on_answered(message_id, accepted)

    def _on_answered(self, message_id: str, event: Event) -> None:
        sent = self._unanswered.pop(message_id, None)
        if sent is not None and not sent.done.done():
            if not sent.accepted.done():
                sent.accepted.set_result(event)
            sent.done.set_result(event)

    def _send_state(self) -> None:
        if self._unconfirmed_state is not None:
            self._write(
                {"type": "session.update", "state": self._unconfirmed_state.patch,
                 "event_id": self._unconfirmed_state.id}
            )  # fmt: skip

    def _confirm_state(self, event_id: str) -> None:
        if self._unconfirmed_state is not None and self._unconfirmed_state.id == event_id:
            self._unconfirmed_state = None

    def _on_error(self, error: Event) -> None:
        if not error["retryable"]:
            self._confirm_state(error["event_id"] or "")
        sent = self._unanswered.get(error["event_id"] or "")
        if sent is None:
            return
        if error["retryable"]:
            loop = asyncio.get_running_loop()
            sent.resend_timer = loop.call_later(_RESEND_S, self._submit, error["event_id"])
            return
        del self._unanswered[error["event_id"]]
        sent.refuse(Refused(error))

    def _submit(self, message_id: str) -> None:
        sent = self._unanswered.get(message_id)
        if sent is not None:
            # The message id is also the event id, so that errors can be matched.
            self._write(
                {"type": "message.send", "id": message_id, "text": sent.text,
                 "event_id": message_id}
            )  # fmt: skip

    def _send_draft(self) -> None:
        text = self._draft.text
        self._drop_draft()
        if text is not None:
            self._write({"type": "draft.update", "text": text})

    def _drop_draft(self) -> None:
        if self._draft.timer is not None:
            self._draft.timer.cancel()
        self._draft = _Draft()

    def _queue_event(self, event: Event | None) -> None:
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(event)

    def _write(self, message: dict[str, Any]) -> None:
        if self._client is None:
            return
        task = asyncio.create_task(self._write_to(self._client, message))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write_to(self, client: Client, message: dict[str, Any]) -> None:
        with contextlib.suppress(Closed, OSError):  # messages and state are resent
            await client.send_raw(message)


def _log_lost(error: Exception) -> None:
    _log.warning("Connection lost, reconnecting: %s", error)
