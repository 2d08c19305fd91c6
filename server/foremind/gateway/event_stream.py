"""The event stream of one session: numbered, sent to its connection, buffered for replay."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from foremind.domain.clock import Clock
from foremind.gateway.protocol.server_events import Event, ResponseDelta, encode, without_memories

MAX_REPLAY_EVENTS = 128
MAX_REPLAY_BYTES = 262_144
_MAX_MERGED_CHARS = 4096  # of a delta; the next piece then starts another event


class EventListener(Protocol):
    """The connection that receives a session's events.

    `accepted` is the number of connections that this process had accepted before it.
    """

    accepted: int

    def put(self, frame: bytes, *, event: Event | None = None, telemetry: bool = False) -> bool:
        """Send a frame; return False if it was dropped, which happens to telemetry only.

        Args:
            event: what the frame says, None if it is sent again.
        """

    def close(self, code: int, reason: str) -> None:
        """Close the connection once everything queued is sent."""


class EventStream:
    """Sends events in order; `seq` increases by one with each.

    Args:
        replay_s: how long events are kept for a client that lost its connection, in seconds.
    """

    def __init__(self, replay_s: float, clock: Clock) -> None:
        #: The number of the last event.
        self.seq = 0
        self._clock = clock
        self._replay = ReplayBuffer(MAX_REPLAY_EVENTS, MAX_REPLAY_BYTES, replay_s)
        self._listener: EventListener | None = None
        # The newest event, if it is a delta that was sent to nobody: later ones may extend it.
        self._unsent_delta: ResponseDelta | None = None

    @property
    def listener(self) -> EventListener | None:
        """The current connection."""
        return self._listener

    def attach(self, listener: EventListener | None) -> None:
        """Send to this connection from now on; None detaches the current one."""
        self._listener = listener
        self._unsent_delta = None

    def emit(self, event: Event, *, telemetry: bool = False) -> None:
        """Send an event, or only buffer it while nobody is connected.

        Telemetry that a slow reader has no room for is dropped and does not take a number.
        """
        if self._listener is None and self._merged(event):
            return
        event.seq = self.seq + 1
        frame = encode(event)
        if self._listener is not None and not self._listener.put(
            frame, event=event, telemetry=telemetry
        ):
            return
        self.seq = event.seq
        self._replay.add(event.seq, frame, self._clock.monotonic())
        delta = event if isinstance(event, ResponseDelta) else None
        self._unsent_delta = delta if self._listener is None else None

    def send_unnumbered(self, event: Event) -> None:
        """Send an event that does not advance `seq` and is not replayed."""
        if self._listener is not None:
            self._listener.put(encode(event), event=event)

    def missed(self, seq: int) -> list[bytes] | None:
        """Return the events after `seq`, or None if they are no longer complete."""
        return self._replay.after(seq, self._clock.monotonic())

    def replay(self, frames: list[bytes]) -> None:
        """Send buffered events again."""
        if self._listener is not None:
            for frame in frames:
                self._listener.put(frame)

    def clear(self) -> None:
        """Drop the buffered events: they may contain erased text."""
        self._replay.clear()
        self._unsent_delta = None

    def withhold_memories(self) -> None:
        """Remove memories from the buffered events: the client may no longer read them."""
        self._replay.rewrite(without_memories)

    def prune(self) -> None:
        """Drop expired events."""
        self._replay.prune(self._clock.monotonic())

    def _merged(self, event: Event) -> bool:
        """Append a delta to the newest unsent one, so that long replies stay replayable."""
        delta = self._unsent_delta
        if not isinstance(event, ResponseDelta) or delta is None:
            return False
        if delta.response_id != event.response_id or len(delta.delta) > _MAX_MERGED_CHARS:
            return False
        longer = msgspec.structs.replace(delta, delta=delta.delta + event.delta)
        if not self._replay.replace_newest(encode(longer), self._clock.monotonic()):
            return False
        self._unsent_delta = longer
        return True


class _BufferedEvent(msgspec.Struct, frozen=True, gc=False):
    seq: int
    frame: bytes
    at: float


class ReplayBuffer:
    """Bounded in events, bytes and seconds; the oldest events are evicted first."""

    def __init__(self, max_events: int, max_bytes: int, max_age_s: float) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._events: list[_BufferedEvent] = []  # at about a hundred, a deque would be larger
        self._bytes = 0
        self._newest_seq = 0

    def add(self, seq: int, frame: bytes, now: float) -> None:
        """Append an event; `seq` is one more than that of the previous event."""
        self._events.append(_BufferedEvent(seq, frame, now))
        self._bytes += len(frame)
        self._newest_seq = seq
        while len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._evict()
        self.prune(now)

    def replace_newest(self, frame: bytes, now: float) -> bool:
        """Replace the newest event's frame; return False if that is no longer kept."""
        if not self._events:
            return False
        self._bytes -= len(self._events.pop().frame)
        self.add(self._newest_seq, frame, now)
        return True

    def rewrite(self, rewritten: Callable[[bytes], bytes]) -> None:
        """Replace every frame by what `rewritten` returns for it."""
        self._events = [
            _BufferedEvent(event.seq, rewritten(event.frame), event.at) for event in self._events
        ]
        self._bytes = sum(len(event.frame) for event in self._events)

    def after(self, seq: int, now: float) -> list[bytes] | None:
        """Return all events after `seq`; None if some were evicted, or `seq` was never reached."""
        self.prune(now)
        missed = self._newest_seq - seq
        if not 0 <= missed <= len(self._events):
            return None
        return [event.frame for event in self._events[len(self._events) - missed :]]

    def prune(self, now: float) -> None:
        """Drop expired events."""
        while self._events and self._events[0].at <= now - self._max_age_s:
            self._evict()

    def clear(self) -> None:
        """Drop all events."""
        self._events.clear()
        self._bytes = 0

    def _evict(self) -> None:
        self._bytes -= len(self._events.pop(0).frame)
