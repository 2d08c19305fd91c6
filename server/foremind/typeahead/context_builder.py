"""Make a context: embed, then ask every layer at once, under one deadline. Reads only."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from typing import Any, Literal

import msgspec
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.domain.policy import LayerPolicy
from foremind.domain.settings import LayerName
from foremind.llm.prompt.record_format import hunch, memory_lines
from foremind.llm.prompt.sections import Section, StandingLayers, section
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.layer_cache import DraftRecall, LayerCache
from foremind.retrieval.layer_recall import references_in
from foremind.retrieval.search import MemorySearch, Query
from foremind.runtime.metrics import Metrics
from foremind.runtime.offload import aside
from foremind.typeahead.context_cache import BuildTimings, CacheKey, PreparedContext

# Made of a relationship's records, which are held in the process or read: what is found among them
# for a draft, and what stands in every prompt.
_HELD: tuple[LayerName, ...] = ("topics", "episodes", "scratchpad", "questions", "vault")
_STANDING: tuple[LayerName, ...] = ("profile", "hot", "scratchpad", "summary", "opening")
_RECORDS: Literal["records"] = "records"
_Asked = LayerName | Literal["records"]

_FIRST_SEARCHING_S = 0.001  # until it is measured
_BESIDES_S = 0.002  # frames, tasks and events
_NEWEST = 0.1  # share of the newest search in the usual one
_TOUCHING = 3  # of the recalled memories that may touch an open question

_log = structlog.get_logger("foremind.typeahead")


@dataclass(frozen=True, slots=True)
class RetrievalScope:
    """Whose memories are searched, and what the result depends on.

    `user_id` is who has it done, and takes turns with others.
    """

    relationship_id: int
    companion_id: int
    user_name: str
    validity: CacheKey
    time_zone: tzinfo
    user_id: int | None = None


class ContextBuilder:
    """Prepares contexts for any session."""

    def __init__(
        self,
        embedder: EmbeddingService,
        search: MemorySearch,
        held: LayerCache,
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
        subject: Callable[[], RetrievalScope],
        priority: Priority,
        known: PreparedContext | None = None,
    ) -> PreparedContext:
        """Return the context for `text` (normalised).

        What is not held in the process is read. A layer that fails or is not there by the deadline
        is left out, and the context says so.

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
            vector = await self._embedder.embed_query(text, priority, subject().user_id)
        embedded = self._clock.monotonic()
        references = await aside(len(text), lambda: references_in(text))
        whose = subject()
        policy = whose.validity.layers
        now = self._clock.now().astimezone(whose.time_zone)
        draft = DraftRecall(text, references, vector, whose.user_name, policy, now)
        held = self._held.get(whose.relationship_id)
        asked: dict[_Asked, Callable[[], Awaitable[Any]]] = {}
        if held is None:
            asked[_RECORDS] = self._reading(whose)
        if policy.on("memories"):
            query = Query(whose.relationship_id, text, vector, whose.validity.limits, now)
            asked["memories"] = partial(self._search.search, query)
        if policy.on("library") and self._library.may_have_documents(whose.companion_id):
            asked["library"] = partial(self._library.recall, whose.companion_id, draft)
        answers, took, failed = await self._by_deadline(asked, policy.deadline_s)
        searched = self._clock.monotonic()
        held = answers.pop(_RECORDS, held)
        memories = answers.pop("memories", ())
        recalled: dict[LayerName, Section] = dict(answers)
        recalled["memories"] = section(
            "memories",
            memory_lines(memories, whose.user_name, now),
            counter_for(policy.tokenizer),
            preface=hunch(memories),
        )
        draft = replace(draft, touched=tuple(memory.content for memory in memories[:_TOUCHING]))
        chars = sum(map(len, (text, *draft.touched)))
        for layer in _HELD:
            if held is not None and policy.on(layer):
                begun = self._clock.monotonic()
                recalled[layer] = await aside(chars, partial(held.recall, layer, draft))
                took[layer] = _ms(self._clock.monotonic() - begun)
        finished = self._clock.monotonic()
        self._searching_s += _NEWEST * (finished - embedded - self._searching_s)
        self._metrics.stage_seconds.labels("search").observe(searched - embedded)
        self._metrics.stage_seconds.labels("prepare").observe(finished - started)
        validity = whose.validity
        if held is not None:
            validity = msgspec.structs.replace(validity, layers_version=held.version)
        return PreparedContext(
            text=text,
            validity=validity,
            vector=vector,
            memories=tuple(memories),
            recalled=recalled,
            missing=self._missing(policy, failed),
            standing=StandingLayers() if held is None else held.standing,
            timings=BuildTimings(
                embed_ms=_ms(embedded - started),
                search_ms=_ms(searched - embedded),
                total_ms=_ms(finished - started),
                layers_ms=took,
            ),
        )

    async def standing(self, whose: RetrievalScope, *, recalled: bool) -> StandingLayers:
        """Return what stands in every prompt, as far as it is there by the deadline.

        Args:
            recalled: false where nothing could be recalled, which is noted as missing.
        """
        policy = whose.validity.layers
        held = self._held.get(whose.relationship_id)
        failed: dict[_Asked, str] = {} if recalled else {"memories": "failed", "library": "failed"}
        if held is None:
            asked: dict[_Asked, Callable[[], Awaitable[Any]]] = {_RECORDS: self._reading(whose)}
            answers, _, late = await self._by_deadline(asked, policy.deadline_s)
            held = answers.get(_RECORDS)
            failed |= late
        self._missing(policy, failed)
        return StandingLayers() if held is None else held.standing

    def _reading(self, whose: RetrievalScope) -> Callable[[], Awaitable[Any]]:
        count = counter_for(whose.validity.layers.tokenizer)
        return partial(self._held.load, whose.relationship_id, count)

    def _missing(self, policy: LayerPolicy, failed: Mapping[_Asked, str]) -> dict[LayerName, str]:
        """Return which layers a prompt lacks, and why; they are counted."""
        missing: dict[LayerName, str] = {}
        for asked, reason in failed.items():
            layers = (*_STANDING, *_HELD) if asked == "records" else (asked,)
            missing |= {layer: reason for layer in layers if policy.on(layer)}
        for layer in missing:
            self._metrics.left_out.labels(layer).inc()
        return missing

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
        self, asked: Mapping[_Asked, Callable[[], Awaitable[Any]]], seconds: float
    ) -> tuple[dict[Any, Any], dict[Any, float], dict[_Asked, str]]:
        """Return the answers that came in time, what each took in milliseconds, and why none came.

        All by layer, the records by their own name.
        """
        answers: dict[_Asked, Any] = {}
        took: dict[_Asked, float] = {}
        failed: dict[_Asked, str] = {}

        async def answer(layer: _Asked, ask: Callable[[], Awaitable[Any]]) -> None:
            begun = self._clock.monotonic()
            try:
                async with asyncio.timeout(seconds):
                    answers[layer] = await ask()
            except (ForemindError, TimeoutError) as error:
                failed[layer] = error.code if isinstance(error, ForemindError) else "too_late"
                _log.warning("layer.left_out", layer=layer, reason=failed[layer])
            else:
                took[layer] = _ms(self._clock.monotonic() - begun)

        if len(asked) == 1:  # a task of its own would cost more than the search
            (only,) = asked.items()
            await answer(*only)
        elif asked:
            async with asyncio.TaskGroup() as group:
                for layer, ask in asked.items():
                    group.create_task(answer(layer, ask), name=f"recall-{layer}")
        return answers, took, failed


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
