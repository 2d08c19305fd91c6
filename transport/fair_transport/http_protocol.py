"""uvicorn's HTTP protocol with limits on heads, bodies, pipelining and stalled transfers."""

from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fair_transport.channel import (
    HOLD,
    MALFORMED,
    MAX_HEAD_BYTES,
    MIN_WINDOW_BYTES,
    READ_MORE,
    REQUEST_TIMEOUT,
    STALL_WINDOW_S,
    TOO_LARGE,
    YIELD,
    Channel,
    find_head_end,
    leading_blank_bytes,
    stalled,
)
from fair_transport.fair_scheduling import MeteredCoroutine
from fair_transport.options import Refusal
from fair_transport.rate_limits import TokenBucket

_KEEP_ALIVE_S = 5.0
_BODY_SLICE = 4096  # bytes fed to the parser at once: tiny chunks make many callbacks
_CHUNKS_PER_S = 1000.0  # of one body: each costs callbacks, however small it is
_CHUNK_BURST_S = 0.5


class BoundedHttpProtocol(HttpToolsProtocol):
    """Serves one request at a time; pipelined requests are not read before their turn.

    A head is parsed once it is complete and within its limits, a body as it arrives. The overhead
    of a chunked body (chunk sizes, extensions, trailers) is limited too, and a body in tiny chunks
    is read slowly.
    """

    def __init__(self, channel: Channel, **options: Any) -> None:
        super().__init__(app_state={"connection": channel}, **options)
        self._channel = channel
        self._searched = 0  # bytes of an incomplete head
        self._blank_bytes = 0  # of empty lines before a head
        self._head_begun = False
        self._complete = True  # the current request has arrived, body included
        self._serving = False  # the current request has no complete response yet
        self._body_remaining: int | None = 0  # bytes; None for a chunked body
        self._body_read = self._body_content = 0  # bytes read of a body, and of its content
        self._chunks = 0  # of the current slice
        self._chunk_rate = TokenBucket(_CHUNKS_PER_S, _CHUNK_BURST_S)
        self._chunks_ready_at = 0.0  # when the next slice may be parsed
        self._read_at_window_start = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self.cycle is not None:
            self.cycle.on_response = _ignore_response  # breaks the reference cycle

    def buffered_bytes(self) -> int:
        """Return the bytes of a body that the application has not read yet."""
        return len(self.cycle.body) if self._serving else 0

    def step(self, unread: bytearray) -> float | None:
        """Consume a head, or a slice of a body."""
        if not self._complete:
            return self._take_body(unread)
        if self._serving:
            return HOLD
        return self._take_head(unread)

    def _take_head(self, unread: bytearray) -> float | None:
        if not self._head_begun and unread:
            self._head_begun = True
            self._expect_head()
        blank = leading_blank_bytes(unread)
        del unread[:blank]
        self._blank_bytes += blank
        if self._blank_bytes <= MAX_HEAD_BYTES:
            end = find_head_end(unread, self._searched)
        else:
            end = TOO_LARGE
        if end is None:
            self._searched = len(unread)
            return READ_MORE
        if isinstance(end, Refusal):
            return self._refuse(end, "head")
        head = bytes(unread[:end])
        del unread[:end]
        self._searched = self._blank_bytes = 0
        self._head_begun = False
        self._complete = False
        self._channel.clear_deadline()
        if not self._feed(head):
            return HOLD
        if not self._complete:
            self._begin_body()
        elif self._serving:
            self._channel.services.admission.protect(self._channel)
        return YIELD if unread else READ_MORE

    def _begin_body(self) -> None:
        lengths = [value for name, value in self.headers if name == b"content-length"]
        self._body_remaining = int(lengths[0]) if lengths else None
        if not lengths:  # chunked: its end is found by parsing, which may consume what follows it
            self.cycle.keep_alive = False
        self._body_read = self._body_content = self._read_at_window_start = 0
        self._channel.receiving_body = True
        self._channel.set_deadline(STALL_WINDOW_S, self._check_upload)

    def _take_body(self, unread: bytearray) -> float | None:
        if self.flow.read_paused:
            return HOLD
        now = self._channel.services.hooks.monotonic()
        if now < self._chunks_ready_at:
            return self._chunks_ready_at - now
        size = min(len(unread), _BODY_SLICE)
        if self._body_remaining is not None:
            size = min(size, self._body_remaining)
            self._body_remaining -= size
        piece = bytes(unread[:size])
        del unread[:size]
        self._body_read += size
        if not self._feed(piece):
            return HOLD
        if self._complete:
            self._channel.receiving_body = False
            self._channel.clear_deadline()
            self._channel.services.admission.protect(self._channel)
            return HOLD
        if self._body_read - self._body_content > MAX_HEAD_BYTES + self._body_content:
            return self._refuse(TOO_LARGE, "body")
        if self.flow.read_paused:
            return HOLD
        wait = self._chunk_rate.take(now, self._chunks)
        self._chunks = 0
        self._chunks_ready_at = now + wait
        return wait or (YIELD if unread else READ_MORE)

    def _feed(self, data: bytes) -> bool:
        """Parse; return False if this protocol has nothing more to parse on the connection."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._upgrade()
                return False
            self.cycle.keep_alive = False  # an unsupported upgrade is ignored (RFC 9110, 7.8)
        except httptools.HttpParserError:
            if self._complete and self._serving:  # data after a chunked body is not served
                return True
            self._refuse(MALFORMED, "malformed")
            return False
        return True

    def _upgrade(self) -> None:
        self.handle_websocket_upgrade()
        self.parser: Any = None  # breaks the reference cycle

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if not (self.parser.should_upgrade() and self._should_upgrade()):
            self._serving = True

    def on_body(self, body: bytes) -> None:
        self._body_content += len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """Count a chunk."""
        self._chunks += 1

    def on_message_complete(self) -> None:
        self._complete = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        if self._serving:  # after a chunked body: the connection closes after its response
            raise ValueError("one request at a time")
        super().on_message_begin()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        channel = self._channel
        metered = MeteredCoroutine(
            cycle.run_asgi(app),
            channel.services.anonymous_scheduler,
            lambda: not channel.is_identified,
        )
        task = channel.services.hooks.start_task(metered, "http-request")
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        """Continue with the next request, or close if this one has not been received entirely."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if not self._complete:
            self._channel.linger()
            return
        self._serving = False
        self._channel.reset_identity()
        self._channel.set_deadline(_KEEP_ALIVE_S, self._channel.close)
        self._channel.resume_processing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._channel.services.admission.expose(self._channel)
        self._channel.watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._serving and self._complete:
            self._channel.services.admission.protect(self._channel)

    def _expect_head(self) -> None:
        timeout_s = self._channel.services.limits.head_timeout_s
        self._channel.set_deadline(timeout_s, self._on_head_timeout)

    def _on_head_timeout(self) -> None:
        if self._head_begun:
            self._refuse(REQUEST_TIMEOUT, "slow")
        else:
            self._channel.count_refused("silent")
            self._channel.abort()

    def _check_upload(self) -> None:
        """Refuse a request whose body has stalled, unless the server itself paused reading."""
        moved = self._body_read - self._read_at_window_start
        outstanding = (
            MIN_WINDOW_BYTES if self._body_remaining is None else self._body_remaining + moved
        )
        if not self.flow.read_paused and stalled(moved, outstanding, MIN_WINDOW_BYTES):
            self._refuse(REQUEST_TIMEOUT, "slow")
            return
        self._read_at_window_start = self._body_read
        self._channel.set_deadline(STALL_WINDOW_S, self._check_upload)

    def _refuse(self, refusal: Refusal, reason: str) -> float | None:
        if self._serving and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self._channel.count_refused(reason)
                self._channel.abort()
                return HOLD
        body = self._channel.services.hooks.error_body(refusal)
        self._channel.refuse(_error_response(refusal, body), reason)
        return HOLD


def _ignore_response() -> None:
    """Do nothing: the connection of a completed response is lost."""


def _error_response(refusal: Refusal, body: bytes) -> bytes:
    """Return a complete HTTP response with a JSON body."""
    head = (
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
