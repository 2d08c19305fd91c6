"""Where WebSocket frames begin and end (RFC 6455, section 5.2), and how many may come. Pure.

Frames are counted before anything parses them: parsing is what a flood of them costs.
"""

from typing import NamedTuple

from foremind.domain.rate_limits import TokenBucket, ViolationBudget

_FIN, _OPCODE, _MASKED = 0x80, 0x0F, 0x80
_CONTROL, CLOSE = 0x08, 0x08
_EXTRA_PER_S = 20.0  # frames besides those that complete a message: control, fragments
_BURST_S = 4.0
_PATIENCE_S = 3.0
_MOST_FRAGMENTS = 256  # of one message


class FramePiece(NamedTuple):
    """The next bytes of a stream that belong to one frame.

    Attributes:
        size: how many of the bytes at hand.
        first: the frame's first byte where it begins here, None where it goes on.
    """

    size: int
    first: int | None


class FrameSplitter:
    """Cuts a stream into frames as it comes in."""

    __slots__ = ("_left", "_most")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._left = 0

    def next(self, data: bytes | bytearray) -> FramePiece | None:
        """Return what comes next in `data`; None where a frame's head is not whole yet.

        Of a frame that is too long only the head is returned: a parser refuses it by that.
        """
        if self._left:
            size = min(self._left, len(data))
            self._left -= size
            return FramePiece(size, None)
        if len(data) < 2:
            return None
        length, head = data[1] & ~_MASKED, 2
        if length >= 126:
            extended = 2 if length == 126 else 8
            head += extended
            length = int.from_bytes(data[2 : 2 + extended], "big")
        if data[1] & _MASKED:
            head += 4
        if len(data) < head:
            return None
        if length > self._most:
            return FramePiece(head, data[0])
        size = min(head + length, len(data))
        self._left = head + length - size
        return FramePiece(size, data[0])


def opcode(first: int) -> int:
    """Return the opcode in a frame's first byte."""
    return first & _OPCODE


class FrameRateLimit:
    """Slows a connection down to the frames and bytes that it may send, and tells when to end it.

    Whole messages are counted by who handles them; what counts here is every byte, and each frame
    that completes no message.
    """

    __slots__ = ("_bytes", "_due", "_extra", "_fragments", "_patience")

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes = TokenBucket(bytes_per_s, _BURST_S)
        self._extra = TokenBucket(_EXTRA_PER_S, _BURST_S)
        self._patience = ViolationBudget(_PATIENCE_S)
        self._fragments = 0
        self._due = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds for which nothing more is to be read."""
        return max(0.0, self._due - now)

    def take(self, piece: FramePiece, idle_s: float, now: float) -> bool:
        """Count a piece; return False where its sender pressed on for too long.

        Args:
            idle_s: how long the server had waited for it.
        """
        wait = self._bytes.take(now, piece.size)
        if piece.first is not None:
            complete = piece.first & _FIN
            control = piece.first & _OPCODE >= _CONTROL
            if control or not complete:
                wait = max(wait, self._extra.take(now))
            if not control:
                self._fragments = 0 if complete else self._fragments + 1
        self._due = now + wait
        pressed = self._patience.lost(wait, idle_s)
        return not pressed and self._fragments <= _MOST_FRAGMENTS
