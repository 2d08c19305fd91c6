"""What a model server sends is counted as it comes: it can neither fill memory nor go on for ever.

The library that reads replies keeps a line, an event or the body of an error for as long as it
takes to end, and undoes any compression. So what it reads has passed here.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx2

# Most bytes that a response has besides what its tokens take: fields, comments that keep a
# connection open, the body of an error. Of these, an event that has not ended.
_BESIDES_BYTES, _EVENT_BESIDES_BYTES = 262_144, 65_536
# Servers send an event of a few hundred bytes for each token, some with the results of filters.
_BYTES_PER_TOKEN = 4096
# A server may send its whole reply as one event: 16 characters a token, each escaped in JSON.
_EVENT_BYTES_PER_TOKEN = 96
# Handed on at once: events may be ten bytes long, and everybody else waits while they are read.
_SLICE_BYTES = 4096

_BLANK_LINES = (b"\n\n", b"\r\r", b"\n\r")


class StreamLimitExceeded(httpx2.RemoteProtocolError):
    """A response is no reply to what was asked; the text says why, and nothing of what came."""


class BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, up to what a reply of so many tokens can take.

    Raises:
        Unbounded: it is more; the connection is then closed.
    """

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._bytes = self._event_bytes = 0
        self._last = b""
        self.expect(0)

    def expect(self, max_tokens: int) -> None:
        """Let a reply of `max_tokens` through; until then, nothing much."""
        self._most_bytes = _BESIDES_BYTES + max_tokens * _BYTES_PER_TOKEN
        self._most_event_bytes = _EVENT_BESIDES_BYTES + max_tokens * _EVENT_BYTES_PER_TOKEN

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for received in self._stream:
            for start in range(0, len(received), _SLICE_BYTES):
                if start:
                    await asyncio.sleep(0)
                piece = received[start : start + _SLICE_BYTES]
                self._count(piece)
                yield piece

    async def aclose(self) -> None:
        """Give the connection back, or close it where the body has not ended."""
        await self._stream.aclose()

    def _count(self, piece: bytes) -> None:
        self._bytes += len(piece)
        text = self._last + piece
        ended = max(text.rfind(each) for each in _BLANK_LINES)
        self._event_bytes = self._event_bytes + len(piece) if ended < 0 else len(text) - ended - 2
        self._last = text[-1:]
        if self._bytes > self._most_bytes or self._event_bytes > self._most_event_bytes:
            raise StreamLimitExceeded(
                "The language model server sent more than a reply of the tokens that were asked "
                "for can take."
            )


async def bound(response: httpx2.Response) -> None:
    """Bound what is read of a response, as soon as its head is there.

    Raises:
        Unbounded: it is compressed, so that its bytes say nothing of what they become.
    """
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = BoundedStream(response.stream)
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise StreamLimitExceeded(
            "The language model server compressed its reply, which it was asked not to do."
        )


def expect(response: httpx2.Response, max_tokens: int) -> None:
    """Let a reply of `max_tokens` through."""
    assert isinstance(response.stream, BoundedStream)
    response.stream.expect(max_tokens)
