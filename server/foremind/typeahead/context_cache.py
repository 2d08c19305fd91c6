"""Prepared contexts: what was recalled for a text, and when that still holds."""

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
from foremind.domain.settings import LayerName
from foremind.llm.prompt.sections import Section, StandingLayers
from foremind.storage.notifications import Announcement

_MOST_OF_ONE = 32  # contexts of one relationship: typing back and forth finds them again
_SHARES = 64  # of the bytes, that one relationship may have at most one of

# What a context takes besides its texts: the context and its parts, a memory's numbers, and what
# refers to a text.
_BESIDES_BYTES, _MEMORY_BYTES, _TEXT_BYTES = 4096, 400, 64


class CacheKey(msgspec.Struct, frozen=True, gc=False):
    """What a context depends on besides the text; any difference makes it stale.

    `deleted` is how often documents of the companion were.
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
    """How long preparing took, in milliseconds; `layers_ms` layer by layer."""

    embed_ms: float
    search_ms: float
    total_ms: float
    layers_ms: Mapping[LayerName, float]


class PreparedContext(msgspec.Struct, frozen=True, gc=False):
    """What was recalled for `text` (normalised), made while `validity` held.

    `missing` are layers that failed or were too late, and why; such a context serves once, if at
    all. `standing` is what stood in every prompt then.
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
    """Contexts of all sessions, each kept `ttl_s` seconds, the oldest first to go.

    Of all together at most `capacity`, and `most_bytes`; of one relationship the newest 32 and a
    64th of the bytes (at least the newest context), so that nobody's typing costs others theirs.
    The time bounds memory, not validity: whoever takes a context compares its `validity`.
    """

    def __init__(self, capacity: int, most_bytes: int, ttl_s: float, clock: Clock) -> None:
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._held: OrderedDict[tuple[int, str], _Entry] = OrderedDict()  # oldest first
        self._of: dict[int, _RelationshipEntries] = {}
        self._timer: Timer | None = None
        self._bytes = 0
        # What is still being prepared when something is forgotten is over long before these go.
        self._forgotten: TTLCache[int, int] = TTLCache(capacity, ttl_s, timer=clock.monotonic)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def bytes_held(self) -> int:
        """What the contexts take; what several share counts for each."""
        return self._bytes

    def get(self, relationship_id: int, text: str) -> PreparedContext | None:
        """Return what was last prepared for this text, valid or not."""
        held = self._held.get((relationship_id, text))
        if held is None or held.until <= self._clock.monotonic():
            return None
        return held.context

    def holds_forgotten(self, relationship_id: int, context: PreparedContext) -> bool:
        """Tell whether something was forgotten since a context was begun."""
        version = self._forgotten.get(relationship_id)
        return version is not None and context.validity.memory_version < version

    def heard(self, announcement: Announcement) -> None:
        """Drop every context of a relationship that forgot something."""
        if isinstance(announcement, MemoriesForgotten):
            whose = announcement.relationship_id
            self._forgotten[whose] = announcement.memory_version
            if whose in self._of:
                for text in list(self._of[whose].texts):
                    self._drop(whose, text)

    def put(self, relationship_id: int, context: PreparedContext) -> None:
        """Keep a context, dropping the oldest where there is no room.

        One that was begun before something was forgotten may hold that, and is not kept.
        """
        if self.holds_forgotten(relationship_id, context):
            return
        key = relationship_id, context.text
        if key in self._held:
            self._drop(*key)
        size = bytes_of(context)
        if size > self._most_bytes:
            return
        self._held[key] = _Entry(context, size, self._clock.monotonic() + self._ttl_s)
        own = self._of.setdefault(relationship_id, _RelationshipEntries())
        own.texts[context.text] = None
        own.bytes += size
        self._bytes += size
        most = self._most_bytes // _SHARES
        while len(own.texts) > 1 and (len(own.texts) > _MOST_OF_ONE or own.bytes > most):
            self._drop(relationship_id, next(iter(own.texts)))
        while len(self._held) > self._capacity or self._bytes > self._most_bytes:
            self._drop(*next(iter(self._held)))
        self._watch()

    def _drop(self, relationship_id: int, text: str) -> None:
        size = self._held.pop((relationship_id, text)).bytes
        self._bytes -= size
        own = self._of[relationship_id]
        own.bytes -= size
        del own.texts[text]
        if not own.texts:
            del self._of[relationship_id]

    def _watch(self) -> None:
        """Have what is past its time go, though nobody types."""
        if self._timer is None and self._held:
            self._timer = self._clock.call_at(next(iter(self._held.values())).until, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._held and next(iter(self._held.values())).until <= now:
            self._drop(*next(iter(self._held)))
        self._watch()


@dataclass(frozen=True, slots=True)
class _Entry:
    context: PreparedContext
    bytes: int
    until: float


@dataclass(slots=True)
class _RelationshipEntries:
    """The texts that contexts of one relationship are held for, oldest first, and their bytes."""

    texts: OrderedDict[str, None] = field(default_factory=OrderedDict)
    bytes: int = 0


def bytes_of(context: PreparedContext) -> int:
    """Return about what a context takes in memory, in bytes, rather too many."""
    texts = [context.text, *(memory.content for memory in context.memories)]
    for section in (*context.recalled.values(), *context.standing.sections.values()):
        texts += section.lines
        texts += [one for shape in section.shapes if shape for quote in shape.quotes
                  for one in (quote.before, *quote.sentences)]  # fmt: skip
    return (
        _BESIDES_BYTES
        + context.vector.nbytes
        + len(context.memories) * _MEMORY_BYTES
        + sum(map(getsizeof, texts))
        + len(texts) * _TEXT_BYTES
    )
