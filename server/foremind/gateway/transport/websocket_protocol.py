"""uvicorn's WebSocket protocol with bounds, Foremind's close codes and hard ends."""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.http11 import Response

from foremind.domain.errors import ForemindError, RequestError
from foremind.gateway.transport.body_limits import error_body
from foremind.gateway.transport.channel import HOLD, NEXT_TURN, READ_ON, Channel
from foremind.gateway.transport.fair_scheduling import MeteredCoroutine
from foremind.gateway.transport.frame_limits import (
    CLOSE,
    FramePiece,
    FrameRateLimit,
    FrameSplitter,
    opcode,
)

HEARTBEAT_LOST = 4408
SLOW_READER = 4413
OVER_LIMIT = 4429
_ABORT_S = 10.0
_MOST_AFTER_CLOSE = 65_536  # bytes that a peer may still have under way
_FRAMES = 8  # parsed in one turn
_MOST_WITHHELD = 16  # pongs that one who does not read may ask for
_USUAL_BYTES = 16_384  # of a message, at the rates that clients are told of


class _Inbox:
    """What has come in and was not taken yet, for one taker: a message, and that it was the last.

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


def _rejected(status: int, text: str) -> Response:
    """Answer a handshake that fails as every request that is refused."""
    told = HTTPStatus(status)
    defect = told is HTTPStatus.INTERNAL_SERVER_ERROR
    code = "method_not_allowed" if told is HTTPStatus.METHOD_NOT_ALLOWED else "invalid_request"
    body = error_body(
        ForemindError.kind if defect else RequestError.kind,
        ForemindError.code if defect else code,
        text.strip() or "expected a WebSocket handshake",
        retryable=False,
    )
    headers = Headers({"Connection": "close", "Content-Type": "application/json",
                       "Content-Length": str(len(body))})  # fmt: skip
    return Response(told.value, told.phrase, headers, body)


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """Takes in frames one by one, each counted before it is parsed.

    Closes with 4408 when pings go unanswered, 4429 when too much comes for too long, 4413 when
    pongs are not read; waits for no peer that does not read, or stop.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.queue: Any = _Inbox()
        self.conn.reject = _rejected  # type: ignore[method-assign]
        self._channel: Channel = self.app_state["connection"]
        settings = self._channel.services.settings
        self._splitter = FrameSplitter(self._channel.services.most_frame)
        self._pace = FrameRateLimit(_USUAL_BYTES * (settings.drafts_per_s + settings.sends_per_s))
        self._ready_at: float | None = None  # since when the server waits for more
        self._after_close = 0
        self._skipping = False  # the present frame is not for the parser
        self._withheld: bytes | None = None  # the last pong that could not be written
        self._withheld_count = 0

    def holds(self) -> int:
        """Return the bytes of a message that is not whole."""
        return len(self.conn.reader.buffer) + sum(map(len, self.frames))

    def step(self, unread: bytearray) -> float | None:
        """Take some frames, until one makes a message whole."""
        if not self.handshake_complete:
            return HOLD
        now = self._channel.services.clock.monotonic()
        for _ in range(_FRAMES):
            if self.read_paused and not self.close_sent:
                return HOLD
            if wait := self._pace.wait(now) if not self.close_sent else 0.0:
                return wait
            piece = self._splitter.next(unread) if unread else None
            if piece is None:
                self._ready_at = now if self._ready_at is None else self._ready_at
                return READ_ON
            if not self._takes(piece, now):
                return HOLD
            data = bytes(unread[: piece.size])
            del unread[: piece.size]
            if not self._skipping:
                super().data_received(data)
                if self.read_paused and self._channel.known:  # a message: somebody plays
                    self._channel.services.anonymous.somebody_known()
        return NEXT_TURN

    def _takes(self, piece: FramePiece, now: float) -> bool:
        """Count a piece; False: no more is listened to."""
        if self.close_sent:
            if piece.first is not None:
                self._skipping = opcode(piece.first) != CLOSE
            self._after_close += piece.size
            if self._after_close > _MOST_AFTER_CLOSE:
                self.transport.abort()
                return False
            return True
        idle_s = 0.0 if self._ready_at is None else now - self._ready_at
        self._ready_at = None
        if self._pace.take(piece, idle_s, now):
            return True
        self._end(OVER_LIMIT, "too many frames")
        return False

    def handle_ping(self) -> None:
        """Answer; but to one who does not read only the last time, once it does."""
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pong)
            return
        self._withheld = pong
        self._withheld_count += 1
        if self._withheld_count > _MOST_WITHHELD:
            self._end(SLOW_READER, "reading too slowly")

    def resume_writing(self) -> None:
        """Write what was withheld."""
        super().resume_writing()
        if self._withheld is not None and not self.close_sent:
            self.transport.write(self._withheld)
        self._withheld, self._withheld_count = None, 0

    def connection_lost(self, exc: Exception | None) -> None:
        """End; the parser is a generator that refers back to what holds it."""
        super().connection_lost(exc)
        self.conn.parser.close()

    def keepalive_timeout(self) -> None:
        """End a connection whose peer no longer answers."""
        self.pong_timer = None
        self.pending_ping_payload = None
        if not self.close_sent and not self.transport.is_closing():
            # A peer that is gone will not read the close frame: do not wait for it.
            self._end(HEARTBEAT_LOST, "heartbeat lost", abort_s=1.0)

    def _end(self, code: int, reason: str, abort_s: float = _ABORT_S) -> None:
        """Close, whatever its app is doing."""
        self._channel.count_refused(f"closed_{code}")
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(abort_s, self.transport.close)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.loop.call_later(abort_s, self.transport.abort)

    def run_asgi(self) -> Any:
        """Serve; what that takes is timed until it is known whom it serves."""
        channel = self._channel
        return MeteredCoroutine(
            super().run_asgi(), channel.services.anonymous, lambda: not channel.known
        )

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
            self._ready_at = self._channel.services.clock.monotonic()
            self._channel.go_on()
        if closing:
            self.loop.call_later(_ABORT_S, self.transport.abort)
