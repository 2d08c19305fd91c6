"""One TCP connection: reads in slices and by turns, for whoever speaks on it."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from foremind.domain.clock import Clock, Timer
from foremind.domain.settings import Settings
from foremind.gateway.transport.admission import Admission
from foremind.gateway.transport.fair_scheduling import AnonymousScheduler, FairScheduler
from foremind.gateway.transport.request_heads import stalled
from foremind.runtime.metrics import Metrics

#: What a speaker's `step` returns besides seconds to wait.
READ_ON, HOLD, NEXT_TURN = None, math.inf, 0.0

WINDOW_S = 10.0  # a transfer in which nothing moves for so long is ended
LEAST_MOVED = 10_240  # bytes in a window of one that goes on

_CHUNK = 16_384  # bytes read at once
_LINGER_S = 2.0  # for an answer to arrive before its connection is closed
_LINGER_BYTES = 262_144  # that a client may still send meanwhile
_room = memoryview(bytearray(_CHUNK))  # one for all: who has read takes its bytes out at once


class ProtocolHandler(Protocol):
    """A protocol on a channel: HTTP, then perhaps WebSocket."""

    def step(self, unread: bytearray) -> float | None:
        """Take a slice from the front of what was read.

        Returns:
            READ_ON: it needs more; HOLD: it will call `Channel.go_on`; else seconds until it can
            take more, 0 being its next turn.
        """

    def holds(self) -> int:
        """Return the bytes that it holds of what was taken but is not whole yet."""

    def connection_made(self, transport: Any) -> None:
        """As in `asyncio.Protocol`, with the channel as the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As in `asyncio.Protocol`."""

    def pause_writing(self) -> None:
        """As in `asyncio.Protocol`."""

    def resume_writing(self) -> None:
        """As in `asyncio.Protocol`."""


class _NoHandler:
    """Speaks where nobody is connected any more.

    A channel and its speaker would wait for the garbage collector otherwise, with all that they
    hold, and going through tens of thousands of them takes it, and every player, half a second.
    """

    def step(self, unread: bytearray) -> float | None:
        return HOLD

    def holds(self) -> int:
        return 0

    def connection_made(self, transport: Any) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


_NOBODY = _NoHandler()


@dataclass(frozen=True, slots=True)
class TransportServices:
    """What all channels of a server share; `speaker` makes what speaks first."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    admission: Admission
    anonymous: AnonymousScheduler
    known: FairScheduler
    speaker: Callable[["Channel"], ProtocolHandler]
    most_frame: int


class Channel(asyncio.BufferedProtocol):
    """A connection as the event loop sees it, and the transport of its speaker.

    It reads at most a chunk at a time. One that is anonymous has every chunk handled in its turn
    among the others; one that is known at once, and what exceeds a chunk by turns. While anything
    is unhandled it is not read, which slows its sender at nobody else's cost.
    """

    __slots__ = (
        "_alarm", "_awaited", "_flushed", "_held", "_known", "_linger", "_lost",
        "_outstanding", "_reader_watch", "_reading", "_speaker", "_transport", "_unread",
        "_working", "_written", "address", "receiving", "services",
    )  # fmt: skip

    def __init__(self, services: TransportServices, address: str) -> None:
        self.services = services
        self.address = address
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._speaker: ProtocolHandler = services.speaker(self)
        self._unread = bytearray()
        #: Whether the client is still to send what its speaker waits for.
        self.receiving = False
        self._known = False
        self._held = False  # the speaker has asked not to be given more
        self._reading = True
        self._working = False
        self._lost = False
        self._linger: int | None = None  # bytes that may still come
        self._alarm: Timer | None = None  # until the speaker takes more
        self._awaited: Timer | None = None  # what the speaker gave its client time for
        self._reader_watch: Timer | None = None
        self._written = self._flushed = self._outstanding = 0

    # As the event loop's protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        if self._lost:  # evicted before it began
            self._transport.abort()
            return
        self._speaker.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._lost = True
        self._unread.clear()
        for timer in (self._alarm, self._awaited, self._reader_watch):
            if timer is not None:
                timer.cancel()
        self.services.admission.leave(self)
        self._line.leave(self)
        speaker, self._speaker = self._speaker, _NOBODY
        speaker.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return _room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was read, or wait for a turn to."""
        if self._linger is not None:
            self._linger -= nbytes
            if self._linger < 0:
                self._transport.abort()
            return
        self._unread += _room[:nbytes]
        if not self._known or self.receiving:
            self._tell_held()
        if self._held:
            self._pause()
        elif self._known and nbytes < _CHUNK:
            self._work()
        else:
            self._pause()
            self._line.ask(self)

    def eof_received(self) -> None:
        """Close when the client has said all it has to say."""

    def pause_writing(self) -> None:
        """Tell the speaker that its client reads too slowly."""
        self._speaker.pause_writing()

    def resume_writing(self) -> None:
        """Tell the speaker that its client has read."""
        self._speaker.resume_writing()

    # Turns.

    @property
    def _line(self) -> FairScheduler:
        return self.services.known if self._known else self.services.anonymous

    def take_turn(self) -> None:
        """Handle one slice."""
        if self._known:
            self._work()
            return
        with self.services.anonymous.spending():
            self._work()

    def go_on(self) -> None:
        """Take more again, after a hold."""
        self._held = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._working or self.is_closing():
            return
        if not self._unread:
            self._resume()
        elif self._known:
            self._work()
        else:
            self._line.ask(self)

    def _work(self) -> None:
        if self.is_closing():
            self._unread.clear()
            return
        self._working = True
        try:
            wait = self._speaker.step(self._unread)
        finally:
            self._working = False
        if not self._known:
            self._tell_held()
        if self.is_closing():
            self._unread.clear()
        elif wait is READ_ON:
            self._resume()
        elif wait == NEXT_TURN:
            self._pause()
            self._line.ask(self)
        else:
            self._held = True
            if self._unread:
                self._pause()
            else:
                self._resume()  # or nobody would notice that the client leaves
            if wait != HOLD:
                clock = self.services.clock
                self._alarm = clock.call_at(clock.monotonic() + wait, self.go_on)

    def _tell_held(self) -> None:
        self.services.admission.heard(self, len(self._unread) + self._speaker.holds())

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    # Who it is.

    @property
    def known(self) -> bool:
        """Whether whoever is connected has said who it is."""
        return self._known

    def identified(self) -> None:
        """Note that its client has said who it is."""
        if not self._known:
            self._line.leave(self)
            self._known = True
            if not self.receiving:  # a body that is still to come may take as long as it likes
                self.services.admission.protect(self)
            if self._unread and not self._held:
                self._line.ask(self)

    def anonymous_again(self) -> None:
        """Note that whoever sends next may be somebody else."""
        self._line.leave(self)
        self._known = False
        self.services.admission.expose(self)

    def evict(self) -> None:
        """End at once; others want the place."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    # Time.

    def expect(self, seconds: float, overdue: Callable[[], None]) -> None:
        """Call `overdue` unless something else is expected by then, or nothing."""
        self.expect_nothing()
        clock = self.services.clock
        self._awaited = clock.call_at(clock.monotonic() + seconds, overdue)

    def expect_nothing(self) -> None:
        """Wait without a limit."""
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None

    def watch_reader(self) -> None:
        """End the connection where its client stops reading what waits for it."""
        if self._reader_watch is None and not self._lost:
            self._outstanding = self._transport.get_write_buffer_size()
            self._flushed = self._written - self._outstanding
            clock = self.services.clock
            self._reader_watch = clock.call_at(clock.monotonic() + WINDOW_S, self._check_reader)

    def _check_reader(self) -> None:
        self._reader_watch = None
        left = self._transport.get_write_buffer_size()
        if self._lost or not left:
            return
        if stalled(self._written - left - self._flushed, self._outstanding, LEAST_MOVED):
            self.count_refused("unread")
            self._transport.abort()
        else:
            self.watch_reader()

    def count_refused(self, reason: str) -> None:
        """Count something that its client was refused."""
        self.services.metrics.refused.labels(reason).inc()

    def refuse(self, answer: bytes, reason: str) -> None:
        """Answer for the last time, and close once that had time to arrive."""
        self.count_refused(reason)
        self.write(answer)
        self.linger()

    def linger(self) -> None:
        """Close, but let what was written arrive: what still comes in is dropped for a while."""
        if self._linger is not None or self._lost or self._transport.is_closing():
            return
        self._linger = _LINGER_BYTES
        self._unread.clear()
        self._line.leave(self)
        self.services.admission.expose(self)
        try:
            self._transport.write_eof()
        except OSError:  # the client is gone; while reading is paused nothing else tells
            self._transport.abort()
            return
        self._resume()
        self.expect(_LINGER_S, self._transport.abort)

    # As the speaker's transport.

    def write(self, data: bytes) -> None:
        """Send, once the client reads."""
        if self._linger is None:
            self._written += len(data)
            self._transport.write(data)

    def close(self) -> None:
        """Close once everything is sent; a client that does not read is not waited for."""
        if self.receiving:
            self.linger()
        elif self._linger is None and not self._lost:
            self._transport.close()
            self.watch_reader()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether nothing more is to be said."""
        return self._lost or self._linger is not None or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Take no more for now."""
        self._held = True

    def resume_reading(self) -> None:
        """Take more again."""
        self.go_on()

    def set_protocol(self, speaker: ProtocolHandler) -> None:
        """Let another speak from now on."""
        self._speaker = speaker

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the socket."""
        return self._transport.get_extra_info(name, default)
