"""The newest events of a session, buffered for clients that reconnect. Pure."""

from collections.abc import Callable

import msgspec


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

    def replace_newest(self, frame: bytes, now: float) -> None:
        """Replace the newest event's frame."""
        self._bytes -= len(self._events.pop().frame)
        self.add(self._newest_seq, frame, now)

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
