"""The waiting line for the embedding thread: bounded, Enter first. Pure, no waiting in it."""

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Generic, TypeVar

from foremind.errors import Overloaded

Item = TypeVar("Item")


class Priority(IntEnum):
    """Who is served first; within a class, who came first."""

    ENTER = 0  # a player waits
    PAUSE = 1  # a player may soon wait
    EAGER = 2  # a player may type on
    BACKGROUND = 3  # nobody waits


class EmbeddingQueue(Generic[Item]):
    """At most `capacity` waiting items; when full, the least urgent gives way."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lines: dict[Priority, deque[Item]] = {each: deque() for each in Priority}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def push(self, item: Item, priority: Priority) -> Item | None:
        """Add `item`; return the one that had to give way for it, if any.

        The newest of the least urgent class below `priority` gives way: it has waited least.

        Raises:
            Overloaded: the queue is full of items at least as urgent.
        """
        evicted = None
        if len(self) >= self._capacity:
            evicted = self._evict_below(priority)
            if evicted is None:
                raise Overloaded("Too many texts are waiting to be embedded; try again shortly.")
        self._lines[priority].append(item)
        return evicted

    def pop(self) -> Item | None:
        """Take the most urgent item, or None."""
        for line in self._lines.values():
            if line:
                return line.popleft()
        return None

    def discard(self, item: Item) -> bool:
        """Remove an item that nobody waits for any more; False where it is not waiting."""
        for line in self._lines.values():
            if item in line:
                line.remove(item)
                return True
        return False

    def promote(self, wanted: Callable[[Item], bool], priority: Priority) -> list[Item]:
        """Move waiting items that are `wanted` to the end of a more urgent line; return them."""
        promoted = []
        for other, line in self._lines.items():
            if other > priority:
                moved = [item for item in line if wanted(item)]
                for item in moved:
                    line.remove(item)
                self._lines[priority].extend(moved)
                promoted += moved
        return promoted

    def _evict_below(self, priority: Priority) -> Item | None:
        for other in sorted(Priority, reverse=True):
            if other > priority and self._lines[other]:
                return self._lines[other].pop()
        return None
