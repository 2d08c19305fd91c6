"""The event stream of one session: numbered, sent to its connection, buffered for replay."""

from typing import Protocol

from foremind.domain.clock import Clock
from foremind.gateway.protocol.server_events import Event, ResponseDelta, encode, without_memories
from foremind.gateway.replay_buffer import ReplayBuffer

MAX_REPLAY_EVENTS = 128
MAX_REPLAY_BYTES = 262_144
_MAX_MERGED_CHARS = 4096  # of a delta; the next piece then starts another event


class EventListener(Protocol):
    """The connection that receives a session's events.

    `accepted` is the number of connections that this process had accepted before it.
    """

    accepted: int

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        """Send a frame; return False if it was dropped, which happens to telemetry only."""

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
        if self._listener is not None and not self._listener.put(frame, telemetry=telemetry):
            return
        self.seq = event.seq
        self._replay.add(event.seq, frame, self._clock.monotonic())
        delta = event if isinstance(event, ResponseDelta) else None
        self._unsent_delta = delta if self._listener is None else None

    def send_unnumbered(self, event: Event) -> None:
        """Send an event that does not advance `seq` and is not replayed."""
        if self._listener is not None:
            self._listener.put(encode(event))

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
        delta.delta += event.delta
        self._replay.replace_newest(encode(delta), self._clock.monotonic())
        return True
