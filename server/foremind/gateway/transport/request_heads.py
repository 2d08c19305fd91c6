"""The head of an HTTP request: where it ends, and whether it is within its limits. Pure."""

from typing import NamedTuple

MOST_HEAD = 16_384  # bytes, of the request line and all headers
MOST_LINE = 8_192  # bytes of one line
MOST_HEADERS = 100
_END = b"\r\n\r\n"
_LINE_END = b"\r\n"


class HeadRefusal(NamedTuple):
    """Why something is not served."""

    status: int
    code: str
    message: str


TOO_LARGE = HeadRefusal(
    431, "headers_too_large",
    f"headers: expected at most {MOST_HEAD} bytes, {MOST_HEADERS} lines of {MOST_LINE}",
)  # fmt: skip
LONG_TARGET = HeadRefusal(414, "address_too_long", f"address: expected at most {MOST_LINE} bytes")
MALFORMED = HeadRefusal(400, "invalid_request", "expected an HTTP/1.1 request")
TOO_LATE = HeadRefusal(408, "too_slow", "the request did not come in time")


def end_of_head(data: bytearray, searched: int) -> int | HeadRefusal | None:
    """Return how many bytes the head has; None where it is not whole yet.

    Args:
        searched: how many of the bytes were there the last time.
    """
    if data and not (65 <= data[0] <= 90):  # no method begins like this: not HTTP
        return MALFORMED
    found = data.find(_END, max(0, searched - len(_END) + 1))
    end = found + len(_END)
    if found < 0:
        if len(data) <= MOST_LINE:
            return None
        if data.find(_LINE_END, 0, MOST_LINE) < 0:
            return LONG_TARGET
        return TOO_LARGE if len(data) > MOST_HEAD else None
    lines = bytes(data[:found]).split(_LINE_END)
    if len(lines[0]) > MOST_LINE:
        return LONG_TARGET
    if end > MOST_HEAD or len(lines) > MOST_HEADERS + 1 or max(map(len, lines)) > MOST_LINE:
        return TOO_LARGE
    return end


def blank_before(data: bytearray) -> int:
    """Return how many bytes of empty lines come before a request, as some clients send them."""
    return len(data) - len(data.lstrip(_LINE_END))


def stalled(moved: int, outstanding: int, least: int) -> bool:
    """Tell whether a transfer stands still.

    Args:
        moved: bytes that went over in a window of time.
        outstanding: bytes that there were to move when it began.
        least: bytes that go over in a window where it goes on.
    """
    return moved < min(outstanding, least)
