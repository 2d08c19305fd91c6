"""uvicorn's WebSocket protocol with rate limits, own close codes and enforced closing.

WebSocket frame boundaries (RFC 6455, section 5.2) and rate limits on frames.

Frames are counted before they are parsed, because parsing is the expensive part of a flood.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.http11 import Response

from fair_transport.channel import HOLD, READ_MORE, YIELD, Channel
from fair_transport.fair_scheduling import MeteredCoroutine
from fair_transport.options import Refusal
from fair_transport.rate_limits import TokenBucket, ViolationBudget

_FIN, _OPCODE, _MASKED = 0x80, 0x0F, 0x80
_CONTROL, CLOSE = 0x08, 0x08
_OVERHEAD_FRAMES_PER_S = 20.0  # frames that complete no message: control frames, fragments
_BURST_S = 4.0
_MAX_EXCESS_S = 3.0
_MAX_FRAGMENTS = 256  # of one message


class FramePiece(NamedTuple):
    """The next bytes of a stream that belong to one frame.

    Attributes:
        size: the number of bytes.
        first: the frame's first byte if the frame begins here, None if it continues.
    """

    size: int
    first: int | None


class FrameSplitter:
    """Splits a stream into frames incrementally."""

    __slots__ = ("_max_bytes", "_remaining")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._remaining = 0

    def next(self, data: bytes | bytearray) -> FramePiece | None:
        """Return the next piece of `data`, or None if a frame's header is incomplete.

        Of a frame that is too long only the header is returned, by which a parser rejects it.
        """
        if self._remaining:
            size = min(self._remaining, len(data))
            self._remaining -= size
            return FramePiece(size, None)
        if len(data) < 2:
            return None
        length, header = data[1] & ~_MASKED, 2
        if length >= 126:
            extended = 2 if length == 126 else 8
            header += extended
            length = int.from_bytes(data[2 : 2 + extended], "big")
        if data[1] & _MASKED:
            header += 4
        if len(data) < header:
            return None
        if length > self._max_bytes:
            return FramePiece(header, data[0])
        size = min(header + length, len(data))
        self._remaining = header + length - size
        return FramePiece(size, data[0])


def opcode(first: int) -> int:
    """Return the opcode in a frame's first byte."""
    return first & _OPCODE


class FrameRateLimit:
    """Throttles a connection to its allowed rates, and decides when to close it.

    Every byte counts, and every frame that completes no message. Complete messages are rate
    limited where they are handled.
    """

    __slots__ = ("_bytes", "_excess", "_fragments", "_overhead", "_ready_at")

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes = TokenBucket(bytes_per_s, _BURST_S)
        self._overhead = TokenBucket(_OVERHEAD_FRAMES_PER_S, _BURST_S)
        self._excess = ViolationBudget(_MAX_EXCESS_S)
        self._fragments = 0
        self._ready_at = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until more may be read."""
        return max(0.0, self._ready_at - now)

    def take(self, piece: FramePiece, idle_s: float, now: float) -> bool:
        """Count a piece; return False if the connection has exceeded its limits for too long.

        Args:
            idle_s: how long the server had waited for the piece.
        """
        wait = self._bytes.take(now, piece.size)
        if piece.first is not None:
            complete = piece.first & _FIN
            control = piece.first & _OPCODE >= _CONTROL
            if control or not complete:
                wait = max(wait, self._overhead.take(now))
            if not control:
                self._fragments = 0 if complete else self._fragments + 1
        self._ready_at = now + wait
        exceeded = self._excess.exceeded(wait, idle_s)
        return not exceeded and self._fragments <= _MAX_FRAGMENTS


HEARTBEAT_LOST = 4408
SLOW_READER = 4413
OVER_LIMIT = 4429
_ABORT_S = 10.0
_MAX_BYTES_AFTER_CLOSE = 65_536  # that a peer may still have in flight
_FRAMES_PER_SLICE = 8
_MAX_WITHHELD_PONGS = 16  # to a peer that does not read


class _Inbox:
    """A minimal message queue with one consumer.

    An `asyncio.Queue` would take 3 KiB more for each connection.
    """

    __slots__ = ("_messages", "_waiter")

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._waiter: asyncio.Future[None] | None = None

    def empty(self) -> bool:
        return not self._messages

    def put_nowait(self, message: Any) -> None:
        self._messages.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> Any:
        while not self._messages:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._waiter = None
        return self._messages.pop(0)


#: The code of a handshake's error by its status; any other is an invalid request.
_HANDSHAKE_CODES = {405: "method_not_allowed", 500: "internal_error"}


def _reject(error_body: Callable[[Refusal], bytes], status: int, text: str) -> Response:
    """Return the response to a failed handshake, with the JSON body of every error."""
    http_status = HTTPStatus(status)
    code = _HANDSHAKE_CODES.get(status, "invalid_request")
    message = text.strip() or "expected a WebSocket handshake"
    body = error_body(Refusal(status, code, message))
    headers = Headers({"Connection": "close", "Content-Type": "application/json",
                       "Content-Length": str(len(body))})  # fmt: skip
    return Response(http_status.value, http_status.phrase, headers, body)


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """Processes frames one at a time, counting each before it is parsed.

    Closes with 4408 when pings go unanswered, 4429 when the rate limits are exceeded for too long,
    and 4413 when pongs are not read. Closing never waits for a peer that does not read or does not
    stop sending.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.queue: Any = _Inbox()
        self._channel: Channel = self.app_state["connection"]
        limits, hooks = self._channel.services.limits, self._channel.services.hooks
        self.conn.reject = partial(_reject, hooks.error_body)  # type: ignore[method-assign]
        self._splitter = FrameSplitter(limits.frame_bytes)
        self._rate_limit = FrameRateLimit(limits.bytes_per_s)
        self._idle_since: float | None = None
        self._bytes_after_close = 0
        self._skipping = False  # the current frame is discarded unparsed
        self._withheld_pong: bytes | None = None  # the last pong that could not be written
        self._withheld_count = 0

    def buffered_bytes(self) -> int:
        """Return the bytes of an incomplete message."""
        return len(self.conn.reader.buffer) + sum(map(len, self.frames))

    def step(self, unread: bytearray) -> float | None:
        """Consume some frames, stopping when a message is complete."""
        if not self.handshake_complete:
            return HOLD
        now = self._channel.services.hooks.monotonic()
        for _ in range(_FRAMES_PER_SLICE):
            if self.read_paused and not self.close_sent:
                return HOLD
            if wait := self._rate_limit.wait(now) if not self.close_sent else 0.0:
                return wait
            piece = self._splitter.next(unread) if unread else None
            if piece is None:
                self._idle_since = now if self._idle_since is None else self._idle_since
                return READ_MORE
            if not self._count(piece, now):
                return HOLD
            data = bytes(unread[: piece.size])
            del unread[: piece.size]
            if not self._skipping:
                super().data_received(data)
                if self.read_paused and self._channel.is_identified:  # a message is complete
                    self._channel.services.anonymous_scheduler.note_identified_traffic()
        return YIELD

    def _count(self, piece: FramePiece, now: float) -> bool:
        """Count a piece; return False if nothing more is to be read."""
        if self.close_sent:
            if piece.first is not None:
                self._skipping = opcode(piece.first) != CLOSE
            self._bytes_after_close += piece.size
            if self._bytes_after_close > _MAX_BYTES_AFTER_CLOSE:
                self.transport.abort()
                return False
            return True
        idle_s = 0.0 if self._idle_since is None else now - self._idle_since
        self._idle_since = None
        if self._rate_limit.take(piece, idle_s, now):
            return True
        self._close(OVER_LIMIT, "too many frames")
        return False

    def handle_ping(self) -> None:
        """Answer; for a peer that does not read, keep only the last pong until it does."""
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pong)
            return
        self._withheld_pong = pong
        self._withheld_count += 1
        if self._withheld_count > _MAX_WITHHELD_PONGS:
            self._close(SLOW_READER, "reading too slowly")

    def resume_writing(self) -> None:
        """Write the pong that was withheld."""
        super().resume_writing()
        if self._withheld_pong is not None and not self.close_sent:
            self.transport.write(self._withheld_pong)
        self._withheld_pong, self._withheld_count = None, 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the parser, a generator that is part of a reference cycle."""
        super().connection_lost(exc)
        self.handshake_complete = True  # no more of it: leaving early is no error of the server's
        self.conn.parser.close()

    def keepalive_timeout(self) -> None:
        """Close the connection of a peer that no longer answers pings."""
        self.pong_timer = None
        self.pending_ping_payload = None
        if not self.close_sent and not self.transport.is_closing():
            # An unresponsive peer will not answer the close frame: do not wait for it.
            self._close(HEARTBEAT_LOST, "heartbeat lost", abort_s=1.0)

    def _close(self, code: int, reason: str, abort_s: float = _ABORT_S) -> None:
        """Close with a code, whatever state the application is in."""
        self._channel.count_refused(f"closed_{code}")
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(abort_s, self.transport.close)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.loop.call_later(abort_s, self.transport.abort)

    def run_asgi(self) -> Any:
        """Run the application, metered until the client has authenticated."""
        channel = self._channel
        return MeteredCoroutine(
            super().run_asgi(),
            channel.services.anonymous_scheduler,
            lambda: not channel.is_identified,
        )

    async def send(self, message: Any) -> None:
        """Send as uvicorn does, but let a close overtake frames that wait for a slow reader."""
        handshaking = not self.handshake_complete
        closing = message["type"] == "websocket.close"
        if closing:
            self.writable.set()
        await super().send(message)
        if handshaking and self.handshake_complete:
            # A tenth of the memory of an idle connection, and never used again.
            for headers in (self.request.headers, self.response.headers, self.scope["headers"]):
                headers.clear()  # type: ignore[union-attr]
            del self.request, self.response
            self._idle_since = self._channel.services.hooks.monotonic()
            self._channel.resume_processing()
        if closing:
            self.loop.call_later(_ABORT_S, self.transport.abort)
        if self.close_sent or self.transport.is_closing():
            self.handshake_complete = (
                True  # refused by a whole response, which uvicorn does not count
            )
