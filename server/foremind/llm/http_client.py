"""The connections to one language model server, shared by everybody who asks it for words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import openai
from cachetools import LRUCache

from foremind.llm.slots import SlotPool
from foremind.llm.stream_limits import bound
from foremind.runtime.supervision import TaskSet

_FIRST_CHARS = 512
_MOST_MODELS = 64  # of one server whose habits are remembered


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Where a server is, and how long to wait for it; times are seconds."""

    url: str
    key: str | None
    connect_timeout_s: float
    token_timeout_s: float


@dataclass(slots=True)
class ServerCapabilities:
    """What has been learnt of a model on a server.

    Attributes:
        thinks: it thinks aloud, which takes tokens.
        thinks_unmarked: it does so without a mark where its thoughts begin.
        form: which of `forms.FORMS` it is asked for, the strictest that was not refused.
        taken: the one that its server took last; what it refused since may have been the request.
    """

    thinks: bool = False
    thinks_unmarked: bool = False
    form: int = 0
    taken: int = 0


class ModelHttpClient:
    """Opens connections when they are needed; once dismissed, closes them when nobody uses them.

    Args:
        on_idle: called when it is dismissed and its last user has left; it is then to be closed.
    """

    def __init__(
        self, address: ModelEndpoint, slots: SlotPool, on_idle: Callable[["ModelHttpClient"], None]
    ) -> None:
        self.slots = slots  #: of the server, whatever else its clients differ in
        self.portion_chars = _FIRST_CHARS  #: of a prompt that is read ahead, as it was measured
        self.returning = TaskSet()  #: what reads prompts again, at most one
        self._habits: LRUCache[str, ServerCapabilities] = LRUCache(_MOST_MODELS)
        self._address = address
        self._on_idle = on_idle
        self._library: openai.AsyncOpenAI | None = None
        self._users = 0
        self._dismissed = False

    @contextmanager
    def used(self) -> Iterator[openai.AsyncOpenAI]:
        """Use the connections inside."""
        if self._library is None:
            address = self._address
            timeout = openai.Timeout(address.token_timeout_s, connect=address.connect_timeout_s)
            self._library = openai.AsyncOpenAI(
                base_url=address.url,
                api_key=address.key or "none",
                max_retries=0,  # a player waits: a clear failure now beats a late success
                timeout=timeout,
                default_headers={"Accept-Encoding": "identity"},  # bytes are then what they seem
                http_client=openai.DefaultAsyncHttpxClient(
                    timeout=timeout, event_hooks={"response": [bound]}
                ),
            )
        self._users += 1
        try:
            yield self._library
        finally:
            self._users -= 1
            self._close_if_idle()

    def habits_of(self, model: str) -> ServerCapabilities:
        """Return what has been learnt of a model, to be added to."""
        habits = self._habits.get(model)
        if habits is None:
            habits = self._habits[model] = ServerCapabilities()
        return habits

    def dismiss(self) -> None:
        """Close the connections as soon as nobody uses them."""
        self._dismissed = True
        self._close_if_idle()

    async def close(self) -> None:
        """Close the connections, if there are any."""
        await self.returning.stop()
        library, self._library = self._library, None
        if library is not None:
            await library.close()

    def _close_if_idle(self) -> None:
        if self._dismissed and not self._users and self._library is not None:
            self._on_idle(self)
