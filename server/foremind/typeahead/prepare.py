"""Make a context: embed, then ask every layer at once, under one deadline. Reads only."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from typing import Any

import structlog

from foremind.clock import Clock
from foremind.embedding.queue import Priority
from foremind.embedding.service import EmbeddingService
from foremind.errors import ForemindError
from foremind.layers.held import Drafted, HeldLayers
from foremind.layers.library import Library
from foremind.layers.recall import references_in
from foremind.layers.sections import Section, section
from foremind.layers.tokens import counter_for
from foremind.layers.wording import memory_lines
from foremind.memory.search import MemorySearch, Query
from foremind.metrics import Metrics
from foremind.settings import LayerName
from foremind.typeahead.prepared import PreparedContext, Timings, Validity

# Found among the records that are held in the process: no waiting, but none may fail another.
_HELD: tuple[LayerName, ...] = ("topics", "episodes", "questions", "vault")

_FIRST_SEARCHING_S = 0.001  # until it is measured
_BESIDES_S = 0.002  # frames, tasks and events
_NEWEST = 0.1  # share of the newest search in the usual one
_TOUCHING = 3  # of the recalled memories that may touch an open question

_log = structlog.get_logger("foremind.typeahead")


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose memories are searched, and what the result depends on."""

    relationship_id: int
    companion_id: int
    user_name: str
    validity: Validity
    time_zone: tzinfo


class Preparer:
    """Prepares contexts for any session."""

    def __init__(
        self,
        embedder: EmbeddingService,
        search: MemorySearch,
        held: HeldLayers,
        library: Library,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._embedder = embedder
        self._search = search
        self._held = held
        self._library = library
        self._clock = clock
        self._metrics = metrics
        self._searching_s = _FIRST_SEARCHING_S

    async def prepare(
        self,
        text: str,
        subject: Callable[[], Subject],
        priority: Priority,
        known: PreparedContext | None = None,
    ) -> PreparedContext:
        """Return the context for `text` (normalised).

        A layer that fails or is not there by the deadline is left out, and the context says so.

        Args:
            subject: asked anew once the vector is there, so that the search is made for the
                versions of that moment.
            known: an earlier context for the same text, whose vector is used again where the
                embedding model is the same.

        Raises:
            Overloaded: the text could not be embedded now.
        """
        started = self._clock.monotonic()
        if known is not None and known.validity.embedding == subject().validity.embedding:
            vector = known.vector
        else:
            vector = await self._embedder.embed_query(text, priority)
        embedded = self._clock.monotonic()
        whose = subject()
        policy = whose.validity.layers
        now = self._clock.now().astimezone(whose.time_zone)
        draft = Drafted(text, references_in(text), vector, whose.user_name, policy, now)
        held = self._held.get(whose.relationship_id)
        asked: dict[LayerName, Callable[[], Awaitable[Any]]] = {}
        if policy.on("memories"):
            query = Query(whose.relationship_id, text, vector, whose.validity.limits, now)
            asked["memories"] = partial(self._search.search, query)
        if policy.on("library") and self._library.has_documents(whose.companion_id):
            asked["library"] = partial(self._library.recall, whose.companion_id, draft)
        answers, took = await self._by_deadline(asked, policy.deadline_s)
        searched = self._clock.monotonic()
        memories = answers.pop("memories", ())
        recalled: dict[LayerName, Section] = dict(answers)
        lines = memory_lines(memories, whose.user_name, now)
        recalled["memories"] = section("memories", lines, counter_for(policy.tokenizer))
        draft = replace(draft, touched=tuple(each.content for each in memories[:_TOUCHING]))
        for layer in _HELD:
            if held is not None and policy.on(layer):
                begun = self._clock.monotonic()
                recalled[layer] = held.recall(layer, draft)
                took[layer] = _ms(self._clock.monotonic() - begun)
        finished = self._clock.monotonic()
        self._searching_s += _NEWEST * (finished - embedded - self._searching_s)
        self._metrics.stage_seconds.labels("search").observe(searched - embedded)
        self._metrics.stage_seconds.labels("prepare").observe(finished - started)
        left_out = tuple(layer for layer in asked if layer not in took)
        for layer in left_out:
            self._metrics.left_out.labels(layer).inc()
        return PreparedContext(
            text=text,
            validity=whose.validity,
            vector=vector,
            memories=tuple(memories),
            recalled=recalled,
            left_out=left_out,
            timings=Timings(
                embed_ms=_ms(embedded - started),
                search_ms=_ms(searched - embedded),
                total_ms=_ms(finished - started),
                layers_ms=took,
            ),
        )

    @property
    def busy(self) -> float:
        """The share of its time that the embedding thread worked lately, 0 to 1."""
        return self._embedder.busy

    @property
    def usual_s(self) -> float:
        """About the CPU time that preparing takes, in seconds."""
        return self._embedder.load.usual_s + self._searching_s + _BESIDES_S

    def is_word(self, letters: str) -> bool:
        """Tell whether the model's vocabulary holds some letters as one piece."""
        return self._embedder.is_word(letters)

    def hasten(self, text: str, priority: Priority) -> None:
        """Serve what is being prepared for `text` at least as urgently as this."""
        self._embedder.hasten(text, priority)

    async def _by_deadline(
        self, asked: Mapping[LayerName, Callable[[], Awaitable[Any]]], seconds: float
    ) -> tuple[dict[LayerName, Any], dict[LayerName, float]]:
        """Return the answers that came in time, and the milliseconds that each took."""
        answers: dict[LayerName, Any] = {}
        took: dict[LayerName, float] = {}

        async def answer(layer: LayerName, ask: Callable[[], Awaitable[Any]]) -> None:
            begun = self._clock.monotonic()
            try:
                async with asyncio.timeout(seconds):
                    answers[layer] = await ask()
            except (ForemindError, TimeoutError) as error:
                _log.warning("layer.left_out", layer=layer, reason=type(error).__name__)
            else:
                took[layer] = _ms(self._clock.monotonic() - begun)

        if len(asked) == 1:  # a task of its own would cost more than the search
            (only,) = asked.items()
            await answer(*only)
        elif asked:
            async with asyncio.TaskGroup() as group:
                for layer, ask in asked.items():
                    group.create_task(answer(layer, ask), name=f"recall-{layer}")
        return answers, took


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
