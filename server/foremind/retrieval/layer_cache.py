"""The layers of relationships in use, held in the process and kept current in the background."""

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

from foremind.domain.announcements import LayersChanged, MemoriesForgotten
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.domain.policy import LayerPolicy
from foremind.domain.record import LayersState, Record, of_layer, open_questions
from foremind.domain.settings import LayerName
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
    EPISODE_COSINE,
    MOST_EPISODES,
    MOST_NOTES,
    MOST_QUESTIONS,
    MOST_TOPICS,
    MOST_VAULT,
    NOTE_COSINE,
    QUESTION_COSINE,
    TOPIC_COSINE,
    VAULT_COSINE,
    SearchableRecord,
    references_in,
    topic_weight,
)
from foremind.retrieval.recall_gate import asks
from foremind.retrieval.similarity_calibration import calibrated
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin, stop
from foremind.storage.notifications import Announcement
from foremind.storage.record_store import RecordStore

_KNOWN = 10_000  # relationships of which is known how to count tokens, and what was announced
_RECORD_BYTES = 1500  # what the objects of a record take, beside its texts and vector; the content
# is counted twice, as lines are made of it
_REFERENCE_BYTES = 500  # what a reference takes beside its text: its place in the table of them

_log = structlog.get_logger("foremind.retrieval")


@dataclass(frozen=True, slots=True)
class DraftRecall:
    """A draft, with what finding records for it needs; `vector` is float32 [dimension].

    `references` is everything in it that could be one; `touched` are the best memories that were
    recalled for it: they may touch an open question.
    """

    text: str
    references: Sequence[str]
    vector: npt.NDArray[np.float32]
    user_name: str
    policy: LayerPolicy
    now: datetime
    touched: tuple[str, ...] = ()


class RelationshipLayers:
    """The records of a relationship as of one version, ready to be read. Pure."""

    def __init__(
        self,
        state: LayersState,
        records: Sequence[Record],
        others: Mapping[str, int],
        manifest: Manifest,
        count: CountTokens,
    ) -> None:
        self.version = state.layers_version
        self.count = count
        self.standing = StandingLayers(standing_sections(records, count), state.summarised_turn_id)
        #: About what it takes in memory; at most MOST_RECORDS records.
        self.size_bytes = sum(_size_bytes(record) for record in records)
        self._others = others
        self._manifest = manifest

        of = partial(of_layer, records)
        self._episodes = SearchableRecord.of(of("episodes"))
        self._topics = SearchableRecord.of(of("topics"))
        self._vault = SearchableRecord.of(of("vault"))
        self._notes = SearchableRecord.of(of("scratchpad"))
        self._questions = SearchableRecord.of(open_questions(records))

    def recall(self, layer: LayerName, draft: DraftRecall) -> Section:
        """Return what a layer of records has for a draft."""
        vector, now = draft.vector, draft.now
        references = draft.references
        if layer == "episodes":
            least = calibrated(self._manifest, EPISODE_COSINE)
            found = self._episodes.find(vector, references, least, MOST_EPISODES)
            lines = [episode_line(each, now) for each in found]
        elif layer == "topics":
            least = calibrated(self._manifest, TOPIC_COSINE)
            half_life = draft.policy.topic_half_life
            found = self._topics.find(
                vector, references, least, MOST_TOPICS,
                lambda each: topic_weight(each, now, half_life),
            )  # fmt: skip
            lines = [
                topic_line(each, now, self._others.get(each.title.casefold(), 0)) for each in found
            ]
        elif layer == "questions":
            least = calibrated(self._manifest, QUESTION_COSINE)
            touched = [each for text in draft.touched for each in references_in(text)]
            found = self._questions.find(vector, [*references, *touched], least, MOST_QUESTIONS)
            lines = [question_line(each, draft.user_name, now) for each in found]
        elif layer == "scratchpad":
            least = calibrated(self._manifest, NOTE_COSINE)
            found = self._notes.find(vector, (), least, MOST_NOTES)
            lines = [note_line(each) for each in found]
        else:
            wanted = asks(draft.text)
            least = calibrated(self._manifest, VAULT_COSINE) if wanted else 1.1
            found = self._vault.find(vector, references if wanted else (), least, MOST_VAULT)
            lines = [vault_line(each, now) for each in found]
        return section(layer, lines, self.count, found)


class LayerCache:
    """Holds the layers of relationships in use, in at most `capacity_bytes`.

    The least recently used goes first, and is read again when it is asked for; one that is larger
    than all the room is not held, and read each time. What is held may be older than what is
    announced until the background has read it; where something was forgotten, it is dropped at
    once.
    """

    def __init__(
        self, store: RecordStore, manifest: Manifest, capacity_bytes: int, metrics: Metrics
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._held: LRUCache[int, RelationshipLayers] = LRUCache(
            capacity_bytes, getsizeof=lambda each: each.size_bytes
        )
        metrics.layers_bytes.set_function(lambda: self._held.currsize)
        self._counters: LRUCache[int, CountTokens] = LRUCache(_KNOWN)
        self._announced: LRUCache[int, int] = LRUCache(_KNOWN)
        self._too_large: LRUCache[int, None] = LRUCache(_KNOWN)
        self._reading: dict[int, asyncio.Task[_Snapshot | ForemindError]] = {}
        self._gaps = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop(*self._reading.values())

    def get(self, relationship_id: int) -> RelationshipLayers | None:
        """Return what is held of a relationship; None, and it is read, while nothing is."""
        layers: RelationshipLayers | None = self._held.get(relationship_id)
        known = relationship_id in self._counters and relationship_id not in self._too_large
        if layers is None and known:
            self._read(relationship_id)
        return layers

    async def load(self, relationship_id: int, count: CountTokens) -> RelationshipLayers:
        """Return the relationship's layers, reading them where they are not held.

        Whoever waits may give up: the reading goes on for the next one.

        Raises:
            ForemindError: they could not be read.
        """
        self._counters[relationship_id] = count
        while True:
            held: RelationshipLayers | None = self._held.get(relationship_id)
            reading = self._reading.get(relationship_id)
            if held is not None and reading is None:
                return held
            reading = reading or self._read(relationship_id)
            await asyncio.wait({reading})
            if reading.cancelled():
                raise StorageUnavailable("The server is stopping.")
            read = reading.result()
            if isinstance(read, ForemindError):
                raise read
            if read.gaps == self._gaps:  # else something in it may be forgotten since
                return read.layers

    def count_by(self, relationship_id: int, count: CountTokens) -> None:
        """Count a relationship's tokens in another way from now on."""
        self._counters[relationship_id] = count
        self._gaps += 1  # what is being read is counted as before
        if relationship_id in self._held:
            self._held.pop(relationship_id)
            self._read(relationship_id)

    def heard(self, announcement: Announcement) -> None:
        """Learn that records of a relationship changed, or are gone."""
        if isinstance(announcement, MemoriesForgotten):
            whose = announcement.relationship_id
            self._gaps += 1  # what is being read may hold them
            if self._held.pop(whose, None) is not None:
                self._read(whose)
        elif isinstance(announcement, LayersChanged):
            whose = announcement.relationship_id
            self._announced[whose] = max(
                announcement.layers_version, self._announced.get(whose, -1)
            )
            if whose in self._held:
                self._read(whose)

    async def forget(self) -> None:
        """Read everything anew, after announcements may have been missed."""
        self._gaps += 1
        for relationship_id in list(self._held):
            self._held.pop(relationship_id)
            self._read(relationship_id)

    def _read(self, relationship_id: int) -> "asyncio.Task[_Snapshot | ForemindError]":
        """Begin to read a relationship, unless that is begun already."""
        known = self._reading.get(relationship_id)
        if known is not None:
            return known
        task = begin(self._update(relationship_id), "layers-read")
        self._reading[relationship_id] = task
        return task

    async def _update(self, relationship_id: int) -> "_Snapshot | ForemindError":
        """Read until what is held is as new as what was announced and nothing is forgotten."""
        try:
            while True:
                gaps = self._gaps
                layers = await self._layers(relationship_id)
                if gaps != self._gaps:
                    continue
                self._keep(relationship_id, layers)
                if layers.version >= self._announced.get(relationship_id, -1):
                    return _Snapshot(layers, gaps)
        except ForemindError as error:
            _log.warning("layers.not_read", reason=error.code)
            return error
        finally:
            self._reading.pop(relationship_id, None)

    def _keep(self, relationship_id: int, layers: RelationshipLayers) -> None:
        self._held.pop(relationship_id, None)
        self._too_large.pop(relationship_id, None)
        if layers.size_bytes <= self._held.maxsize:
            self._held[relationship_id] = layers
        else:
            self._too_large[relationship_id] = None
            _log.info("layers.too_large", relationship_id=relationship_id)

    async def _layers(self, relationship_id: int) -> RelationshipLayers:
        # The state first: what commits meanwhile is read twice rather than never.
        state = await self._store.state(relationship_id)
        records = await self._store.all(relationship_id)
        others = await self._store.others_with_topics(relationship_id)
        count = self._counters.get(relationship_id, estimate_tokens)
        return await asyncio.to_thread(
            RelationshipLayers, state, records, others, self._manifest, count
        )


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What was read, and how often something had been forgotten by then."""

    layers: RelationshipLayers
    gaps: int


def _size_bytes(record: Record) -> int:
    vector = 0 if record.vector is None else record.vector.nbytes
    details = [
        each
        for part in msgspec.structs.astuple(record.details)
        if isinstance(part, tuple)
        for each in part
    ]
    texts = [record.kind, record.title, record.content, record.content, *record.refs, *details]
    references = _REFERENCE_BYTES * len(record.refs)
    return _RECORD_BYTES + sum(map(getsizeof, texts)) + references + vector
