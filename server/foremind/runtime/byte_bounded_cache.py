"""A least-recently-used cache with a limit in bytes."""

from collections.abc import Callable
from typing import TypeVar

from cachetools import Cache, LRUCache

Key = TypeVar("Key")
Value = TypeVar("Value")


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
