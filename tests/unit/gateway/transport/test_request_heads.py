"""Heads of requests: where they end, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.gateway.transport.request_heads import (
    LONG_TARGET,
    MALFORMED,
    MOST_HEAD,
    MOST_LINE,
    TOO_LARGE,
    HeadRefusal,
    blank_before,
    end_of_head,
    stalled,
)

HEAD = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"


@given(st.integers(0, len(HEAD)), st.binary(max_size=20))
def test_a_head_ends_where_it_ends_however_it_comes(cut: int, after: bytes) -> None:
    """Whatever comes after it."""
    data = bytearray(HEAD[:cut])
    first = end_of_head(data, 0)
    searched = len(data)
    data += HEAD[cut:] + after
    assert first is None or cut == len(HEAD)
    assert end_of_head(data, searched if first is None else 0) == len(HEAD)


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"\x16\x03\x01", MALFORMED),
        (b"get / HTTP/1.1\r\n", MALFORMED),
        (b"G" * (MOST_LINE + 1), LONG_TARGET),
        (b"GET /" + b"x" * MOST_LINE + b" HTTP/1.1\r\n\r\n", LONG_TARGET),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MOST_HEAD, TOO_LARGE),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MOST_LINE + b"\r\n\r\n", TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n", TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 3000, TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + (b"X: " + b"y" * 5000 + b"\r\n") * 4 + b"\r\n", TOO_LARGE),
    ],
)
def test_what_is_beyond_its_limits_is_refused(data: bytes, refusal: HeadRefusal) -> None:
    """In bytes, in number, in one line; before it is parsed."""
    assert end_of_head(bytearray(data), 0) == refusal


def test_an_endless_head_is_refused_before_it_ends() -> None:
    """However it comes."""
    data = bytearray(b"GET / HTTP/1.1\r\n")
    for _ in range(MOST_HEAD):
        searched = len(data)
        data += b"X"
        if (found := end_of_head(data, searched)) is not None:
            break
    assert found == TOO_LARGE
    assert len(data) == MOST_HEAD + 1


def test_a_hundred_headers_are_served() -> None:
    """As browsers and proxies together may send."""
    data = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100 + b"\r\n"
    assert end_of_head(bytearray(data), 0) == len(data)


def test_empty_lines_before_a_request_are_told() -> None:
    """Some clients send one."""
    assert blank_before(bytearray(b"\r\n\r\nGET /")) == 4
    assert blank_before(bytearray(b"GET /\r\n")) == 0


def test_a_transfer_stands_still_where_too_little_moves() -> None:
    """Little is enough where little is left."""
    assert stalled(moved=0, outstanding=1, least=1000)
    assert stalled(moved=999, outstanding=5000, least=1000)
    assert not stalled(moved=1000, outstanding=5000, least=1000)
    assert not stalled(moved=20, outstanding=20, least=1000)
