"""What a client may have missed: the last events of a session, to be sent again. Pure."""

from collections.abc import Callable

import msgspec


class _BufferedEvent(msgspec.Struct, frozen=True, gc=False):
    seq: int
    frame: bytes
    at: float


class ReplayBuffer:
    """Holds at most so many events, bytes and seconds of a session; the oldest go first."""

    def __init__(self, most_events: int, most_bytes: int, seconds: float) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._kept: list[_BufferedEvent] = []  # a hundred or so: a deque would be larger
        self._bytes = 0
        self._newest = 0

    def add(self, seq: int, frame: bytes, now: float) -> None:
        """Keep an event; `seq` is one more than that of the event before."""
        self._kept.append(_BufferedEvent(seq, frame, now))
        self._bytes += len(frame)
        self._newest = seq
        while len(self._kept) > self._most_events or self._bytes > self._most_bytes:
            self._drop()
        self.prune(now)

    def replace_newest(self, frame: bytes, now: float) -> None:
        """Let the newest event say more than it did."""
        self._bytes -= len(self._kept.pop().frame)
        self.add(self._newest, frame, now)

    def rewrite(self, changed: Callable[[bytes], bytes]) -> None:
        """Let every event read as `changed` returns it."""
        self._kept = [_BufferedEvent(each.seq, changed(each.frame), each.at) for each in self._kept]
        self._bytes = sum(len(each.frame) for each in self._kept)

    def after(self, seq: int, now: float) -> list[bytes] | None:
        """Return every event after `seq`, or None where some of them are gone or never were."""
        self.prune(now)
        missed = self._newest - seq
        if not 0 <= missed <= len(self._kept):
            return None
        return [each.frame for each in self._kept[len(self._kept) - missed :]]

    def prune(self, now: float) -> None:
        """Drop what is too old."""
        while self._kept and self._kept[0].at <= now - self._seconds:
            self._drop()

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._bytes = 0

    def _drop(self) -> None:
        self._bytes -= len(self._kept.pop(0).frame)
