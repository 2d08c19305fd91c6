"""The events of one session: numbered, sent to whoever is connected, kept for who comes back."""

from typing import Protocol

from foremind.domain.clock import Clock
from foremind.gateway.protocol.messages import Event, ResponseDelta, encode, without_memories
from foremind.gateway.replay_buffer import ReplayBuffer

MOST_EVENTS = 128
MOST_BYTES = 262_144
_MOST_JOINED = 4096  # characters that one event says before the next begins


class EventListener(Protocol):
    """Where events go while somebody is connected."""

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        """Send a frame; False where it was dropped, which happens to telemetry only."""

    def close(self, code: int, reason: str) -> None:
        """End the connection once what waits is sent."""


class EventStream:
    """Sends events in order; `seq` rises by one with each.

    Args:
        keep_s: how long events are kept for a client that lost its connection.
    """

    def __init__(self, keep_s: float, clock: Clock) -> None:
        #: The number of the last event.
        self.seq = 0
        self._clock = clock
        self._kept = ReplayBuffer(MOST_EVENTS, MOST_BYTES, keep_s)
        self._listener: EventListener | None = None
        self._unheard: ResponseDelta | None = None  # the newest event, if nobody can have heard it

    @property
    def listener(self) -> EventListener | None:
        """Who is connected."""
        return self._listener

    def attach(self, listener: EventListener | None) -> None:
        """Send to this connection from now on; None: nobody listens."""
        self._listener = listener
        self._unheard = None

    def emit(self, event: Event, *, telemetry: bool = False) -> None:
        """Send an event, or keep it where nobody listens.

        Telemetry that a slow reader has no room for is dropped and takes no number.
        """
        if self._listener is None and self._joined(event):
            return
        event.seq = self.seq + 1
        frame = encode(event)
        if self._listener is not None and not self._listener.put(frame, telemetry=telemetry):
            return
        self.seq = event.seq
        self._kept.add(event.seq, frame, self._clock.monotonic())
        piece = event if isinstance(event, ResponseDelta) else None
        self._unheard = piece if self._listener is None else None

    def greet(self, event: Event) -> None:
        """Send an event that takes no number: it carries one that the client has."""
        if self._listener is not None:
            self._listener.put(encode(event))

    def missed(self, seq: int) -> list[bytes] | None:
        """Return what came after `seq`; None where it cannot be given whole."""
        return self._kept.after(seq, self._clock.monotonic())

    def replay(self, frames: list[bytes]) -> None:
        """Send events again."""
        if self._listener is not None:
            for frame in frames:
                self._listener.put(frame)

    def forget(self) -> None:
        """Drop what was said: something in it is forgotten, and must not be said again."""
        self._kept.clear()
        self._unheard = None

    def withhold_memories(self) -> None:
        """Take the memories out of what may be sent again: who comes back may not read them."""
        self._kept.rewrite(without_memories)

    def prune(self) -> None:
        """Drop events that are too old to be asked for."""
        self._kept.prune(self._clock.monotonic())

    def _joined(self, event: Event) -> bool:
        """Let the pieces of a reply that nobody hears be one event: long replies stay whole."""
        before = self._unheard
        if not isinstance(event, ResponseDelta) or before is None:
            return False
        if before.response_id != event.response_id or len(before.delta) > _MOST_JOINED:
            return False
        before.delta += event.delta
        self._kept.replace_newest(encode(before), self._clock.monotonic())
        return True
