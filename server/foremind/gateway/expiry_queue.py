"""When each of many sessions is to be looked at next, without looking at all of them. Pure."""

import heapq
import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class ExpiryQueue(Generic[Item]):
    """Holds at most one time for each item, in seconds of a clock that never steps back.

    Finding what is due costs the logarithm of their number.
    """

    def __init__(self) -> None:
        self._times: dict[Item, float] = {}
        # Entries whose time is not the item's any more are passed over when they come up.
        self._queue: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._times)

    def set(self, item: Item, when: float | None) -> None:
        """Give an item its next time, instead of the one that it had; None: it has none."""
        if when is None:
            self._times.pop(item, None)
        elif self._times.get(item) != when:
            self._times[item] = when
            heapq.heappush(self._queue, (when, next(self._numbers), item))
        if len(self._queue) > 2 * len(self._times) + 16:
            self._queue = [entry for entry in self._queue if self._times.get(entry[2]) == entry[0]]
            heapq.heapify(self._queue)

    def first(self) -> float | None:
        """Return the earliest time; None where no item has one."""
        while self._queue and self._times.get(self._queue[0][2]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def take(self, now: float) -> Iterator[Item]:
        """Yield the items whose time has come, each without a time from then on."""
        while (first := self.first()) is not None and first <= now:
            item = heapq.heappop(self._queue)[2]
            del self._times[item]
            yield item
