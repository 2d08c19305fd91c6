"""Caches: one with a limit in bytes, and those of texts, which every erasure empties."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from cachetools import Cache, LRUCache

from foremind.domain.announcements import Announcement, MemoriesForgotten

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")

_caches: "list[_lru_cache_wrapper[Any]]" = []


def erasable_cache(
    maxsize: int,
) -> "Callable[[Callable[..., Result]], _lru_cache_wrapper[Result]]":
    """Keep the results of a pure function for its last `maxsize` arguments, until an erasure."""

    def decorate(function: Callable[..., Result]) -> "_lru_cache_wrapper[Result]":
        cached = lru_cache(maxsize)(function)
        _caches.append(cached)
        return cached

    return decorate


def on_announcement(announcement: Announcement) -> None:
    """Empty the caches after an erasure; entries still needed are computed again."""
    if isinstance(announcement, MemoriesForgotten):
        for cache in _caches:
            cache.cache_clear()


class ByteBoundedCache(LRUCache[Key, Value]):
    """Values of at most `max_bytes` together; the least recently used are evicted first.

    Args:
        size_of: the memory use of a value, in bytes.
        on_removed: called with every key that is no longer in the cache, and its last value.
    """

    def __init__(
        self,
        max_bytes: int,
        size_of: Callable[[Value], int],
        on_removed: Callable[[Key, Value], object] = lambda _key, _value: None,
    ) -> None:
        super().__init__(max_bytes, size_of)
        self._on_removed = on_removed

    @property
    def bytes_used(self) -> int:
        """Memory use of all values."""
        return int(self.currsize)

    def put(self, key: Key, value: Value) -> bool:
        """Add or replace a value; return False if it exceeds the limit by itself."""
        if self.getsizeof(value) > self.maxsize:
            self.pop(key, None)
            return False
        if key in self:
            LRUCache.__delitem__(self, key)  # replaced, not removed
        self[key] = value
        return True

    def peek(self, key: Key) -> Value | None:
        """Return a value without marking it as used."""
        return Cache.__getitem__(self, key) if key in self else None

    def __delitem__(self, key: Key) -> None:
        value = Cache.__getitem__(self, key)
        super().__delitem__(key)
        self._on_removed(key, value)
