"""HTTP request heads: finding their end, and their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fair_transport.channel import (
    MALFORMED,
    MAX_HEAD_BYTES,
    MAX_LINE_BYTES,
    TARGET_TOO_LONG,
    TOO_LARGE,
    find_head_end,
    leading_blank_bytes,
    stalled,
)
from fair_transport.options import Refusal

HEAD = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"


@given(st.integers(0, len(HEAD)), st.binary(max_size=20))
def test_the_end_of_a_head_is_found_in_any_chunks(cut: int, following: bytes) -> None:
    """Whatever follows it."""
    data = bytearray(HEAD[:cut])
    first = find_head_end(data, 0)
    searched = len(data)
    data += HEAD[cut:] + following
    assert first is None or cut == len(HEAD)
    assert find_head_end(data, searched if first is None else 0) == len(HEAD)


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"\x16\x03\x01", MALFORMED),
        (b"get / HTTP/1.1\r\n", MALFORMED),
        (b"G" * (MAX_LINE_BYTES + 1), TARGET_TOO_LONG),
        (b"GET /" + b"x" * MAX_LINE_BYTES + b" HTTP/1.1\r\n\r\n", TARGET_TOO_LONG),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES, TOO_LARGE),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_LINE_BYTES + b"\r\n\r\n", TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n", TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 3000, TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + (b"X: " + b"y" * 5000 + b"\r\n") * 4 + b"\r\n", TOO_LARGE),
    ],
)
def test_a_head_beyond_its_limits_is_refused(data: bytes, refusal: Refusal) -> None:
    """In total bytes, number of headers and line length, before it is parsed."""
    assert find_head_end(bytearray(data), 0) == refusal


def test_an_endless_head_is_refused_as_soon_as_it_is_too_large() -> None:
    """Even if it arrives byte by byte."""
    data = bytearray(b"GET / HTTP/1.1\r\n")
    for _ in range(MAX_HEAD_BYTES):
        searched = len(data)
        data += b"X"
        if (result := find_head_end(data, searched)) is not None:
            break
    assert result == TOO_LARGE
    assert len(data) == MAX_HEAD_BYTES + 1


def test_a_hundred_headers_are_accepted() -> None:
    """Browsers and proxies together may send as many."""
    data = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100 + b"\r\n"
    assert find_head_end(bytearray(data), 0) == len(data)


def test_empty_lines_before_a_request_are_counted() -> None:
    """Some clients send one."""
    assert leading_blank_bytes(bytearray(b"\r\n\r\nGET /")) == 4
    assert leading_blank_bytes(bytearray(b"GET /\r\n")) == 0


def test_a_transfer_below_the_minimum_has_stalled() -> None:
    """Unless everything outstanding was transferred."""
    assert stalled(moved=0, outstanding=1, minimum=1000)
    assert stalled(moved=999, outstanding=5000, minimum=1000)
    assert not stalled(moved=1000, outstanding=5000, minimum=1000)
    assert not stalled(moved=20, outstanding=20, minimum=1000)
