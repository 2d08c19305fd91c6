"""One TCP connection: reads in bounded chunks and schedules the processing of what was read."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from fair_transport.admission import Admission
from fair_transport.fair_scheduling import AnonymousScheduler, FairScheduler
from fair_transport.options import Hooks, Limits, Refusal, Timer

MAX_HEAD_BYTES = 16_384  # request line and all headers
MAX_LINE_BYTES = 8_192
MAX_HEADERS = 100
_END = b"\r\n\r\n"
_LINE_END = b"\r\n"


TOO_LARGE = Refusal(
    431, "headers_too_large",
    f"headers: expected at most {MAX_HEAD_BYTES} bytes in at most {MAX_HEADERS} lines of at most "
    f"{MAX_LINE_BYTES} bytes each",
)  # fmt: skip
TARGET_TOO_LONG = Refusal(
    414, "address_too_long", f"address: expected at most {MAX_LINE_BYTES} bytes"
)
MALFORMED = Refusal(400, "invalid_request", "expected an HTTP/1.1 request")
REQUEST_TIMEOUT = Refusal(408, "too_slow", "the request did not arrive in time")


def find_head_end(data: bytearray, searched: int) -> int | Refusal | None:
    """Return the length of the head in bytes, or None if it is incomplete.

    Args:
        searched: how many bytes of `data` an earlier call has searched already.
    """
    if data and not (65 <= data[0] <= 90):  # methods begin with A to Z: this is not HTTP
        return MALFORMED
    position = data.find(_END, max(0, searched - len(_END) + 1))
    end = position + len(_END)
    if position < 0:
        if len(data) <= MAX_LINE_BYTES:
            return None
        if data.find(_LINE_END, 0, MAX_LINE_BYTES) < 0:
            return TARGET_TOO_LONG
        return TOO_LARGE if len(data) > MAX_HEAD_BYTES else None
    lines = bytes(data[:position]).split(_LINE_END)
    if len(lines[0]) > MAX_LINE_BYTES:
        return TARGET_TOO_LONG
    too_many = end > MAX_HEAD_BYTES or len(lines) > MAX_HEADERS + 1
    if too_many or max(map(len, lines)) > MAX_LINE_BYTES:
        return TOO_LARGE
    return end


def leading_blank_bytes(data: bytearray) -> int:
    """Return the number of bytes of empty lines before a request, which some clients send."""
    return len(data) - len(data.lstrip(_LINE_END))


def stalled(moved: int, outstanding: int, minimum: int) -> bool:
    """Tell whether a transfer has stalled.

    Args:
        moved: bytes transferred during a time window.
        outstanding: bytes that were to be transferred when the window began.
        minimum: bytes per window below which a transfer counts as stalled.
    """
    return moved < min(outstanding, minimum)


#: What `ProtocolHandler.step` returns, other than seconds to wait.
READ_MORE, HOLD, YIELD = None, math.inf, 0.0


class ProtocolHandler(Protocol):
    """The protocol spoken on a channel: HTTP, and WebSocket after an upgrade."""

    def step(self, unread: bytearray) -> float | None:
        """Consume one slice from the front of the unread bytes.

        Returns:
            READ_MORE if it needs more bytes, HOLD if it will call `Channel.resume_processing`,
            otherwise the seconds until it can consume more, YIELD being its next slice.
        """

    def buffered_bytes(self) -> int:
        """Return how many consumed bytes of an incomplete message it buffers."""

    def connection_made(self, transport: Any) -> None:
        """As in `asyncio.Protocol`, with the channel as the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As in `asyncio.Protocol`."""

    def pause_writing(self) -> None:
        """As in `asyncio.Protocol`."""

    def resume_writing(self) -> None:
        """As in `asyncio.Protocol`."""


class NoHandler:
    """Replaces the handler once the connection is lost, to break the reference cycle.

    Otherwise channels and handlers would wait for the cyclic garbage collector, and traversing tens
    of thousands of them stops the process for half a second.
    """

    def step(self, unread: bytearray) -> float | None:
        return HOLD

    def buffered_bytes(self) -> int:
        return 0

    def connection_made(self, transport: Any) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


NO_HANDLER = NoHandler()


STALL_WINDOW_S = 10.0  # after which a stalled transfer is ended
MIN_WINDOW_BYTES = 10_240  # per window, below which a transfer counts as stalled

_CHUNK = 16_384  # bytes read at once
_LINGER_S = 2.0  # for a last response to arrive before its connection is closed
_LINGER_BYTES = 16 * 2**20  # that a client may still send meanwhile; nothing of it is kept
_LOOP_S = 0.00003  # that the event loop itself spends on a connection, unseen by the metering
_UNMETERED = contextlib.nullcontext()
_read_buffer = memoryview(bytearray(_CHUNK))  # shared: each read is copied out at once


@dataclass(frozen=True, slots=True)
class TransportServices:
    """What all channels of a server share; `create_handler` makes a channel's first handler."""

    limits: Limits
    hooks: Hooks
    admission: Admission
    anonymous_scheduler: AnonymousScheduler
    identified_scheduler: FairScheduler
    create_handler: Callable[["Channel"], ProtocolHandler]


class Channel(asyncio.BufferedProtocol):
    """A connection: the event loop's protocol, and the transport of its protocol handler.

    It reads at most one chunk at a time. Chunks of anonymous connections are processed by the
    anonymous scheduler; those of identified connections at once, and what exceeds a chunk by the
    scheduler. While anything is unprocessed reading is paused: TCP backpressure slows the sender
    down at nobody else's cost.
    """

    __slots__ = (
        "_deadline", "_flushed", "_handler", "_hold_timer", "_identified", "_linger_bytes",
        "_lost", "_on_hold", "_outstanding", "_processing", "_reader_watch", "_reading",
        "_transport", "_unread", "_written", "address", "receiving_body", "services",
    )  # fmt: skip

    def __init__(self, services: TransportServices, address: str) -> None:
        self.services = services
        self.address = address
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._handler: ProtocolHandler = services.create_handler(self)
        self._unread = bytearray()
        #: Whether a request body is still incomplete.
        self.receiving_body = False
        self._identified = False
        self._on_hold = False  # the handler has asked for no more data
        self._reading = True
        self._processing = False
        self._lost = False
        self._linger_bytes: int | None = None  # that may still arrive while lingering
        self._hold_timer: Timer | None = None  # until the handler accepts more
        self._deadline: Timer | None = None  # of what the handler expects from the client
        self._reader_watch: Timer | None = None
        self._written = self._flushed = self._outstanding = 0

    # The event loop's protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handler."""
        self._transport = cast(asyncio.Transport, transport)
        if self._lost:  # evicted before it started
            self._transport.abort()
            return
        with self._metered():
            self._handler.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything the connection holds."""
        with self._metered():
            self._release(exc)
        self.services.anonymous_scheduler.charge(_LOOP_S)

    def _release(self, exc: Exception | None) -> None:
        self._lost = True
        self._unread.clear()
        for timer in (self._hold_timer, self._deadline, self._reader_watch):
            if timer is not None:
                timer.cancel()
        self.services.admission.leave(self)
        self._scheduler.cancel(self)
        handler, self._handler = self._handler, NO_HANDLER
        handler.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read."""
        return _read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process what was read, or enqueue it."""
        if self._linger_bytes is not None:
            self._discard(nbytes)
            return
        self._unread += _read_buffer[:nbytes]
        if not self._identified or self.receiving_body:
            self._report_buffered()
        if self._on_hold:
            self._pause()
        elif self._identified and nbytes < _CHUNK:
            self._process()
        else:
            self._pause()
            self._scheduler.enqueue(self)

    def _discard(self, nbytes: int) -> None:
        """Take note of input after the last response; read on when it is this connection's turn."""
        self._linger_bytes = (self._linger_bytes or 0) - nbytes
        if self._linger_bytes < 0:
            self._transport.abort()
            return
        if not self._identified:
            self.services.anonymous_scheduler.charge(_LOOP_S)
        self._pause()
        self._scheduler.enqueue(self)

    def eof_received(self) -> None:
        """Close the connection when the client closes its side."""

    def pause_writing(self) -> None:
        """Tell the handler that the client reads too slowly."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Tell the handler that the client has caught up."""
        self._handler.resume_writing()

    # Scheduling.

    @property
    def _scheduler(self) -> FairScheduler:
        if self._identified:
            return self.services.identified_scheduler
        return self.services.anonymous_scheduler

    def run_slice(self) -> None:
        """Process one slice."""
        with self._metered():
            self._process()

    def _metered(self) -> contextlib.AbstractContextManager[None]:
        """Charge a block to anonymous connections while this is one."""
        if self._identified:
            return _UNMETERED
        return self.services.anonymous_scheduler.metered()

    def resume_processing(self) -> None:
        """Process more after a hold."""
        self._on_hold = False
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        if self._processing or self.is_closing():
            return
        if not self._unread:
            self._resume()
        elif self._identified:
            self._process()
        else:
            self._scheduler.enqueue(self)

    def _process(self) -> None:
        if self.is_closing():
            self._unread.clear()
            if not self._lost and not self._transport.is_closing():  # it lingers
                self._resume()
            return
        self._processing = True
        try:
            wait = self._handler.step(self._unread)
        finally:
            self._processing = False
        if not self._identified:
            self._report_buffered()
        if self.is_closing():
            self._unread.clear()
        elif wait is READ_MORE:
            self._resume()
        elif wait == YIELD:
            self._pause()
            self._scheduler.enqueue(self)
        else:
            self._on_hold = True
            if self._unread:
                self._pause()
            else:
                self._resume()  # otherwise a disconnect would go unnoticed
            if wait != HOLD:
                self._hold_timer = self._call_in(wait, self.resume_processing)

    def _report_buffered(self) -> None:
        self.services.admission.record_activity(
            self, len(self._unread) + self._handler.buffered_bytes()
        )

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    # Identity.

    @property
    def is_identified(self) -> bool:
        """Whether the client has authenticated."""
        return self._identified

    def mark_identified(self) -> None:
        """Record that the client has authenticated."""
        if not self._identified:
            self._scheduler.cancel(self)
            self._identified = True
            if not self.receiving_body:  # a slow upload stays evictable until it is complete
                self.services.admission.protect(self)
            if self._unread and not self._on_hold:
                self._scheduler.enqueue(self)

    def reset_identity(self) -> None:
        """Make the connection anonymous: the next request may be from another user."""
        self._scheduler.cancel(self)
        self._identified = False
        self.services.admission.expose(self)

    def evict(self) -> None:
        """Close at once, to make room for another connection."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    # Deadlines.

    def set_deadline(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        """Call `on_timeout` after `seconds`, unless the deadline is replaced or cleared before."""
        self.clear_deadline()
        self._deadline = self._call_in(seconds, on_timeout)

    def clear_deadline(self) -> None:
        """Cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def watch_reader(self) -> None:
        """Close the connection if the client stops reading what has been written."""
        if self._reader_watch is None and not self._lost:
            self._outstanding = self._transport.get_write_buffer_size()
            self._flushed = self._written - self._outstanding
            self._reader_watch = self._call_in(STALL_WINDOW_S, self._check_reader)

    def _call_in(self, seconds: float, callback: Callable[[], None]) -> Timer:
        hooks = self.services.hooks
        return hooks.call_at(hooks.monotonic() + seconds, callback)

    def _check_reader(self) -> None:
        self._reader_watch = None
        pending = self._transport.get_write_buffer_size()
        if self._lost or not pending:
            return
        if stalled(self._written - pending - self._flushed, self._outstanding, MIN_WINDOW_BYTES):
            self.count_refused("unread")
            self._transport.abort()
        else:
            self.watch_reader()

    def count_refused(self, reason: str) -> None:
        """Report that something was refused or ended."""
        self.services.hooks.on_refused(reason)

    def refuse(self, response: bytes, reason: str) -> None:
        """Send a last response, and close once it has had time to arrive."""
        self.count_refused(reason)
        self.write(response)
        self.linger()

    def linger(self) -> None:
        """Close after what was written has had time to arrive; further input is discarded."""
        if self._linger_bytes is not None or self._lost or self._transport.is_closing():
            return
        self._linger_bytes = _LINGER_BYTES
        self._unread.clear()
        self._scheduler.cancel(self)
        self.services.admission.expose(self)
        try:
            self._transport.write_eof()
        except OSError:  # disconnected, which goes unnoticed while reading is paused
            self._transport.abort()
            return
        self._resume()
        self.set_deadline(_LINGER_S, self._transport.abort)

    # The handler's transport.

    def write(self, data: bytes) -> None:
        """Send, or buffer until the client reads."""
        if self._linger_bytes is None:
            self._written += len(data)
            self._transport.write(data)

    def close(self) -> None:
        """Close once everything is sent; a client that does not read is cut off."""
        if self.receiving_body:
            self.linger()
        elif self._linger_bytes is None and not self._lost:
            self._transport.close()
            self.watch_reader()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closing or closed."""
        return self._lost or self._linger_bytes is not None or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Hold further data back from the handler."""
        self._on_hold = True

    def resume_reading(self) -> None:
        """Give the handler further data."""
        self.resume_processing()

    def set_protocol(self, handler: ProtocolHandler) -> None:
        """Replace the handler, as after an upgrade."""
        self._handler = handler

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As in `asyncio.BaseTransport`."""
        return self._transport.get_extra_info(name, default)
