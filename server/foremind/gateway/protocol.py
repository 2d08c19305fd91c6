"""uvicorn's WebSocket protocol with Foremind's close codes and hard ends."""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEARTBEAT_LOST = 4408
_ABORT_S = 10.0
_MOST_AFTER_CLOSE = 65_536  # bytes that a peer may still have under way
_PORTION = 4096  # bytes: parsed, they take five times that, and hold everybody else up


class _Inbox:
    """What has come in and was not taken yet, for one taker: a portion's messages at most.

    An `asyncio.Queue` would be 3 KiB more for each connection.
    """

    __slots__ = ("_messages", "_more")

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._more: asyncio.Future[None] | None = None

    def empty(self) -> bool:
        return not self._messages

    def put_nowait(self, message: Any) -> None:
        self._messages.append(message)
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def get(self) -> Any:
        while not self._messages:
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        self._more = None
        return self._messages.pop(0)


class ForemindProtocol(WebSocketsSansIOProtocol):
    """Closes with 4408 when pings go unanswered; waits for no peer that does not read, or stop."""

    _after_close = 0
    _unread = b""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.queue: Any = _Inbox()

    def data_received(self, data: bytes) -> None:
        """Take in data, a portion at a time: the next when what was in it has been handled.

        A closed flooder is not listened to until it has noticed.
        """
        self._unread += data
        if self.close_sent:
            self._after_close += len(data)
            if self._after_close > _MOST_AFTER_CLOSE:
                self.transport.abort()
                return
        self._read_on()

    async def receive(self) -> Any:
        """Return the next message; reading goes on once all that was taken in is handled."""
        message = await super().receive()
        self._read_on()
        return message

    def _read_on(self) -> None:
        """Take in portions until there is something to handle; leave the rest until it is."""
        while self._unread and (self.queue.empty() or self.close_sent):
            if self.transport.is_closing():
                self._unread = b""
                return
            portion, self._unread = self._unread[:_PORTION], self._unread[_PORTION:]
            super().data_received(portion)
        if self._unread and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def keepalive_timeout(self) -> None:
        """End a connection whose peer no longer answers."""
        self.pong_timer = None
        self.pending_ping_payload = None
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(HEARTBEAT_LOST, "heartbeat lost")
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        # A peer that is gone will not read the close frame: do not wait for it.
        self.loop.call_later(1.0, self.transport.abort)

    async def send(self, message: Any) -> None:
        """Send as uvicorn does, but let a close overtake frames that wait for a slow reader."""
        handshaking = not self.handshake_complete
        closing = message["type"] == "websocket.close"
        if closing:
            self.writable.set()
        await super().send(message)
        if handshaking and self.handshake_complete:
            # A tenth of what an idle connection takes, and never looked at again.
            for headers in (self.request.headers, self.response.headers, self.scope["headers"]):
                headers.clear()  # type: ignore[union-attr]
            del self.request, self.response
        if closing:
            self.loop.call_later(_ABORT_S, self.transport.abort)
