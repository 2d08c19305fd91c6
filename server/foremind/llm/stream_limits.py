"""Byte limits on what a model server sends: it can neither exhaust memory nor stream for ever.

The client library buffers a line, an event or the body of an error until it ends, and decompresses
everything. So the bytes are counted before they reach it.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx2

# Maximum bytes of a response on top of its tokens: headers, keep-alive comments, the body of an
# error. The second is the maximum for an event that has not ended.
_OVERHEAD_BYTES, _EVENT_OVERHEAD_BYTES = 262_144, 65_536
# Servers send an event of a few hundred bytes per token, some with the results of filters.
_BYTES_PER_TOKEN = 4096
# A server may send its whole reply as one event: 16 characters per token, each escaped in JSON.
_EVENT_BYTES_PER_TOKEN = 96
# Passed on at once: events may be ten bytes long, and parsing them blocks the event loop.
_SLICE_BYTES = 4096

_BLANK_LINES = (b"\n\n", b"\r\r", b"\n\r")


class StreamLimitExceeded(httpx2.RemoteProtocolError):
    """A response exceeds its limits; the message says which and quotes nothing of it."""


class BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, limited to the bytes that a reply of so many tokens can take.

    Raises:
        StreamLimitExceeded: the limit is exceeded; the connection is then closed.
    """

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._bytes = self._event_bytes = 0
        self._last_byte = b""
        self.allow_tokens(0)

    def allow_tokens(self, max_tokens: int) -> None:
        """Raise the limits to those of a reply of `max_tokens`; initially overhead only."""
        self._max_bytes = _OVERHEAD_BYTES + max_tokens * _BYTES_PER_TOKEN
        self._max_event_bytes = _EVENT_OVERHEAD_BYTES + max_tokens * _EVENT_BYTES_PER_TOKEN

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for received in self._stream:
            for start in range(0, len(received), _SLICE_BYTES):
                if start:
                    await asyncio.sleep(0)
                piece = received[start : start + _SLICE_BYTES]
                self._count(piece)
                yield piece

    async def aclose(self) -> None:
        """Release the connection, or close it if the body has not ended."""
        await self._stream.aclose()

    def _count(self, piece: bytes) -> None:
        self._bytes += len(piece)
        text = self._last_byte + piece
        event_end = max(text.rfind(blank_line) for blank_line in _BLANK_LINES)
        self._event_bytes = (
            self._event_bytes + len(piece) if event_end < 0 else len(text) - event_end - 2
        )
        self._last_byte = text[-1:]
        if self._bytes > self._max_bytes or self._event_bytes > self._max_event_bytes:
            raise StreamLimitExceeded(
                "The language model server sent more data than a reply of the requested number of "
                "tokens can take."
            )


async def limit_response(response: httpx2.Response) -> None:
    """Limit the body of a response, as soon as its headers have arrived.

    Raises:
        StreamLimitExceeded: it is compressed, so that counting its bytes limits nothing.
    """
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = BoundedStream(response.stream)
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise StreamLimitExceeded(
            "The language model server compressed its reply although it was asked not to."
        )


def allow_tokens(response: httpx2.Response, max_tokens: int) -> None:
    """Raise the limits of a response to those of a reply of `max_tokens`."""
    assert isinstance(response.stream, BoundedStream)
    response.stream.allow_tokens(max_tokens)
