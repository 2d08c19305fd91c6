"""Prepared contexts: what was recalled for a text, and when that still holds."""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt
from cachetools import TTLCache

from foremind.clock import Clock
from foremind.layers.sections import Section
from foremind.memory.ranking import Recalled
from foremind.policies import LayerPolicy, RecallPolicy
from foremind.settings import LayerName
from foremind.storage.notifications import Announcement, forgets


class Validity(msgspec.Struct, frozen=True, gc=False):
    """What a context depends on besides the text; any difference makes it stale."""

    memory_version: int
    layers_version: int
    companion_version: int
    model: str
    embedding: str
    limits: RecallPolicy
    layers: LayerPolicy


class Timings(msgspec.Struct, frozen=True, gc=False):
    """How long preparing took, in milliseconds; `layers_ms` layer by layer."""

    embed_ms: float
    search_ms: float
    total_ms: float
    layers_ms: Mapping[LayerName, float]


class PreparedContext(msgspec.Struct, frozen=True, gc=False):
    """What was recalled for `text` (normalised), made while `validity` held.

    `left_out` are layers that failed or were too late; such a context serves once, if at all.
    """

    text: str
    validity: Validity
    vector: npt.NDArray[np.float32]
    memories: tuple[Recalled, ...]
    recalled: Mapping[LayerName, Section]
    left_out: tuple[LayerName, ...]
    timings: Timings


class PreparedCache:
    """At most `capacity` contexts of all sessions, each kept `ttl_s` seconds.

    The time bounds memory, not validity: whoever takes a context compares its `validity`.
    """

    def __init__(self, capacity: int, ttl_s: float, clock: Clock) -> None:
        self._contexts: TTLCache[tuple[int, str], PreparedContext] = TTLCache(
            capacity, ttl_s, timer=clock.monotonic
        )

    def __len__(self) -> int:
        return len(self._contexts)

    def get(self, relationship_id: int, text: str) -> PreparedContext | None:
        """Return what was last prepared for this text, valid or not."""
        return self._contexts.get((relationship_id, text))

    def heard(self, announcement: Announcement) -> None:
        """Drop every context of a relationship that forgot something."""
        if forgets(announcement):
            self._contexts.expire()  # iterating passes over what is past its time but still held
            whose = announcement.relationship_id
            for key in [key for key in self._contexts if key[0] == whose]:
                self._contexts.pop(key, None)

    def put(self, relationship_id: int, context: PreparedContext) -> None:
        """Keep a context, forgetting the oldest where there is no room."""
        self._contexts[relationship_id, context.text] = context
