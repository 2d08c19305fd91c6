"""Context cache: what was retrieved for a draft, and the key that tells whether it is stale."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import getsizeof

import msgspec
import numpy as np
import numpy.typing as npt
from cachetools import TTLCache

from foremind.domain.announcements import Announcement, MemoriesForgotten
from foremind.domain.clock import Clock, Timer
from foremind.domain.memory import Recalled
from foremind.domain.policy import LayerPolicy, RecallPolicy
from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.prompt.sections import Section, StandingLayers
from foremind.lore.activation import NO_LORE, ActiveLore
from foremind.runtime.caches import ByteBoundedCache
from foremind.text.languages.language_files import ENGLISH

_MAX_PER_RELATIONSHIP = 32  # contexts, so that undoing an edit hits the cache
_RELATIONSHIP_FRACTION = 64  # one relationship may use at most one such part of the bytes

# Overhead of a context and its sections, of a memory's numbers, and of references to a text.
_CONTEXT_BYTES, _MEMORY_BYTES, _TEXT_BYTES = 4096, 400, 64


class CacheKey(msgspec.Struct, frozen=True, gc=False):
    """What a context depends on in addition to the text; any difference makes it stale.

    `document_deletions` counts those of the companion's documents. `history` is the mark of the
    conversation, as `draft_lore` computes it, where the companion has a lorebook. `language` is
    that of the prompt. `epoch` counts how often the versions went back.
    """

    memory_version: int
    layers_version: int
    companion_version: int
    model: str
    embedding: str
    recall_policy: RecallPolicy
    layer_policy: LayerPolicy
    document_deletions: int = 0
    language: str = ENGLISH
    history: tuple[int, int] = (0, 0)
    epoch: int = 0


class BuildTimings(msgspec.Struct, frozen=True, gc=False):
    """How long building a context took, in milliseconds; `layers_ms` by layer."""

    embed_ms: float
    search_ms: float
    total_ms: float
    layers_ms: Mapping[LayerName, float]


class PreparedContext(msgspec.Struct, frozen=True, gc=False):
    """What was retrieved for `text` (normalised) under the cache key `cache_key`.

    `missing` maps layers that failed or missed the deadline to the reason; such a context is not
    cached. `standing` are the layers that every prompt includes, `lore` what `text` activates of
    the companion's lorebook.
    """

    text: str
    cache_key: CacheKey
    vector: npt.NDArray[np.float32]
    memories: tuple[Recalled, ...]
    recalled: Mapping[LayerName, Section]
    missing: Mapping[LayerName, str]
    standing: StandingLayers
    timings: BuildTimings
    lore: ActiveLore = NO_LORE

    @property
    def missing_layers(self) -> tuple[LayerName, ...]:
        """The layers that are missing."""
        return tuple(self.missing)


class ContextCache:
    """The contexts of all sessions, each for `ttl_s` seconds; the oldest are evicted first.

    Limits are `capacity` contexts and `max_bytes` in total and, so that one player's typing does
    not evict the contexts of others, 32 contexts and a 64th of the bytes per relationship (but
    always its newest context). Expiry limits memory use and says nothing about staleness: callers
    compare `cache_key`.
    """

    def __init__(self, capacity: int, max_bytes: int, ttl_s: float, clock: Clock) -> None:
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._clock = clock
        # Only peeked at, so that the least recently used is the oldest.
        self._entries: ByteBoundedCache[tuple[int, str], _Entry] = ByteBoundedCache(
            max_bytes, lambda entry: entry.bytes, self._on_removed
        )
        self._by_relationship: dict[int, _RelationshipEntries] = {}
        self._timer: Timer | None = None
        # Memory versions of erasures; builds in progress then end long before these expire.
        self._erasures: TTLCache[int, int] = TTLCache(capacity, ttl_s, timer=clock.monotonic)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def total_bytes(self) -> int:
        """Memory use of the contexts; what several share is counted for each."""
        return self._entries.bytes_used

    def get(self, relationship_id: int, text: str) -> PreparedContext | None:
        """Return the newest context for this text, stale or not."""
        entry = self._entries.peek((relationship_id, text))
        if entry is None or entry.expires_at <= self._clock.monotonic():
            return None
        return entry.context

    def predates_erasure(self, relationship_id: int, context: PreparedContext) -> bool:
        """Return whether a context was started before the relationship's last erasure."""
        version = self._erasures.get(relationship_id)
        return version is not None and context.cache_key.memory_version < version

    def on_announcement(self, announcement: Announcement) -> None:
        """Evict every context of a relationship on an erasure."""
        if isinstance(announcement, MemoriesForgotten):
            relationship_id = announcement.relationship_id
            self._erasures[relationship_id] = announcement.memory_version
            if relationship_id in self._by_relationship:
                for text in list(self._by_relationship[relationship_id].texts):
                    del self._entries[relationship_id, text]

    def put(self, relationship_id: int, context: PreparedContext) -> None:
        """Cache a context, evicting the oldest ones beyond the limits.

        A context started before an erasure may contain what was erased, and is not cached.
        """
        if self.predates_erasure(relationship_id, context):
            return
        key = relationship_id, context.text
        self._entries.pop(key, None)
        size = context_size_bytes(context)
        if not self._entries.put(key, _Entry(context, size, self._clock.monotonic() + self._ttl_s)):
            return
        own = self._by_relationship.setdefault(relationship_id, _RelationshipEntries())
        own.texts[context.text] = None
        own.bytes += size
        max_own = self._entries.maxsize // _RELATIONSHIP_FRACTION
        while len(own.texts) > 1 and (
            len(own.texts) > _MAX_PER_RELATIONSHIP or own.bytes > max_own
        ):
            del self._entries[relationship_id, next(iter(own.texts))]
        while len(self._entries) > self._capacity:
            self._entries.popitem()
        self._schedule_expiry()

    def _on_removed(self, key: tuple[int, str], entry: "_Entry") -> None:
        relationship_id, text = key
        own = self._by_relationship[relationship_id]
        own.bytes -= entry.bytes
        del own.texts[text]
        if not own.texts:
            del self._by_relationship[relationship_id]

    def _oldest(self) -> "_Entry | None":
        key = next(iter(self._entries), None)
        return None if key is None else self._entries.peek(key)

    def _schedule_expiry(self) -> None:
        oldest = self._oldest()
        if self._timer is None and oldest is not None:
            self._timer = self._clock.call_at(oldest.expires_at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while (oldest := self._oldest()) is not None and oldest.expires_at <= now:
            self._entries.popitem()
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
    texts += [entry.text for entry in context.lore.entries]
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
