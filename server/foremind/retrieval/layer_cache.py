"""Layer cache: the records of relationships in use, kept current in the background."""

import asyncio
from dataclasses import dataclass, replace
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.domain.announcements import Announcement, LayersChanged, MemoriesForgotten
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.llm.prompt.token_counter import CountTokens, estimate_tokens
from foremind.retrieval.relationship_layers import RelationshipLayers
from foremind.runtime.caches import ByteBoundedCache
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin, stop
from foremind.storage.record_store import RecordStore
from foremind.text.languages.language_files import ENGLISH
from foremind_models import Manifest

_MAX_TRACKED = 10_000  # relationships whose line format and announced version are remembered

_log = structlog.get_logger("foremind.retrieval")


class LayerCache:
    """The layers of relationships in use, in at most `capacity_bytes`.

    The least recently used are evicted first and read again on demand; layers that exceed the whole
    capacity are not cached but read each time. Cached layers may be older than the announced
    version until the background has read them; after an erasure they are evicted at once.
    """

    def __init__(
        self, store: RecordStore, manifest: Manifest, capacity_bytes: int, metrics: Metrics
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._cached: ByteBoundedCache[int, RelationshipLayers] = ByteBoundedCache(
            capacity_bytes, lambda layers: layers.size_bytes
        )
        metrics.layers_bytes.set_function(lambda: self._cached.bytes_used)
        self._formats: LRUCache[int, _LineFormat] = LRUCache(_MAX_TRACKED)
        self._announced: LRUCache[int, int] = LRUCache(_MAX_TRACKED)
        self._too_large: LRUCache[int, None] = LRUCache(_MAX_TRACKED)
        self._reading: dict[int, asyncio.Task[_Snapshot | ForemindError]] = {}
        self._generation = 0  # raised when what is being read must be discarded

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop(*self._reading.values())

    def get(self, relationship_id: int) -> RelationshipLayers | None:
        """Return a relationship's cached layers; if there are none, start reading them."""
        layers: RelationshipLayers | None = self._cached.get(relationship_id)
        known = relationship_id in self._formats and relationship_id not in self._too_large
        if layers is None and known:
            self._read(relationship_id)
        return layers

    async def load(
        self, relationship_id: int, count: CountTokens, language: str
    ) -> RelationshipLayers:
        """Return the relationship's layers, reading them if they are not cached in a language.

        They are cached in one language, that of the newest call: windows seldom differ in it.
        Cancelling the call does not cancel the read, which other callers may be waiting for.

        Raises:
            ForemindError: they could not be read.
        """
        while True:
            self._formats[relationship_id] = _LineFormat(count, language)
            cached: RelationshipLayers | None = self._cached.get(relationship_id)
            reading = self._reading.get(relationship_id)
            if cached is not None and cached.language == language and reading is None:
                return cached
            reading = reading or self._read(relationship_id)
            await asyncio.wait({reading})
            if reading.cancelled():
                raise StorageUnavailable("The server is stopping.")
            snapshot = reading.result()
            if isinstance(snapshot, ForemindError):
                raise snapshot
            in_language = snapshot.layers.language == language
            # Of an earlier generation it may contain erased records.
            if in_language and snapshot.generation == self._generation:
                return snapshot.layers

    def set_token_counter(self, relationship_id: int, count: CountTokens) -> None:
        """Use another token counter for a relationship from now on."""
        known = self._formats.get(relationship_id, _ASSUMED)
        self._formats[relationship_id] = replace(known, count=count)
        self._generation += 1  # a read in progress uses the previous counter
        if relationship_id in self._cached:
            self._cached.pop(relationship_id)
            self._read(relationship_id)

    def on_announcement(self, announcement: Announcement) -> None:
        """Refresh a relationship whose records changed; evict it first on an erasure."""
        if isinstance(announcement, MemoriesForgotten):
            relationship_id = announcement.relationship_id
            self._generation += 1  # a read in progress may contain what was erased
            self._announced.pop(relationship_id, None)
            if self._cached.pop(relationship_id, None) is not None:
                self._read(relationship_id)
        elif isinstance(announcement, LayersChanged):
            relationship_id = announcement.relationship_id
            self._announced[relationship_id] = max(
                announcement.layers_version, self._announced.get(relationship_id, -1)
            )
            if relationship_id in self._cached:
                self._read(relationship_id)

    def _read(self, relationship_id: int) -> "asyncio.Task[_Snapshot | ForemindError]":
        """Start reading a relationship, unless a read is already in progress."""
        reading = self._reading.get(relationship_id)
        if reading is not None:
            return reading
        task = begin(self._update(relationship_id), "layers-read")
        self._reading[relationship_id] = task
        return task

    async def _update(self, relationship_id: int) -> "_Snapshot | ForemindError":
        """Read until nothing was announced and no erasure has intervened meanwhile."""
        try:
            while True:
                generation = self._generation
                announced = self._announced.get(relationship_id, -1)
                layers = await self._layers(relationship_id)
                if generation != self._generation:
                    continue
                self._keep(relationship_id, layers)
                newest = self._announced.get(relationship_id, -1)
                if layers.version >= newest or newest == announced:
                    # What was read later counts, whatever number was announced.
                    self._announced[relationship_id] = layers.version
                    return _Snapshot(layers, generation)
        except ForemindError as error:
            _log.warning("layers.not_read", reason=error.code)
            return error
        finally:
            self._reading.pop(relationship_id, None)

    def _keep(self, relationship_id: int, layers: RelationshipLayers) -> None:
        self._too_large.pop(relationship_id, None)
        if not self._cached.put(relationship_id, layers):
            self._too_large[relationship_id] = None
            _log.info("layers.too_large", relationship_id=relationship_id)

    async def _layers(self, relationship_id: int) -> RelationshipLayers:
        state, records = await self._store.layers(relationship_id)
        known = self._formats.get(relationship_id, _ASSUMED)
        return await asyncio.to_thread(
            RelationshipLayers,
            state,
            records,
            self._manifest,
            known.count,
            known.language,
        )


@dataclass(frozen=True, slots=True)
class _LineFormat:
    """How the lines of a relationship are made: their tokens are counted, their language."""

    count: CountTokens
    language: str


_ASSUMED = _LineFormat(estimate_tokens, ENGLISH)  # of relationships that nobody has asked for


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Layers as read, and the cache generation in which the read began."""

    layers: RelationshipLayers
    generation: int
