"""HTTP request heads: finding their end and checking their limits. Pure."""

from typing import NamedTuple

MAX_HEAD_BYTES = 16_384  # request line and all headers
MAX_LINE_BYTES = 8_192
MAX_HEADERS = 100
_END = b"\r\n\r\n"
_LINE_END = b"\r\n"


class HeadRefusal(NamedTuple):
    """The error response to a request that is not served."""

    status: int
    code: str
    message: str


TOO_LARGE = HeadRefusal(
    431, "headers_too_large",
    f"headers: expected at most {MAX_HEAD_BYTES} bytes in at most {MAX_HEADERS} lines of at most "
    f"{MAX_LINE_BYTES} bytes each",
)  # fmt: skip
TARGET_TOO_LONG = HeadRefusal(
    414, "address_too_long", f"address: expected at most {MAX_LINE_BYTES} bytes"
)
MALFORMED = HeadRefusal(400, "invalid_request", "expected an HTTP/1.1 request")
REQUEST_TIMEOUT = HeadRefusal(408, "too_slow", "the request did not arrive in time")


def find_head_end(data: bytearray, searched: int) -> int | HeadRefusal | None:
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
