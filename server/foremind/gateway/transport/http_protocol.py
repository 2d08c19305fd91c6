"""uvicorn's HTTP protocol with bounds: heads, bodies, pipelines and answers, in bytes and time."""

from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foremind.domain.errors import RequestError, TemporaryError
from foremind.gateway.transport.body_limits import error_body
from foremind.gateway.transport.channel import (
    HOLD,
    LEAST_MOVED,
    NEXT_TURN,
    READ_ON,
    WINDOW_S,
    Channel,
)
from foremind.gateway.transport.fair_scheduling import MeteredCoroutine
from foremind.gateway.transport.request_heads import (
    MALFORMED,
    MOST_HEAD,
    TOO_LARGE,
    TOO_LATE,
    HeadRefusal,
    blank_before,
    end_of_head,
    stalled,
)
from foremind.runtime.supervision import begin

_KEEP_ALIVE_S = 5.0
_SLICE = 4096  # bytes of a body handed over at once: in small chunks they are many calls


class BoundedHttpProtocol(HttpToolsProtocol):
    """Serves one request after the other; what is sent ahead of its turn is not even read.

    A head is parsed once it is whole and within its limits, a body as it comes. What a body takes
    beyond what it carries (chunk sizes, extensions, trailers) is bounded too.
    """

    def __init__(self, channel: Channel, **options: Any) -> None:
        super().__init__(app_state={"connection": channel}, **options)
        self._channel = channel
        self._searched = 0  # bytes of a head that is not whole
        self._blank = 0  # bytes of empty lines before it
        self._begun = False  # a head has begun to come
        self._whole = True  # the present request has come, body and all
        self._serving = False  # the present request is not answered
        self._body_left: int | None = 0  # bytes; None where the client does not say
        self._body_read = self._body_taken = 0  # bytes read of a body, and of what it carries
        self._read_before = 0  # when its window began

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self.cycle is not None:
            self.cycle.on_response = _nothing  # it refers back to this

    def holds(self) -> int:
        """Return the bytes of a body that were not taken yet."""
        return len(self.cycle.body) if self._serving else 0

    def step(self, unread: bytearray) -> float | None:
        """Take a head, or a slice of a body."""
        if not self._whole:
            return self._take_body(unread)
        if self._serving:
            return HOLD
        return self._take_head(unread)

    def _take_head(self, unread: bytearray) -> float | None:
        if not self._begun and unread:
            self._begun = True
            self._expect_head()
        blank = blank_before(unread)
        del unread[:blank]
        self._blank += blank
        end = end_of_head(unread, self._searched) if self._blank <= MOST_HEAD else TOO_LARGE
        if end is None:
            self._searched = len(unread)
            return READ_ON
        if isinstance(end, HeadRefusal):
            return self._refuse(end, "head")
        head = bytes(unread[:end])
        del unread[:end]
        self._searched = self._blank = 0
        self._begun = False
        self._whole = False
        self._channel.expect_nothing()
        if not self._feed(head):
            return HOLD
        if not self._whole:
            self._begin_body()
        elif self._serving:
            self._channel.services.admission.protect(self._channel)
        return NEXT_TURN if unread else READ_ON

    def _begin_body(self) -> None:
        lengths = [value for name, value in self.headers if name == b"content-length"]
        self._body_left = int(lengths[0]) if lengths else None
        if not lengths:  # its end is known only once it is parsed, with what comes after it
            self.cycle.keep_alive = False
        self._body_read = self._body_taken = self._read_before = 0
        self._channel.receiving = True
        self._channel.expect(WINDOW_S, self._check_upload)

    def _take_body(self, unread: bytearray) -> float | None:
        if self.flow.read_paused:
            return HOLD
        size = min(len(unread), _SLICE)
        if self._body_left is not None:
            size = min(size, self._body_left)
            self._body_left -= size
        piece = bytes(unread[:size])
        del unread[:size]
        self._body_read += size
        if not self._feed(piece):
            return HOLD
        if self._whole:
            self._channel.receiving = False
            self._channel.expect_nothing()
            self._channel.services.admission.protect(self._channel)
            return HOLD
        if self._body_read - self._body_taken > MOST_HEAD + self._body_taken:
            return self._refuse(TOO_LARGE, "body")
        if self.flow.read_paused:
            return HOLD
        return NEXT_TURN if unread else READ_ON

    def _feed(self, data: bytes) -> bool:
        """Parse; return False where another protocol or nobody speaks from here on."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._upgrade()
                return False
            self.cycle.keep_alive = False  # answered as if it had asked for nothing else
        except httptools.HttpParserError:
            if self._whole and self._serving:  # more behind a body in chunks: it is not served
                return True
            self._refuse(MALFORMED, "malformed")
            return False
        return True

    def _upgrade(self) -> None:
        self.handle_websocket_upgrade()
        self.parser: Any = None  # it refers back to this

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if not (self.parser.should_upgrade() and self._should_upgrade()):
            self._serving = True

    def on_body(self, body: bytes) -> None:
        self._body_taken += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        if self._serving:  # behind a body of unknown length: this connection ends with its answer
            raise ValueError("one request at a time")
        super().on_message_begin()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        channel = self._channel
        work = MeteredCoroutine(
            cycle.run_asgi(app), channel.services.anonymous, lambda: not channel.known
        )
        task = begin(work, "http-request")
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        """Go on with the next request, or close where the client is still sending this one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if not self._whole:
            self._channel.linger()
            return
        self._serving = False
        self._channel.anonymous_again()
        self._channel.expect(_KEEP_ALIVE_S, self._channel.close)
        self._channel.go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._channel.services.admission.expose(self._channel)
        self._channel.watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._serving and self._whole:
            self._channel.services.admission.protect(self._channel)

    def _expect_head(self) -> None:
        self._channel.expect(self._channel.services.settings.open_timeout_s, self._head_overdue)

    def _head_overdue(self) -> None:
        if self._begun:
            self._refuse(TOO_LATE, "slow")
        else:
            self._channel.count_refused("silent")
            self._channel.abort()

    def _check_upload(self) -> None:
        """End a request whose body does not come; whoever is held back by us is not blamed."""
        moved = self._body_read - self._read_before
        most = LEAST_MOVED if self._body_left is None else self._body_left + moved
        if not self.flow.read_paused and stalled(moved, most, LEAST_MOVED):
            self._refuse(TOO_LATE, "slow")
            return
        self._read_before = self._body_read
        self._channel.expect(WINDOW_S, self._check_upload)

    def _refuse(self, refusal: HeadRefusal, reason: str) -> float | None:
        if self._serving and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self._channel.count_refused(reason)
                self._channel.abort()
                return HOLD
        self._channel.refuse(_answer(refusal), reason)
        return HOLD


def _nothing() -> None:
    """Take note of an answer that nobody waits for."""


def _answer(refusal: HeadRefusal) -> bytes:
    """Return a response in the shape that every error has."""
    late = refusal is TOO_LATE
    kind = TemporaryError.kind if late else RequestError.kind
    body = error_body(kind, refusal.code, refusal.message, retryable=late)
    head = (
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
