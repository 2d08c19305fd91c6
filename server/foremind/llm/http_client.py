"""The HTTP client of one language model server, shared by everything that uses that server."""

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
from foremind.llm.stream_limits import limit_response
from foremind.runtime.supervision import TaskSet

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
    _tls_context()


@cache
def _tls_context() -> SSLContext:
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
                verify=_tls_context(),
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
