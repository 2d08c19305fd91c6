"""Builds contexts: embeds the draft, then queries all layers under one deadline. Read-only."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.cluster.freshness import Freshness
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.domain.memory import Recalled
from foremind.domain.policy import LayerPolicy
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.world import NOWHERE, Surroundings
from foremind.llm.prompt.sections import (
    Section,
    StandingLayers,
    memory_lines,
    section,
    weak_match_preface,
)
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.service import EmbeddingService, Priority
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.layer_cache import LayerCache
from foremind.retrieval.relationship_layers import LayerQuery, RelationshipLayers, references_in
from foremind.retrieval.search import MemorySearch, Query
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import run_or_offload
from foremind.text.languages.language_files import ENGLISH
from foremind.typeahead.context_cache import BuildTimings, CacheKey, ContextCache, PreparedContext
from foremind.typeahead.draft_lore import Lorebooks, LoreSource, no_lore

# Layers made of a relationship's records: those searched for a draft, and those in every prompt.
_SEARCHED_LAYERS: tuple[LayerName, ...] = (
    "topics", "episodes", "scratchpad", "questions", "vault",
)  # fmt: skip
_STANDING_LAYERS: tuple[LayerName, ...] = ("profile", "hot", "scratchpad", "summary", "opening")
_RECORDS: Literal["records"] = "records"
_Source = LayerName | Literal["records"]
_Fetch = Callable[[], Awaitable[Any]]

_INITIAL_SEARCH_S = 0.001  # until measured
_OVERHEAD_S = 0.002  # CPU time for frames, tasks and events
_SMOOTHING = 0.1  # weight of the newest search in the moving average
_MAX_RELATED_MEMORIES = 3  # recalled memories that are matched against open questions

_log = structlog.get_logger("foremind.typeahead")


@dataclass(frozen=True, slots=True)
class RetrievalScope:
    """Whose memories are searched, and the key of the resulting context.

    `user_id` is the user who takes turns with others in the embedding queue; `lore` returns what a
    draft activates of the companion's lorebook; `language` is the draft's where that is unsure.
    `now` is the time of a world, `around` where it is asked there; None: the time of the clock.
    """

    relationship_id: int
    companion_id: int
    user_name: str
    cache_key: CacheKey
    time_zone: tzinfo
    user_id: int | None = None
    lore: LoreSource = no_lore
    language: str = ENGLISH
    now: datetime | None = None
    around: Surroundings = NOWHERE


class ContextBuilder:
    """Builds contexts for any session."""

    def __init__(
        self,
        embedder: EmbeddingService,
        search: MemorySearch,
        layer_cache: LayerCache,
        library: Library,
        clock: Clock,
        metrics: Metrics,
        freshness: Freshness | None = None,
    ) -> None:
        """Configure what is searched; without `freshness`, no other process changes anything."""
        self._freshness = freshness
        self._embedder = embedder
        self._search = search
        self._layer_cache = layer_cache
        self._library = library
        self._clock = clock
        self._metrics = metrics
        self._search_s = _INITIAL_SEARCH_S

    async def prepare(
        self,
        text: str,
        current_scope: Callable[[], RetrievalScope],
        priority: Priority,
        known: PreparedContext | None = None,
    ) -> PreparedContext:
        """Return the context for `text` (normalised).

        Records that are not cached are read, and all is compared with the database first where
        announcements cannot be relied on. A layer that fails or misses the deadline is omitted
        and listed as missing.

        Args:
            current_scope: called again after embedding, so that the search uses the versions in
                force then.
            known: an earlier context for the text; its vector is reused if the model is the same.

        Raises:
            Overloaded: the embedding queue is full.
            StorageUnavailable: what is cached could not be compared with the database.
        """
        started = self._clock.monotonic()
        vector = await self._vector(text, current_scope(), priority, known)
        embedded = self._clock.monotonic()
        changed = await self._refresh(current_scope().relationship_id)
        lore = await current_scope().lore(text)
        scope = current_scope()
        policy = scope.cache_key.layer_policy
        # Those that are cached are read again if they changed: that is awaited.
        layers = None if changed else self._cached_layers(scope)
        draft = self._layer_query(scope, text, vector)
        results, layers_ms, failed = await self._fetch_by_deadline(
            self._sources(scope, draft, read_records=layers is None), policy.deadline_s
        )
        searched = self._clock.monotonic()
        layers = results.pop(_RECORDS, layers)
        memories = results.pop("memories", ())
        recalled: dict[LayerName, Section] = dict(results)
        recalled["memories"] = await _memories_section(memories, draft)
        cache_key = scope.cache_key
        if layers is not None:
            await self._search_layers(layers, draft, memories, recalled, layers_ms)
        layers_version = cache_key.layers_version if layers is None else layers.version
        if (layers_version, lore.history) != (cache_key.layers_version, cache_key.history):
            cache_key = msgspec.structs.replace(
                cache_key, history=lore.history, layers_version=layers_version
            )
        return PreparedContext(
            text=text,
            cache_key=cache_key,
            vector=vector,
            memories=tuple(memories),
            recalled=recalled,
            missing=self._missing(policy, failed),
            standing=StandingLayers() if layers is None else layers.standing,
            timings=self._record_times(started, embedded, searched, layers_ms),
            lore=lore.active,
        )

    def _layer_query(
        self, scope: RetrievalScope, text: str, vector: npt.NDArray[np.float32]
    ) -> LayerQuery:
        return LayerQuery(
            text,
            (),
            vector,
            scope.user_name,
            scope.cache_key.layer_policy,
            (scope.now or self._clock.now()).astimezone(scope.time_zone),
            language=scope.language,
            prompt_language=scope.cache_key.language,
            around=scope.around,
        )

    async def _refresh(self, relationship_id: int) -> bool:
        """Compare what is cached with the database, where needed; return whether it had changed."""
        return self._freshness is not None and await self._freshness.ensure(relationship_id)

    def _record_times(
        self,
        started: float,
        embedded: float,
        searched: float,
        layers_ms: Mapping[LayerName, float],
    ) -> BuildTimings:
        """Record how long a context that is ready now took; return the same for its events."""
        finished = self._clock.monotonic()
        self._search_s += _SMOOTHING * (finished - embedded - self._search_s)
        self._metrics.stage_seconds.labels("search").observe(searched - embedded)
        self._metrics.stage_seconds.labels("prepare").observe(finished - started)
        return BuildTimings(
            embed_ms=_ms(embedded - started),
            search_ms=_ms(searched - embedded),
            total_ms=_ms(finished - started),
            layers_ms=layers_ms,
        )

    async def standing(self, scope: RetrievalScope, *, recalled: bool) -> StandingLayers:
        """Return the layers that every prompt includes, as far as available by the deadline.

        Args:
            recalled: false if retrieval failed, which is counted as missing layers.
        """
        policy = scope.cache_key.layer_policy
        layers = self._cached_layers(scope)
        failed: dict[_Source, str] = {} if recalled else {"memories": "failed", "library": "failed"}
        if layers is None:
            sources: dict[_Source, _Fetch] = {_RECORDS: self._read_records(scope)}
            results, _, late = await self._fetch_by_deadline(sources, policy.deadline_s)
            layers = results.get(_RECORDS)
            failed |= late
        self._missing(policy, failed)
        return StandingLayers() if layers is None else layers.standing

    async def _vector(
        self,
        text: str,
        scope: RetrievalScope,
        priority: Priority,
        known: PreparedContext | None,
    ) -> npt.NDArray[np.float32]:
        """Return the vector of `text`, that of `known` if its embedding model is the same."""
        if known is not None and known.cache_key.embedding == scope.cache_key.embedding:
            return known.vector
        return await self._embedder.embed_query(text, priority, scope.user_id)

    def _sources(
        self, scope: RetrievalScope, draft: LayerQuery, *, read_records: bool
    ) -> dict[_Source, _Fetch]:
        """Return what to fetch for a draft: enabled layers, and records that are not cached."""
        sources: dict[_Source, _Fetch] = {}
        if read_records:
            sources[_RECORDS] = self._read_records(scope)
        if draft.policy.on("memories"):
            query = Query(
                scope.relationship_id,
                draft.text,
                draft.vector,
                scope.cache_key.recall_policy,
                draft.now,
                scope.language,
                scope.around,
            )
            sources["memories"] = partial(self._search.search, query)
        if draft.policy.on("library") and self._library.may_have_documents(scope.companion_id):
            sources["library"] = partial(self._library.recall, scope.companion_id, draft)
        return sources

    def _read_records(self, scope: RetrievalScope) -> _Fetch:
        count = counter_for(scope.cache_key.layer_policy.tokenizer)
        language = scope.cache_key.language
        return partial(self._layer_cache.load, scope.relationship_id, count, language)

    def _cached_layers(self, scope: RetrievalScope) -> RelationshipLayers | None:
        layers = self._layer_cache.get(scope.relationship_id)
        in_language = layers is not None and layers.language == scope.cache_key.language
        return layers if in_language else None

    async def _search_layers(
        self,
        layers: RelationshipLayers,
        draft: LayerQuery,
        memories: Sequence[Recalled],
        recalled: dict[LayerName, Section],
        layers_ms: dict[Any, float],
    ) -> None:
        """Search the enabled layers that have records for a draft; add sections and timings."""
        searched = [layer for layer in layers.searchable if draft.policy.on(layer)]
        if not searched:
            return
        related = _related(memories)
        chars = sum(map(len, (draft.text, *related)))
        references = await run_or_offload(chars, lambda: references_in(draft.text))
        draft = replace(draft, references=references, recalled_texts=related)
        for layer in searched:
            started = self._clock.monotonic()
            recalled[layer] = await run_or_offload(chars, partial(layers.recall, layer, draft))
            layers_ms[layer] = _ms(self._clock.monotonic() - started)

    def _missing(self, policy: LayerPolicy, failed: Mapping[_Source, str]) -> dict[LayerName, str]:
        """Return and count the layers that a prompt lacks, with the reasons."""
        missing: dict[LayerName, str] = {}
        for source, reason in failed.items():
            layers = (*_STANDING_LAYERS, *_SEARCHED_LAYERS) if source == "records" else (source,)
            missing |= {layer: reason for layer in layers if policy.on(layer)}
        for layer in missing:
            self._metrics.left_out.labels(layer).inc()
        return missing

    @property
    def utilization(self) -> float:
        """The recent share of time that the embedding thread was busy, 0 to 1."""
        return self._embedder.utilization

    @property
    def typical_cpu_s(self) -> float:
        """The approximate CPU time of building a context, in seconds."""
        return self._embedder.load.typical_cpu_s + self._search_s + _OVERHEAD_S

    def is_fresh(self, relationship_id: int) -> bool:
        """Return whether what is cached of a relationship needs no comparison."""
        return self._freshness is None or self._freshness.is_fresh(relationship_id)

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""
        return self._embedder.word_share(letters)

    def raise_priority(self, text: str, priority: Priority) -> None:
        """Raise the priority of embedding `text` to at least `priority`."""
        self._embedder.raise_priority(text, priority)

    async def _fetch_by_deadline(
        self, sources: Mapping[_Source, _Fetch], deadline_s: float
    ) -> tuple[dict[Any, Any], dict[Any, float], dict[_Source, str]]:
        """Fetch all sources; return results, elapsed milliseconds, and reasons for failures.

        All are keyed by source: a layer, or "records".
        """
        results: dict[_Source, Any] = {}
        elapsed_ms: dict[_Source, float] = {}
        failed: dict[_Source, str] = {}

        async def fetch_one(source: _Source, fetch: _Fetch) -> None:
            started = self._clock.monotonic()
            try:
                async with asyncio.timeout(deadline_s):
                    results[source] = await fetch()
            except (ForemindError, TimeoutError) as error:
                failed[source] = error.code if isinstance(error, ForemindError) else "too_late"
                _log.warning("layer.left_out", layer=source, reason=failed[source])
            else:
                elapsed_ms[source] = _ms(self._clock.monotonic() - started)

        if len(sources) == 1:  # a task would cost more than the search
            (only,) = sources.items()
            await fetch_one(*only)
        elif sources:
            async with asyncio.TaskGroup() as group:
                for source, fetch in sources.items():
                    group.create_task(fetch_one(source, fetch), name=f"recall-{source}")
        return results, elapsed_ms, failed


def _related(memories: Sequence[Recalled]) -> tuple[str, ...]:
    return tuple(memory.content for memory in memories[:_MAX_RELATED_MEMORIES])


async def _memories_section(memories: Sequence[Recalled], draft: LayerQuery) -> Section:
    def quoted() -> Section:
        return section(
            "memories",
            memory_lines(
                memories,
                draft.user_name,
                draft.now,
                draft.prompt_language,
                draft.around.calendar,
            ),
            counter_for(draft.policy.tokenizer),
            preface=weak_match_preface(memories, draft.prompt_language),
        )

    return await run_or_offload(sum(len(memory.content) for memory in memories), quoted)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


@dataclass(frozen=True, slots=True)
class ContextServices:
    """What finds the context of a draft, and caches it."""

    embedder: EmbeddingService
    index: IndexedCandidates
    layer_cache: LayerCache
    library: Library
    builder: ContextBuilder
    cache: ContextCache
    lorebooks: Lorebooks
