"""Layer cache: the records of relationships in use, kept current in the background."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from sys import getsizeof
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from cachetools import LRUCache

from foremind.domain.announcements import Announcement, LayersChanged, MemoriesForgotten
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.domain.policy import LayerPolicy
from foremind.domain.record import LayersState, Record, of_layer, open_questions
from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.prompt.record_format import (
    episode_line,
    note_line,
    question_line,
    topic_line,
    vault_line,
)
from foremind.llm.prompt.sections import Section, StandingLayers, section, standing_sections
from foremind.llm.prompt.token_counter import CountTokens, estimate_tokens
from foremind.retrieval.embedding.manifest import Manifest
from foremind.retrieval.layer_recall import (
    MAX_EPISODES,
    MAX_NOTES,
    MAX_PINNED,
    MAX_QUESTIONS,
    MAX_TOPICS,
    MIN_EPISODE_COSINE,
    MIN_NOTE_COSINE,
    MIN_PINNED_COSINE,
    MIN_QUESTION_COSINE,
    MIN_TOPIC_COSINE,
    RecordIndex,
    references_in,
    topic_weight,
)
from foremind.retrieval.recall_gate import asks_for_memory
from foremind.retrieval.similarity_calibration import calibrated_cosine
from foremind.runtime.byte_bounded_cache import ByteBoundedCache
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin, stop
from foremind.storage.record_store import RecordStore
from foremind.text.languages.language_files import ENGLISH

_MAX_TRACKED = 10_000  # relationships whose token counter and announced version are remembered
_RECORD_BYTES = 1500  # what a record's objects occupy in addition to its texts and vector
_REFERENCE_BYTES = 500  # what an entry in the reference table occupies in addition to its text
_UNREACHABLE_COSINE = 1.1

_log = structlog.get_logger("foremind.retrieval")


@dataclass(frozen=True, slots=True)
class LayerQuery:
    """A draft with what record search needs; `vector` is float32 [dimension].

    `references` are all possible ones in it; `recalled_texts` are the best memories recalled for
    it, which may relate to an open question; `language` is that of the text where it is unsure.
    """

    text: str
    references: Sequence[str]
    vector: npt.NDArray[np.float32]
    user_name: str
    policy: LayerPolicy
    now: datetime
    recalled_texts: tuple[str, ...] = ()
    language: str = ENGLISH


class RelationshipLayers:
    """The records of a relationship as of one version, indexed by layer. Pure."""

    def __init__(
        self,
        state: LayersState,
        records: Sequence[Record],
        other_users_by_topic: Mapping[str, int],
        manifest: Manifest,
        count: CountTokens,
    ) -> None:
        self.version = state.layers_version
        self.count = count
        self.standing = StandingLayers(
            standing_sections(records, count, state.user_name), state.summarised_turn_id
        )
        #: Approximate memory use; at most MOST_RECORDS records.
        self.size_bytes = sum(_size_bytes(record) for record in records)
        self._topic_companions = other_users_by_topic
        self._manifest = manifest

        in_layer = partial(of_layer, records)
        self._episodes = RecordIndex.of(in_layer("episodes"))
        self._topics = RecordIndex.of(in_layer("topics"))
        self._pinned = RecordIndex.of(in_layer("vault"))
        self._notes = RecordIndex.of(in_layer("scratchpad"))
        self._questions = RecordIndex.of(open_questions(records))

    def recall(self, layer: LayerName, draft: LayerQuery) -> Section:
        """Return the records of a layer that match a draft."""
        vector, now = draft.vector, draft.now
        references = draft.references
        if layer == "episodes":
            minimum = calibrated_cosine(self._manifest, MIN_EPISODE_COSINE)
            records = self._episodes.find(vector, references, minimum, MAX_EPISODES)
            lines = [episode_line(record, now) for record in records]
        elif layer == "topics":
            minimum = calibrated_cosine(self._manifest, MIN_TOPIC_COSINE)
            half_life = draft.policy.topic_half_life
            records = self._topics.find(
                vector, references, minimum, MAX_TOPICS,
                lambda record: topic_weight(record, now, half_life),
            )  # fmt: skip
            lines = [
                topic_line(record, now, self._topic_companions.get(record.title.casefold(), 0))
                for record in records
            ]
        elif layer == "questions":
            minimum = calibrated_cosine(self._manifest, MIN_QUESTION_COSINE)
            references = [
                *references,
                *(reference for text in draft.recalled_texts for reference in references_in(text)),
            ]
            records = self._questions.find(vector, references, minimum, MAX_QUESTIONS)
            lines = [question_line(record, draft.user_name, now) for record in records]
        elif layer == "scratchpad":
            minimum = calibrated_cosine(self._manifest, MIN_NOTE_COSINE)
            records = self._notes.find(vector, (), minimum, MAX_NOTES)
            lines = [note_line(record, draft.user_name) for record in records]
        else:
            asking = asks_for_memory(draft.text, draft.language)
            minimum = (
                calibrated_cosine(self._manifest, MIN_PINNED_COSINE)
                if asking
                else _UNREACHABLE_COSINE
            )
            records = self._pinned.find(vector, references if asking else (), minimum, MAX_PINNED)
            lines = [vault_line(record, now) for record in records]
        return section(layer, lines, self.count, records)


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
        self._counters: LRUCache[int, CountTokens] = LRUCache(_MAX_TRACKED)
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
        known = relationship_id in self._counters and relationship_id not in self._too_large
        if layers is None and known:
            self._read(relationship_id)
        return layers

    async def load(self, relationship_id: int, count: CountTokens) -> RelationshipLayers:
        """Return the relationship's layers, reading them if they are not cached.

        Cancelling the call does not cancel the read, which other callers may be waiting for.

        Raises:
            ForemindError: they could not be read.
        """
        self._counters[relationship_id] = count
        while True:
            cached: RelationshipLayers | None = self._cached.get(relationship_id)
            reading = self._reading.get(relationship_id)
            if cached is not None and reading is None:
                return cached
            reading = reading or self._read(relationship_id)
            await asyncio.wait({reading})
            if reading.cancelled():
                raise StorageUnavailable("The server is stopping.")
            snapshot = reading.result()
            if isinstance(snapshot, ForemindError):
                raise snapshot
            if snapshot.generation == self._generation:  # else it may contain erased records
                return snapshot.layers

    def set_token_counter(self, relationship_id: int, count: CountTokens) -> None:
        """Use another token counter for a relationship from now on."""
        self._counters[relationship_id] = count
        self._generation += 1  # a read in progress uses the previous counter
        if relationship_id in self._cached:
            self._cached.pop(relationship_id)
            self._read(relationship_id)

    def on_announcement(self, announcement: Announcement) -> None:
        """Refresh a relationship whose records changed; evict it first on an erasure."""
        if isinstance(announcement, MemoriesForgotten):
            relationship_id = announcement.relationship_id
            self._generation += 1  # a read in progress may contain what was erased
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
        """Read until the announced version is cached and no erasure has intervened."""
        try:
            while True:
                generation = self._generation
                layers = await self._layers(relationship_id)
                if generation != self._generation:
                    continue
                self._keep(relationship_id, layers)
                if layers.version >= self._announced.get(relationship_id, -1):
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
        # State first: a commit in between is then read twice rather than missed.
        state = await self._store.state(relationship_id)
        records = await self._store.all(relationship_id)
        other_users_by_topic = await self._store.others_with_topics(relationship_id)
        count = self._counters.get(relationship_id, estimate_tokens)
        return await asyncio.to_thread(
            RelationshipLayers, state, records, other_users_by_topic, self._manifest, count
        )


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Layers as read, and the cache generation in which the read began."""

    layers: RelationshipLayers
    generation: int


def _size_bytes(record: Record) -> int:
    vector = 0 if record.vector is None else record.vector.nbytes
    details = [
        item
        for value in msgspec.structs.astuple(record.details)
        if isinstance(value, tuple)
        for item in value
    ]
    # The content twice, since prompt lines are made of it.
    texts = [record.kind, record.title, record.content, record.content, *record.refs, *details]
    references = _REFERENCE_BYTES * len(record.refs)
    return _RECORD_BYTES + sum(map(getsizeof, texts)) + references + vector
