"""WebSocket frame boundaries (RFC 6455, section 5.2) and rate limits on frames. Pure.

Frames are counted before they are parsed, because parsing is the expensive part of a flood.
"""

from typing import NamedTuple

from foremind.domain.rate_limits import TokenBucket, ViolationBudget

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
