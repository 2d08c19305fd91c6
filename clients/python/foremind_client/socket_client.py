"""One connection to a Foremind server."""

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

Event = dict[str, Any]
MAX_FRAME_BYTES = 65_536  # the server closes connections that exceed it

_CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 1.0  # for the server to answer a close


class Closed(Exception):
    """The connection was closed; `code` is the WebSocket close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"closed with {code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class Client:
    """Sends messages of the protocol, and returns the server's events as dictionaries."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def open_session(
        self,
        companion: str | None = None,
        *,
        world: str | None = None,
        scene: str | None = None,
        user_id: str | None = None,
        name: str | None = None,
        token: str | None = None,
        time_zone: str | None = None,
        language: str | None = None,
        resume: tuple[str, int] | None = None,
        follow: bool = False,
        redirected: bool = False,
        greeting: int | None = None,
        contexts: bool = True,
        sentences: bool = False,
    ) -> Event:
        """Open a session with a companion, or join a scene, by token or as a named user.

        Return `session.opened`, `error`, or where it is served: `session.redirect`.

        Args:
            world, scene: in place of a companion, the scene that is joined.
            time_zone: the IANA name of the player's time zone; UTC by default.
            language: the player's, a BCP 47 tag such as "de"; by default the one stated last.
            resume: the id of the session to resume, and the `seq` of the last event received.
            follow: whether redirects are followed.
            redirected: whether one has been followed since the last session; there is no other.
            greeting: the number of the companion's greeting, 0 by default.
            contexts: whether `context.ready` is to be sent.
            sentences: whether `response.sentence` is to be sent.

        Raises:
            Closed: the server closed the connection.
        """
        where = {"companion": companion, "world": world, "scene": scene}
        message: Event = {"type": "session.open"} | _given(where)
        if token is not None:
            message["token"] = token
        elif user_id is not None:
            message["user"] = {"id": user_id, "name": name or user_id}
        if time_zone is not None:
            message["time_zone"] = time_zone
        if language is not None:
            message["language"] = language
        if resume is not None:
            message["resume"] = {"session_id": resume[0], "seq": resume[1]}
        if follow:
            message |= {"follow": True, "redirected": redirected}
        if greeting is not None:
            message["greeting"] = greeting
        if not contexts:
            message["contexts"] = False
        if sentences:
            message["sentences"] = True
        await self.send_raw(message)
        return await self.next_event()

    async def draft(self, text: str) -> None:
        """Send the whole draft."""
        await self.send_raw({"type": "draft.update", "text": text})

    async def clear_draft(self) -> None:
        """Clear the draft."""
        await self.send_raw({"type": "draft.clear"})

    async def send(
        self,
        text: str,
        message_id: str | None = None,
        *,
        remember: bool = True,
        settings: dict[str, Any] | None = None,
        to: str | list[str] | None = None,
        volume: str | None = None,
    ) -> str:
        """Send a message; return its id, under which it may be sent again safely.

        Args:
            remember: whether memories may be made of it; otherwise it is erased with its session.
            settings: settings of this turn alone, by name.
            to: in a scene, whom it is said to, by id or slug; by default all.
            volume: in a scene, "whisper", "say" or "shout".
        """
        message_id = message_id or uuid.uuid4().hex
        sent = message_send(message_id, text, remember, settings) | speech(to, volume)
        await self.send_raw(sent)
        return message_id

    async def edit(
        self,
        message_id: str,
        text: str,
        edited_id: str | None = None,
        *,
        remember: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> str:
        """Put another text in the place of the last message; return the id of that message.

        Args:
            message_id: of the last message.
            edited_id: under which the edit may be sent again safely.
            remember, settings: as of `send`.
        """
        edited_id = edited_id or uuid.uuid4().hex
        await self.send_raw(message_edit(message_id, edited_id, text, remember, settings))
        return edited_id

    async def regenerate(
        self,
        message_id: str,
        request_id: str | None = None,
        *,
        settings: dict[str, Any] | None = None,
    ) -> str:
        """Ask for another reply to the last message; return the id of this request.

        Args:
            message_id: of the last message.
            request_id: under which the request may be sent again safely.
            settings: settings of this reply alone, by name.
        """
        request_id = request_id or uuid.uuid4().hex
        await self.send_raw(response_regenerate(message_id, request_id, settings))
        return request_id

    async def choose(self, message_id: str, index: int) -> None:
        """Choose which reply to the last message stands, by its index from 0."""
        await self.send_raw(response_choose(message_id, index))

    async def set_state(self, task: str | None = None, flags: dict[str, Any] | None = None) -> None:
        """Change the session state; parts that are not given stay.

        Args:
            task: the current task; empty for none.
            flags: flags to set; None removes a flag.
        """
        await self.send_raw({"type": "session.update", "state": state_patch(task, flags)})

    async def cancel(self, response_id: str) -> None:
        """Stop a reply."""
        await self.send_raw({"type": "response.cancel", "response_id": response_id})

    async def send_raw(self, message: Event | str | bytes) -> None:
        """Send any message or frame.

        Raises:
            Closed: the connection is closed.
        """
        frame = _encoded(message) if isinstance(message, dict) else message
        try:
            await self._socket.send(frame)
        except ConnectionClosed as error:
            raise _closed(error) from None

    async def next_event(self) -> Event:
        """Return the next event.

        Raises:
            Closed: the connection is closed.
        """
        try:
            event: Event = json.loads(await self._socket.recv())
        except ConnectionClosed as error:
            raise _closed(error) from None
        return event

    async def expect(self, *types: str) -> Event:
        """Return the next event of one of `types`, skipping others."""
        while True:
            event = await self.next_event()
            if event["type"] in types:
                return event

    async def expect_all(self, *types: str) -> dict[str, Event]:
        """Return the next event of each of `types`, in any order, skipping others."""
        events: dict[str, Event] = {}
        while missing := [type_ for type_ in types if type_ not in events]:
            event = await self.expect(*missing)
            events[event["type"]] = event
        return events

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the connection is closed."""
        while True:
            try:
                event = await self.next_event()
            except Closed:
                return
            yield event

    async def close(self) -> None:
        """Close the connection."""
        await self._socket.close()


def message_send(
    message_id: str, text: str, remember: bool, settings: dict[str, Any] | None
) -> Event:
    """Return a `message.send`, without the fields that have their defaults."""
    message: Event = {"type": "message.send", "id": message_id, "text": text}
    if not remember:
        message["remember"] = False
    if settings is not None:
        message["settings"] = settings
    return message


def speech(to: str | list[str] | None, volume: str | None) -> Event:
    """Return the fields of something said in a scene, without those that are None."""
    return _given({"to": to, "volume": volume})


def message_edit(
    message_id: str, edited_id: str, text: str, remember: bool, settings: dict[str, Any] | None
) -> Event:
    """Return a `message.edit`, without the fields that have their defaults."""
    sent = message_send(edited_id, text, remember, settings)
    return sent | {"type": "message.edit", "message_id": message_id}


def response_regenerate(message_id: str, request_id: str, settings: dict[str, Any] | None) -> Event:
    """Return a `response.regenerate`, without the fields that have their defaults."""
    message: Event = {"type": "response.regenerate", "id": request_id, "message_id": message_id}
    return message if settings is None else message | {"settings": settings}


def response_choose(message_id: str, index: int) -> Event:
    """Return a `response.choose`."""
    return {"type": "response.choose", "message_id": message_id, "index": index}


def fits_frame(message: Event) -> bool:
    """Return whether the server accepts a frame of this size."""
    return len(_encoded(message).encode()) <= MAX_FRAME_BYTES


def state_patch(task: str | None, flags: dict[str, Any] | None) -> dict[str, Any]:
    """Return the `state` of `session.update`, without the parts that are None."""
    return _given({"task": task, "flags": flags})


def _given(fields: dict[str, Any]) -> Event:
    return {name: value for name, value in fields.items() if value is not None}


@asynccontextmanager
async def connect(
    url: str,
    *,
    origin: str | None = None,
    token: str | None = None,
    kind: type[Client] = Client,
    timeout_s: float = _CONNECT_TIMEOUT_S,
) -> AsyncIterator[Client]:
    """Connect to `ws://HOST:PORT/v1/ws`; send a `token` as browsers do, as a subprotocol.

    Raises:
        OSError: the connection failed, or there is no WebSocket server.
    """
    try:
        socket = await open_socket(
            url,
            compression=None,
            max_size=None,
            proxy=None,
            open_timeout=timeout_s,
            close_timeout=_CLOSE_TIMEOUT_S,
            additional_headers=_headers(origin),
            subprotocols=None if token is None else _subprotocols(token),
        )
    except InvalidHandshake as error:  # the connection broke, or it is another kind of server
        raise ConnectionError(str(error)) from error
    try:
        yield kind(socket)
    finally:
        await socket.close()


def _encoded(message: Event) -> str:
    frame = json.dumps(message, ensure_ascii=False)
    try:
        frame.encode()
    except UnicodeEncodeError:  # half a character; escaped it reaches the server, which says so
        return json.dumps(message)
    return frame


def _headers(origin: str | None) -> dict[str, str]:
    return {} if origin is None else {"Origin": origin}


def _subprotocols(token: str) -> list[Subprotocol]:
    return [Subprotocol("foremind.v1"), Subprotocol(f"bearer.{token}")]


def _closed(error: ConnectionClosed) -> Closed:
    received = error.rcvd
    return Closed(1006, "") if received is None else Closed(received.code, received.reason)
