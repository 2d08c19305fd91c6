"""Searches in the process where a relationship is loaded and current, else in the database."""

import asyncio
from collections.abc import Sequence
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.domain.announcements import (
    Announcement,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
)
from foremind.domain.errors import ForemindError
from foremind.domain.memory import IndexedMemory, IndexState, RetrievalQuery, WordStatistics
from foremind.retrieval.index.memory_index import MemoryIndex
from foremind.retrieval.ranking import CandidateSet
from foremind.retrieval.search import StoredCandidates
from foremind.runtime.caches import ByteBoundedCache
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin, stop
from foremind.storage.memory_store import MemoryStore

_MAX_TOO_LARGE = 1000  # relationships remembered as too large to load
_MIN_THREADED = 20_000  # memories; searching more would block the event loop for milliseconds
_CATCH_UP_S = 0.05  # by then the database would have answered
_MAX_CONCURRENT_LOADS = 2  # each takes a connection and, briefly, a thread

_log = structlog.get_logger("foremind.retrieval")


class IndexedCandidates:
    """Indexes of the relationships in use, in at most `capacity_bytes`.

    The least recently used index is evicted first; one that exceeds the whole capacity is not kept.
    A relationship that is not loaded, or whose index is older than the announced version, is
    searched in the database while its index is updated in the background.
    """

    def __init__(self, store: MemoryStore, capacity_bytes: int, metrics: Metrics) -> None:
        self._store = store
        self._stored = StoredCandidates(store)
        self._metrics = metrics
        self._indexes: ByteBoundedCache[int, MemoryIndex] = ByteBoundedCache(
            capacity_bytes,
            lambda index: index.size_bytes,
            lambda relationship_id, _: self._forget_version(relationship_id),
        )
        metrics.index_bytes.set_function(lambda: self._indexes.bytes_used)
        self._announced: dict[int, int] = {}
        # What this process wrote last, to be taken from here instead of being read back.
        self._written: dict[int, tuple[IndexState, Sequence[IndexedMemory]]] = {}
        self._too_large: LRUCache[int, None] = LRUCache(_MAX_TOO_LARGE)
        self._generation = 0  # raised when what is being read must be discarded
        self._updates: dict[int, asyncio.Task[None]] = {}
        self._load_slots = asyncio.Semaphore(_MAX_CONCURRENT_LOADS)

    async def __aenter__(self) -> Self:
        self._store.listeners.append(self._on_written)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._store.listeners.remove(self._on_written)
        await stop(*self._updates.values())

    async def candidates(self, query: RetrievalQuery) -> tuple[CandidateSet, WordStatistics]:
        """Return memories that may be recalled, with the statistics to score them.

        Raises:
            StorageUnavailable: the database was needed and did not answer.
        """
        index = await self._up_to_date(query.relationship_id)
        self._metrics.searches.labels("database" if index is None else "index").inc()
        if index is not None:
            if index.state.memories < _MIN_THREADED:
                return index.candidates(query)
            return await asyncio.to_thread(index.candidates, query)
        self.load(query.relationship_id)
        return await self._stored.candidates(query)

    async def _up_to_date(self, relationship_id: int) -> MemoryIndex | None:
        """Return the current index, waiting briefly if only the newest changes are missing."""
        index = self._current(relationship_id)
        if index is None and relationship_id in self._indexes:
            self.load(relationship_id)
            update = self._updates.get(relationship_id)
            if update is not None:
                await asyncio.wait({update}, timeout=_CATCH_UP_S)
            index = self._current(relationship_id)
        return index

    def is_current(self, relationship_id: int) -> bool:
        """Return whether a relationship is loaded as of the newest announced version."""
        return self._current(relationship_id) is not None

    async def wait_until_current(self, relationship_id: int) -> bool:
        """Wait for the update of a relationship's index; return whether it is now current."""
        self.load(relationship_id)
        update = self._updates.get(relationship_id)
        if update is not None:
            await asyncio.wait({update})
        return self.is_current(relationship_id)

    def load(self, relationship_id: int) -> None:
        """Start to load or update a relationship's index, in the background."""
        if relationship_id in self._too_large or relationship_id in self._updates:
            return
        task = begin(self._update(relationship_id), "index-update")
        self._updates[relationship_id] = task
        task.add_done_callback(lambda _: self._end_update(relationship_id))

    def on_announcement(self, announcement: Announcement) -> None:
        """Update the index of a relationship whose memories changed; evict it on an erasure."""
        if isinstance(announcement, MemoriesForgotten):
            self._generation += 1
            self._indexes.pop(announcement.relationship_id, None)
            self._written.pop(announcement.relationship_id, None)
            return
        if not isinstance(announcement, MemoryAnnouncement | MemoriesChanged):
            return
        if announcement.memory_version is None or announcement.relationship_id not in self._known():
            return
        known = self._announced.get(announcement.relationship_id, -1)
        self._announced[announcement.relationship_id] = max(known, announcement.memory_version)
        self.load(announcement.relationship_id)

    def _on_written(
        self, relationship_id: int, state: IndexState, memories: Sequence[IndexedMemory]
    ) -> None:
        if relationship_id in self._indexes:
            self._written[relationship_id] = state, memories

    def _end_update(self, relationship_id: int) -> None:
        self._updates.pop(relationship_id, None)
        self._forget_version(relationship_id)

    def _forget_version(self, relationship_id: int) -> None:
        """Forget the announced version of an index that is neither kept nor being read."""
        if relationship_id not in self._indexes and relationship_id not in self._updates:
            self._announced.pop(relationship_id, None)
            self._written.pop(relationship_id, None)

    def _known(self) -> set[int]:
        return {*self._indexes, *self._updates}

    def _current(self, relationship_id: int) -> MemoryIndex | None:
        index = self._indexes.peek(relationship_id)
        if index is None or index.state.version < self._announced.get(relationship_id, -1):
            return None
        return self._indexes[relationship_id]

    async def _update(self, relationship_id: int) -> None:
        """Read changes until no newer version was announced while they were read."""
        async with self._load_slots:
            while self._current(relationship_id) is None:
                generation = self._generation
                announced = self._announced.get(relationship_id)
                try:
                    known = self._indexes.peek(relationship_id)
                    index = await self._read(relationship_id, known)
                except ForemindError as error:
                    _log.warning("index.not_updated", reason=error.code)
                    return
                if generation == self._generation and not self._keep(relationship_id, index):
                    return
                if announced is not None and self._announced.get(relationship_id) == announced:
                    # What was read later counts, whatever number was announced.
                    self._announced[relationship_id] = index.state.version

    async def _read(self, relationship_id: int, known: MemoryIndex | None) -> MemoryIndex:
        # What commits meanwhile has a later version, and is announced with it.
        after = -1 if known is None else known.state.version
        written = self._written.pop(relationship_id, None)
        if known is not None and written is not None and written[0].version == after + 1:
            return await asyncio.to_thread(known.with_changes, *written)
        state, changes = await self._store.changes(relationship_id, after)
        if state.version < after:  # the database lost commits
            known, (state, changes) = None, await self._store.changes(relationship_id, -1)
        if known is None:
            return await asyncio.to_thread(MemoryIndex.build, state, changes)
        return await asyncio.to_thread(known.with_changes, state, changes)

    def _keep(self, relationship_id: int, index: MemoryIndex) -> bool:
        """Keep an index, evicting the least recently used ones; False if it is too large."""
        if not self._indexes.put(relationship_id, index):
            self._too_large[relationship_id] = None
            _log.info("index.too_large", relationship_id=relationship_id)
            return False
        return True
