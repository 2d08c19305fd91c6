"""Make a context: embed, search. Reads only."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo

from foremind.clock import Clock
from foremind.embedding.queue import Priority
from foremind.embedding.service import EmbeddingService
from foremind.memory.search import MemorySearch, Query
from foremind.metrics import Metrics
from foremind.typeahead.prepared import PreparedContext, Timings, Validity


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose memories are searched, and what the result depends on."""

    relationship_id: int
    validity: Validity
    time_zone: tzinfo


class Preparer:
    """Prepares contexts for any session; holds no state of its own."""

    def __init__(
        self, embedder: EmbeddingService, search: MemorySearch, clock: Clock, metrics: Metrics
    ) -> None:
        self._embedder = embedder
        self._search = search
        self._clock = clock
        self._metrics = metrics

    async def prepare(
        self,
        text: str,
        subject: Callable[[], Subject],
        priority: Priority,
        known: PreparedContext | None = None,
    ) -> PreparedContext:
        """Return the context for `text` (normalised).

        Args:
            subject: asked anew once the vector is there, so that the search is made for the
                versions of that moment.
            known: an earlier context for the same text, whose vector is used again where the
                embedding model is the same.

        Raises:
            Overloaded, StorageUnavailable: it could not be made now.
        """
        started = self._clock.monotonic()
        if known is not None and known.validity.embedding == subject().validity.embedding:
            vector = known.vector
        else:
            vector = await self._embedder.embed_query(text, priority)
        embedded = self._clock.monotonic()
        whose = subject()
        memories = await self._search.search(
            Query(
                relationship_id=whose.relationship_id,
                text=text,
                vector=vector,
                policy=whose.validity.limits,
                now=self._clock.now().astimezone(whose.time_zone),
            )
        )
        finished = self._clock.monotonic()
        self._metrics.stage_seconds.labels("search").observe(finished - embedded)
        self._metrics.stage_seconds.labels("prepare").observe(finished - started)
        return PreparedContext(
            text=text,
            validity=whose.validity,
            vector=vector,
            memories=tuple(memories),
            timings=Timings(
                embed_ms=_ms(embedded - started),
                search_ms=_ms(finished - embedded),
                total_ms=_ms(finished - started),
            ),
        )

    def hasten(self, text: str) -> None:
        """Let a player who pressed Enter on `text` be served before those still typing."""
        self._embedder.hasten(text)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
