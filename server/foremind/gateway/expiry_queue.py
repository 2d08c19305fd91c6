"""A priority queue of deadlines with updates: which of many items is due next. Pure."""

import heapq
import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class ExpiryQueue(Generic[Item]):
    """Holds at most one deadline for each item, in seconds of a monotonic clock.

    Finding due items takes logarithmic time: a binary heap with lazy deletion.
    """

    def __init__(self) -> None:
        self._deadlines: dict[Item, float] = {}
        # Stale entries, whose deadline is no longer the item's, are skipped when they come up.
        self._heap: list[tuple[float, int, Item]] = []
        self._sequence = itertools.count()

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, item: Item, deadline: float | None) -> None:
        """Set or replace an item's deadline; None removes it."""
        if deadline is None:
            self._deadlines.pop(item, None)
        elif self._deadlines.get(item) != deadline:
            self._deadlines[item] = deadline
            heapq.heappush(self._heap, (deadline, next(self._sequence), item))
        if len(self._heap) > 2 * len(self._deadlines) + 16:
            self._heap = [
                entry for entry in self._heap if self._deadlines.get(entry[2]) == entry[0]
            ]
            heapq.heapify(self._heap)

    def earliest(self) -> float | None:
        """Return the earliest deadline, or None if there is none."""
        while self._heap and self._deadlines.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Iterator[Item]:
        """Yield and remove the items whose deadline has passed, earliest first."""
        while (earliest := self.earliest()) is not None and earliest <= now:
            item = heapq.heappop(self._heap)[2]
            del self._deadlines[item]
            yield item
