"""Context cache: what was retrieved for a draft, and the key that tells whether it is stale."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import getsizeof

import msgspec
import numpy as np
import numpy.typing as npt
from cachetools import TTLCache

from foremind.domain.announcements import MemoriesForgotten
from foremind.domain.clock import Clock, Timer
from foremind.domain.memory import Recalled
from foremind.domain.policy import LayerPolicy, RecallPolicy
from foremind.domain.setting_groups import LayerName
from foremind.llm.prompt.sections import Section, StandingLayers
from foremind.storage.notifications import Announcement

_MAX_PER_RELATIONSHIP = 32  # contexts, so that undoing an edit hits the cache
_RELATIONSHIP_FRACTION = 64  # one relationship may use at most one such part of the bytes

# Overhead of a context and its sections, of a memory's numbers, and of references to a text.
_CONTEXT_BYTES, _MEMORY_BYTES, _TEXT_BYTES = 4096, 400, 64


class CacheKey(msgspec.Struct, frozen=True, gc=False):
    """What a context depends on in addition to the text; any difference makes it stale.

    `deleted` counts the deletions of the companion's documents.
    """

    memory_version: int
    layers_version: int
    companion_version: int
    model: str
    embedding: str
    limits: RecallPolicy
    layers: LayerPolicy
    deleted: int = 0


class BuildTimings(msgspec.Struct, frozen=True, gc=False):
    """How long building a context took, in milliseconds; `layers_ms` by layer."""

    embed_ms: float
    search_ms: float
    total_ms: float
    layers_ms: Mapping[LayerName, float]


class PreparedContext(msgspec.Struct, frozen=True, gc=False):
    """What was retrieved for `text` (normalised) under the cache key `validity`.

    `missing` maps layers that failed or missed the deadline to the reason; such a context is not
    cached. `standing` are the layers that every prompt includes.
    """

    text: str
    validity: CacheKey
    vector: npt.NDArray[np.float32]
    memories: tuple[Recalled, ...]
    recalled: Mapping[LayerName, Section]
    missing: Mapping[LayerName, str]
    standing: StandingLayers
    timings: BuildTimings

    @property
    def left_out(self) -> tuple[LayerName, ...]:
        """The layers that are missing."""
        return tuple(self.missing)


class ContextCache:
    """The contexts of all sessions, each for `ttl_s` seconds; the oldest are evicted first.

    Limits are `capacity` contexts and `max_bytes` in total and, so that one player's typing does
    not evict the contexts of others, 32 contexts and a 64th of the bytes per relationship (but
    always its newest context). Expiry limits memory use and says nothing about staleness: callers
    compare `validity`.
    """

    def __init__(self, capacity: int, max_bytes: int, ttl_s: float, clock: Clock) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: OrderedDict[tuple[int, str], _Entry] = OrderedDict()  # oldest first
        self._by_relationship: dict[int, _RelationshipEntries] = {}
        self._timer: Timer | None = None
        self._bytes = 0
        # Memory versions of erasures; builds in progress then end long before these expire.
        self._erasures: TTLCache[int, int] = TTLCache(capacity, ttl_s, timer=clock.monotonic)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes_held(self) -> int:
        """Memory use of the contexts; what several share is counted for each."""
        return self._bytes

    def get(self, relationship_id: int, text: str) -> PreparedContext | None:
        """Return the newest context for this text, stale or not."""
        entry = self._entries.get((relationship_id, text))
        if entry is None or entry.expires_at <= self._clock.monotonic():
            return None
        return entry.context

    def holds_forgotten(self, relationship_id: int, context: PreparedContext) -> bool:
        """Return whether a context was started before the relationship's last erasure."""
        version = self._erasures.get(relationship_id)
        return version is not None and context.validity.memory_version < version

    def heard(self, announcement: Announcement) -> None:
        """Evict every context of a relationship on an erasure."""
        if isinstance(announcement, MemoriesForgotten):
            relationship_id = announcement.relationship_id
            self._erasures[relationship_id] = announcement.memory_version
            if relationship_id in self._by_relationship:
                for text in list(self._by_relationship[relationship_id].texts):
                    self._evict(relationship_id, text)

    def put(self, relationship_id: int, context: PreparedContext) -> None:
        """Cache a context, evicting the oldest ones beyond the limits.

        A context started before an erasure may contain what was erased, and is not cached.
        """
        if self.holds_forgotten(relationship_id, context):
            return
        key = relationship_id, context.text
        if key in self._entries:
            self._evict(*key)
        size = context_size_bytes(context)
        if size > self._max_bytes:
            return
        self._entries[key] = _Entry(context, size, self._clock.monotonic() + self._ttl_s)
        own = self._by_relationship.setdefault(relationship_id, _RelationshipEntries())
        own.texts[context.text] = None
        own.bytes += size
        self._bytes += size
        max_own = self._max_bytes // _RELATIONSHIP_FRACTION
        while len(own.texts) > 1 and (
            len(own.texts) > _MAX_PER_RELATIONSHIP or own.bytes > max_own
        ):
            self._evict(relationship_id, next(iter(own.texts)))
        while len(self._entries) > self._capacity or self._bytes > self._max_bytes:
            self._evict(*next(iter(self._entries)))
        self._schedule_expiry()

    def _evict(self, relationship_id: int, text: str) -> None:
        size = self._entries.pop((relationship_id, text)).bytes
        self._bytes -= size
        own = self._by_relationship[relationship_id]
        own.bytes -= size
        del own.texts[text]
        if not own.texts:
            del self._by_relationship[relationship_id]

    def _schedule_expiry(self) -> None:
        if self._timer is None and self._entries:
            oldest = next(iter(self._entries.values()))
            self._timer = self._clock.call_at(oldest.expires_at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._entries and next(iter(self._entries.values())).expires_at <= now:
            self._evict(*next(iter(self._entries)))
        self._schedule_expiry()


@dataclass(frozen=True, slots=True)
class _Entry:
    context: PreparedContext
    bytes: int
    expires_at: float


@dataclass(slots=True)
class _RelationshipEntries:
    """The texts of one relationship's cached contexts, oldest first, and their total bytes."""

    texts: OrderedDict[str, None] = field(default_factory=OrderedDict)
    bytes: int = 0


def context_size_bytes(context: PreparedContext) -> int:
    """Return an upper estimate of a context's memory use."""
    texts = [context.text, *(memory.content for memory in context.memories)]
    for section in (*context.recalled.values(), *context.standing.sections.values()):
        texts += section.lines
        texts += [text for shape in section.shapes if shape for quote in shape.quotes
                  for text in (quote.before, *quote.sentences)]  # fmt: skip
    return (
        _CONTEXT_BYTES
        + context.vector.nbytes
        + len(context.memories) * _MEMORY_BYTES
        + sum(map(getsizeof, texts))
        + len(texts) * _TEXT_BYTES
    )
