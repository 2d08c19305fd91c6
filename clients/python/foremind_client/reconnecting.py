"""A conversation that outlives its connections: it reconnects, resumes, and resends messages."""

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from foremind_client.reports import Refused, Unreported, post_events
from foremind_client.retry_delay import FIRST_RETRY_S, failures_after, max_retry_delay
from foremind_client.route import Route
from foremind_client.socket_client import (
    MAX_FRAME_BYTES,
    Client,
    Closed,
    Event,
    connect,
    fits_frame,
    message_edit,
    message_send,
    response_choose,
    response_regenerate,
    speech,
    state_patch,
)
from foremind_client.token_source import Token, TokenUnavailable, fetch_token, renewal_delay

MERGE_S = 0.05  # keystrokes may be merged for this long, by the protocol

_OPEN_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 30.0
_FINAL_CODES = frozenset({4400, 4403, 4409})  # do not reconnect after these
_NOT_AUTHENTICATED = 4401
_ELSEWHERE = 4421  # another gateway serves the session
_MAX_TOKEN_REFUSALS = 3  # of fresh tokens in a row
_RESEND_S = 1.0  # delay after a retryable error
_DUPLICATE_S = 2.0  # in which the reply begins, if the process that was to answer has died
_MAX_UNANSWERED = 16
_MAX_REPORTS = 8  # requests for one report
_MAX_EVENTS = 1024  # unread; the oldest are dropped first

_log = logging.getLogger("foremind_client")


class Unreachable(ConnectionError):
    """No session could be opened in time; the message says why the last attempt failed."""


class _Redirected(Exception):
    """The session is served at another URL, which the route now leads to."""


@dataclass(slots=True)
class _PendingMessage:
    frame: Event  # its `message.send`, `message.edit`, `response.regenerate` or `action.result`
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
    frame: Event | None = None  # its `draft.update`
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _UnconfirmedState:
    """Session state that the server has not confirmed; `id` is the event id of the last update."""

    patch: dict[str, Any]
    id: str

    @property
    def frame(self) -> Event:
        """The `session.update` that tells it."""
        return {"type": "session.update", "state": self.patch, "event_id": self.id}


@dataclass(frozen=True, slots=True)
class Identity:
    """The companion, and the user: by a token or a function that gets one, or by id and name.

    In place of a companion, `world` and `scene` are those that the user joins.

    `language` is the player's, a BCP 47 tag such as "pt-BR"; by default the one stated last.

    The function is called for every connection, and when most of a token's lifetime is over. Its
    failures are retried like failed connections.
    """

    companion: str | None = None
    user_id: str | None = None
    name: str | None = None
    token: Token | None = None
    time_zone: str | None = None
    language: str | None = None
    world: str | None = None
    scene: str | None = None

    def __post_init__(self) -> None:
        """Check what is joined.

        Raises:
            ValueError: naming what is missing, or too much.
        """
        if bool(self.companion) == bool(self.world or self.scene):
            raise ValueError("companion: expected the slug of a companion, or world and scene")
        for name in ("world", "scene"):
            if not self.companion and not getattr(self, name):
                raise ValueError(f"{name}: expected the name of a {name}")


class Conversation:
    """One player with one companion or in one scene of a world, for as long as the block lasts.

    Example:
        >>> async with Conversation(url, Identity("wren", user_id="u1", name="Ana")) as wren:
        ...     wren.type("What did I")  # on every keystroke
        ...     reply = await wren.say("What did I promise?")
        ...     print(reply["text"])

    Args:
        url: `ws://HOST:PORT/v1/ws`.
        first_retry_s: maximum delay before the first attempt to reconnect; doubles up to 15 s.
        open_timeout_s: how long to wait for the first session; None waits for ever.
        answer_timeout_s: how long a server may take to open a session or to store a message; one
            that is silent for longer is connected to again.
        on_lost: called with the error whenever a connection ends or cannot be made; by default,
            it is logged as a warning.
        contexts: whether `context.ready` is among the events.
        sentences: whether `response.sentence` is.

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
        first_retry_s: float = FIRST_RETRY_S,
        open_timeout_s: float | None = _OPEN_TIMEOUT_S,
        answer_timeout_s: float = _ANSWER_TIMEOUT_S,
        on_lost: Callable[[Exception], None] | None = None,
        contexts: bool = False,
        sentences: bool = False,
    ) -> None:
        self._route = Route(url)
        self._identity = identity
        self._contexts = contexts
        self._sentences = sentences
        self._first_retry_s = first_retry_s
        self._open_timeout_s = open_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._patience: asyncio.Timeout | None = None  # of the wait for the next event
        self._on_lost = _log_lost if on_lost is None else on_lost
        self._last_loss: Exception | None = None
        self._token_refusals = 0  # since a session was opened
        self._renewal: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._left = False  # the block has ended
        #: The number of sessions opened or resumed.
        self.connections = 0
        self._opened_at: float | None = None  # when this connection's session was
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
        self._left = self._failure is None
        self._end(Closed(1000, "the conversation was left"))
        await asyncio.gather(*self._writes, return_exceptions=True)

    def type(
        self, text: str, *, to: str | list[str] | None = None, volume: str | None = None
    ) -> None:
        """Send the whole draft, on every keystroke; keystrokes within 50 ms are merged.

        A draft that does not fit a frame, or is typed while there is no connection, is not sent.

        Args:
            to, volume: as of `say`, as far as they are known.
        """
        self._draft.frame = {"type": "draft.update", "text": text} | speech(to, volume)
        if self._draft.timer is None:
            loop = asyncio.get_running_loop()
            self._draft.timer = loop.call_later(MERGE_S, self._send_draft)

    def clear(self) -> None:
        """Say that the player discarded the draft."""
        self._drop_draft()
        self._write({"type": "draft.clear"})

    def say(
        self,
        text: str,
        message_id: str | None = None,
        *,
        remember: bool = True,
        settings: dict[str, Any] | None = None,
        to: str | list[str] | None = None,
        volume: str | None = None,
    ) -> "asyncio.Future[Event]":
        """Send a message; the future is its `response.done`, across lost connections.

        If the message was answered before, the future is another `message.accepted`. In a scene it
        is the first reply; `message.accepted` if none has begun 2 s after that.

        Args:
            remember: whether memories may be made of it; otherwise it is erased with its session.
            settings: settings of this turn alone, by name, such as `{"llm_temperature": 0.2}`.
            to: in a scene, whom it is said to, by id or slug; by default all.
            volume: in a scene, "whisper", "say" or "shout".

        Raises:
            OverflowError: 16 messages wait for their answer.
            ValueError: the message does not fit a frame.
            Refused: when awaited, the server refused the message.
            Closed: when awaited, the conversation has ended: the server closed it for good, or the
                block was left.
        """
        return self._enqueue(text, message_id, remember, settings, speech(to, volume)).done

    def send(
        self,
        text: str,
        message_id: str | None = None,
        *,
        remember: bool = True,
        settings: dict[str, Any] | None = None,
        to: str | list[str] | None = None,
        volume: str | None = None,
    ) -> "asyncio.Future[Event]":
        """Send a message like `say`; the future is its `message.accepted`: it is stored."""
        return self._enqueue(text, message_id, remember, settings, speech(to, volume)).accepted

    def edit(
        self,
        message_id: str,
        text: str,
        edited_id: str | None = None,
        *,
        remember: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> "asyncio.Future[Event]":
        """Put another text in the place of the last message; the future is as of `say`.

        Args:
            message_id: of the last message, which is forgotten with all replies to it.
            edited_id: of the message that takes its place.
            remember, settings: as of `say`.

        Raises:
            As `say`; `Refused` also if it is not the last message.
        """
        edited_id = edited_id or uuid.uuid4().hex
        frame = message_edit(message_id, edited_id, text, remember, settings)
        return self._keep(edited_id, frame).done

    def regenerate(
        self,
        message_id: str,
        request_id: str | None = None,
        *,
        settings: dict[str, Any] | None = None,
    ) -> "asyncio.Future[Event]":
        """Ask for another reply to the last message; the future is its `response.done`.

        The replies before can be chosen again. Errors are as of `edit`.

        Args:
            message_id: of the last message.
            request_id: of this request.
            settings: settings of this reply alone, by name.
        """
        request_id = request_id or uuid.uuid4().hex
        return self._keep(request_id, response_regenerate(message_id, request_id, settings)).done

    def choose(self, message_id: str, index: int) -> None:
        """Choose which reply to the last message stands; the event `response.chosen` follows."""
        self._write(response_choose(message_id, index))

    def set_state(self, task: str | None = None, flags: dict[str, Any] | None = None) -> None:
        """Change the session state; parts that are not given stay.

        It applies to messages sent later, and is resent after a lost connection until the server
        confirms it.

        Args:
            task: the current task; empty for none.
            flags: flags to set; None removes a flag.

        Raises:
            ValueError: what the server has not confirmed does not fit a frame.
        """
        patch = state_patch(task, flags)
        if self._unconfirmed_state is not None:
            before = self._unconfirmed_state.patch
            patch = {**before, **patch, "flags": {**before.get("flags", {}), **(flags or {})}}
        unconfirmed = _UnconfirmedState(patch, uuid.uuid4().hex)
        if not fits_frame(unconfirmed.frame):
            raise ValueError(f"state: expected at most {MAX_FRAME_BYTES} bytes")
        self._unconfirmed_state = unconfirmed
        self._send_state()

    def cancel(self, response_id: str) -> None:
        """Stop a reply."""
        self._write({"type": "response.cancel", "response_id": response_id})

    def answer_action(self, action_id: str, result: Any) -> "asyncio.Future[Event]":
        """Tell a mind what came of an action, as the game server of its world.

        It is sent again as a message is, until the future has its `action.accepted`.

        Args:
            action_id: as in `action.requested`.
            result: in words or as JSON; the first one counts.

        Raises:
            As `say`.
        """
        frame = {"type": "action.result", "id": action_id, "result": result}
        return self._keep(uuid.uuid4().hex, frame).accepted

    async def report(self, events: Sequence[Event]) -> list[Event]:
        """Report what happens in the world, as its game server; also outside of the block.

        A failure that may pass is tried again, with a fresh token if a function gets them: no event
        is stored twice. Return for each event its `id`, and whether it is a `duplicate`.

        Raises:
            Refused: the server refused the events for good.
            ConnectionError: no answer came, or the server was not able to store them.
        """
        failures = 0
        while True:
            try:
                token = await fetch_token(self._identity.token)
                url, world = self._route.url, self._identity.world or ""
                return await asyncio.to_thread(post_events, url, world, token, events)
            except ConnectionError as error:
                failures += 1
                if failures == _MAX_REPORTS:
                    raise
                least_s = error.retry_after_s if isinstance(error, Unreported) else 0.0
                wait_s = max_retry_delay(self._first_retry_s, failures)
                await asyncio.sleep(least_s + random.uniform(0, wait_s))  # noqa: S311

    async def events(self) -> AsyncIterator[Event]:
        """Yield every event once and in order; of too many unread ones, the oldest are dropped.

        Raises:
            Refused: the server refused to open a session.
            Closed: the server closed the conversation for good.
        """
        while (event := await self._events.get()) is not None:
            yield event
        if self._failure is not None and not self._left:
            raise self._failure

    def _enqueue(
        self,
        text: str,
        message_id: str | None,
        remember: bool,
        settings: dict[str, Any] | None,
        said: Event,
    ) -> _PendingMessage:
        message_id = message_id or uuid.uuid4().hex
        return self._keep(message_id, message_send(message_id, text, remember, settings) | said)

    def _keep(self, message_id: str, frame: Event) -> _PendingMessage:
        """Send a frame again until it is accepted, and wait for its reply."""
        known = self._unanswered.get(message_id)
        if known is not None:
            return known
        if len(self._unanswered) >= _MAX_UNANSWERED:
            raise OverflowError(f"at most {_MAX_UNANSWERED} messages may wait for their answer")
        # The message id is also the event id, so that errors can be matched.
        frame = frame | {"event_id": message_id}
        is_result = frame["type"] == "action.result"
        if not fits_frame(frame):
            field = "result" if is_result else "text"
            raise ValueError(f"{field}: expected a message of at most {MAX_FRAME_BYTES} bytes")
        if not is_result:
            self._drop_draft()
        loop = asyncio.get_running_loop()
        sent = _PendingMessage(frame, loop.create_future(), loop.create_future())
        if self._failure is not None:
            sent.refuse(self._failure)
            return sent
        self._unanswered[message_id] = sent
        self._submit(message_id)
        return sent

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0  # in a row
        try:
            while True:
                self._opened_at = None
                try:
                    await self._serve_connection()
                except _Redirected:
                    continue
                except (Closed, OSError) as error:
                    elsewhere = isinstance(error, Closed) and error.code == _ELSEWHERE
                    unavailable = isinstance(error, TokenUnavailable)
                    if not unavailable and self._route.lost(elsewhere=elsewhere):
                        continue
                    if self._is_final(error):
                        raise
                    if not elsewhere:
                        self._last_loss = error
                        self._on_lost(error)
                open_s = 0.0 if self._opened_at is None else loop.time() - self._opened_at
                failures = failures_after(self._first_retry_s, failures, open_s)
                # Full jitter: clients of a failed server do not all reconnect at once.
                delay_s = random.uniform(0, max_retry_delay(self._first_retry_s, failures))  # noqa: S311
                await asyncio.sleep(delay_s)
        except Exception as error:
            self._end(error)
            raise

    def _end(self, error: Exception) -> None:
        """End the events and whatever is awaited: no future may stay pending."""
        if self._failure is None:
            self._failure = error
        for sent in self._unanswered.values():
            sent.refuse(self._failure)
        self._queue_event(None)

    async def _serve_connection(self) -> None:
        token = await fetch_token(
            self._identity.token
        )  # first, as an open connection would time out
        async with connect(self._route.url, timeout_s=self._route.timeout_s) as client:
            async with self._waiting(self._answer_timeout_s):
                await self._open(client, token)
            try:
                while True:
                    self._on_event(await self._next_event(client))
            finally:
                self._client = None
                if self._renewal is not None:
                    self._renewal.cancel()
                    await asyncio.wait({self._renewal})

    async def _next_event(self, client: Client) -> Event:
        unaccepted = any(not sent.accepted.done() for sent in self._unanswered.values())
        async with self._waiting(self._answer_timeout_s if unaccepted else None):
            return await client.next_event()

    @contextlib.asynccontextmanager
    async def _waiting(self, timeout_s: float | None) -> AsyncIterator[None]:
        """Limit how long the server may be silent: it may be gone without a word."""
        try:
            async with asyncio.timeout(timeout_s) as self._patience:
                yield
        except TimeoutError:
            raise ConnectionError("the server does not answer") from None
        finally:
            self._patience = None

    def _is_final(self, error: Exception) -> bool:
        """Return whether reconnecting is pointless; after a refused token, a fresh one may work."""
        if not isinstance(error, Closed):
            return False
        if error.code != _NOT_AUTHENTICATED:
            return error.code in _FINAL_CODES
        self._token_refusals += 1
        return not callable(self._identity.token) or self._token_refusals >= _MAX_TOKEN_REFUSALS

    async def _open(self, client: Client, token: str | None) -> None:
        joins = self._identity.world is not None  # again after a lost connection
        resume = None if joins or self._session is None else (self._session, self._seq)
        opened = await client.open_session(
            self._identity.companion,
            world=self._identity.world,
            scene=self._identity.scene,
            user_id=self._identity.user_id,
            name=self._identity.name,
            token=token,
            time_zone=self._identity.time_zone,
            language=self._identity.language,
            resume=resume,
            follow=True,
            redirected=self._route.redirected,
            contexts=self._contexts,
            sentences=self._sentences,
        )
        if opened["type"] == "session.redirect":
            if self._route.redirect(opened["url"]):
                raise _Redirected
            raise ConnectionError("the server redirected twice")
        if opened["type"] == "error":
            error = opened["error"]
            # The close code that follows says whether to reconnect.
            if error["code"] == "not_authenticated":
                await client.next_event()
            if error["retryable"] or self._route.told:
                raise ConnectionError(error["message"])
            raise Refused(error)
        self._session, self._seq, self._client = opened["session_id"], opened["seq"], client
        self._token_refusals = 0
        self._route.opened()
        if not opened["resumed"]:
            self._replies.clear()  # those in progress are not continued
        self.connections += 1
        self._opened_at = asyncio.get_running_loop().time()
        self._opened.set()
        self._queue_event(opened)
        if callable(self._identity.token) and token is not None and not joins:
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
            case {"type": "action.accepted", "event_id": str(event_id)}:
                self._on_answered(event_id, event)
            case {"type": "session.redirect", "url": url}:
                self._route.move(url)
            case {"type": "response.created"}:
                self._replies[event["response_id"]] = event["message_id"]
            case {"type": "response.done", "response_id": response_id}:
                self._on_answered(self._replies.pop(response_id, ""), event)
            case {"type": "session.updated", "event_id": str(event_id)}:
                self._confirm_state(event_id)
            case {"type": "error", "error": error}:
                self._on_error(error)

    def _key_of(self, message_id: str) -> str | None:
        """Return what awaits a message's reply: its own id, or that of a request for another."""
        if message_id in self._unanswered:
            return message_id
        for key, sent in self._unanswered.items():
            is_request = sent.frame["type"] == "response.regenerate"
            if is_request and sent.frame["message_id"] == message_id:
                return key
        return None

    def _on_accepted(self, message_id: str, event: Event) -> None:
        key = self._key_of(message_id)
        if key is None:
            return
        sent = self._unanswered[key]
        if not sent.accepted.done():
            sent.accepted.set_result(event)
        if event["duplicate"] or self._identity.world is not None:
            # Usually it was answered before, and the reply is among the turns; or, in a scene,
            # nobody answers.
            loop = asyncio.get_running_loop()
            loop.call_later(_DUPLICATE_S, self._resolve_unless_replying, message_id, event)

    def _resolve_unless_replying(self, message_id: str, accepted: Event) -> None:
        """Count a message as answered if no reply to it has begun."""
        if message_id not in self._replies.values():
            self._on_answered(message_id, accepted)

    def _on_answered(self, message_id: str, event: Event) -> None:
        sent = self._unanswered.pop(self._key_of(message_id) or "", None)
        if sent is not None and not sent.done.done():
            if not sent.accepted.done():
                sent.accepted.set_result(event)
            sent.done.set_result(event)

    def _send_state(self) -> None:
        if self._unconfirmed_state is not None:
            self._write(self._unconfirmed_state.frame)

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
            self._write(sent.frame)
            if self._patience is not None and self._patience.when() is None:
                due = asyncio.get_running_loop().time() + self._answer_timeout_s
                self._patience.reschedule(due)

    def _send_draft(self) -> None:
        frame = self._draft.frame
        self._drop_draft()
        if frame is not None and fits_frame(frame):
            self._write(frame)

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
