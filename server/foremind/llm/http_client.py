"""The HTTP client of one language model server, shared by everything that uses that server.

Byte limits on what a model server sends: it can neither exhaust memory nor stream for ever.

The client library buffers a line, an event or the body of an error until it ends, and decompresses
everything. So the bytes are counted before they reach it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from ssl import SSLContext

import httpx2
from cachetools import LRUCache

from foremind.llm.slots import SlotPool
from foremind.runtime.supervision import TaskSet

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


_FIRST_CHUNK_CHARS = 512
_MAX_CONNECTIONS, _MAX_IDLE_CONNECTIONS = 1000, 100
_IDLE_S = 60.0  # for which a connection is kept: players read and type before they send again
_ENDING_S = 1.0  # within which a response must end once its reply has
_MAX_MODELS = 64  # of one server whose capabilities are remembered


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """The address and API key of a server, and its timeouts in seconds."""

    url: str
    key: str | None
    connect_timeout_s: float
    token_timeout_s: float


@dataclass(slots=True)
class ServerCapabilities:
    """What has been learnt about a model on a server.

    Attributes:
        thinks: it thinks aloud, which takes tokens.
        thinks_unmarked: it does so without an opening tag.
        form: index into `response_format.FORMS` of the strictest form not refused so far.
        accepted_form: the form that the server accepted last; a refusal since then may have been
            about the request instead.
        reports_usage: whether it can be asked to count tokens, None while that is unknown.
    """

    thinks: bool = False
    thinks_unmarked: bool = False
    form: int = 0
    accepted_form: int = 0
    reports_usage: bool | None = None


def load_client() -> None:
    """Import and read what a first connection needs: 100 ms that no event loop should spend."""
    for needed in ("httpcore2", "anyio._backends._asyncio"):
        import_module(needed)
    tls_context()


@cache
def tls_context() -> SSLContext:
    """Return what all clients verify servers with."""
    return httpx2.create_ssl_context()


class ModelHttpClient:
    """Opens connections on first use; once dismissed, closes them when they are idle.

    Args:
        on_idle: called when the client is dismissed and no longer in use; it must then be closed.
    """

    def __init__(
        self, address: ModelEndpoint, slots: SlotPool, on_idle: Callable[["ModelHttpClient"], None]
    ) -> None:
        self.slots = slots  #: of the server; shared by clients with other keys or timeouts
        self.prefill_chunk_chars = _FIRST_CHUNK_CHARS  #: adapted to the measured prefill speed
        self.restoring = TaskSet()  #: the task that restores the prompt cache, at most one
        self._ending = TaskSet()  # of responses whose reply has ended, at most one a connection
        self._capabilities: LRUCache[str, ServerCapabilities] = LRUCache(_MAX_MODELS)
        self._address = address
        self._on_idle = on_idle
        self._connections: httpx2.AsyncClient | None = None
        self.has_key = address.key is not None
        self._users = 0
        self._dismissed = False

    @contextmanager
    def used(self) -> Iterator[httpx2.AsyncClient]:
        """Keep the connections open while in the context."""
        if self._connections is None:
            address = self._address
            self._connections = httpx2.AsyncClient(
                base_url=address.url,
                headers={
                    "Accept-Encoding": "identity",  # so that byte limits are exact
                    "Authorization": f"Bearer {address.key or 'none'}",
                },
                timeout=httpx2.Timeout(address.token_timeout_s, connect=address.connect_timeout_s),
                limits=httpx2.Limits(
                    max_connections=_MAX_CONNECTIONS,
                    max_keepalive_connections=_MAX_IDLE_CONNECTIONS,
                    keepalive_expiry=_IDLE_S,
                ),
                follow_redirects=True,
                event_hooks={"response": [limit_response]},
                verify=tls_context(),
            )
        self._users += 1
        try:
            yield self._connections
        finally:
            self._users -= 1
            self._close_if_idle()

    def keep_connection(self, response: httpx2.Response, received: AsyncIterator[bytes]) -> None:
        """Keep the connection of a response, whose reply has ended, for the next request.

        Opening one to a distant server takes several round trips, at Enter. It is closed if the
        response does not end soon, or if the client is closed; nobody waits for that.

        Args:
            received: what else is received of the response.
        """
        self._ending.begin(_read_to_its_end(response, received), "model-response-end")

    def capabilities_of(self, model: str) -> ServerCapabilities:
        """Return the mutable record of what has been learnt about a model."""
        capabilities = self._capabilities.get(model)
        if capabilities is None:
            capabilities = self._capabilities[model] = ServerCapabilities()
        return capabilities

    def dismiss(self) -> None:
        """Close the connections as soon as they are idle."""
        self._dismissed = True
        self._close_if_idle()

    async def close(self) -> None:
        """Close the connections, if there are any."""
        await self.restoring.stop()
        await self._ending.stop()
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()

    def _close_if_idle(self) -> None:
        if self._dismissed and not self._users and self._connections is not None:
            self._on_idle(self)


async def _read_to_its_end(response: httpx2.Response, received: AsyncIterator[bytes]) -> None:
    try:
        with suppress(TimeoutError, httpx2.HTTPError, httpx2.StreamError):
            async with asyncio.timeout(_ENDING_S):
                async for _ in received:
                    pass
    finally:
        await response.aclose()
