"""The embedding thread's queue: bounded, by priority, fair between users. Pure."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from foremind.domain.errors import Overloaded

Item = TypeVar("Item")


class Priority(IntEnum):
    """The lowest value is served first; within a priority, users take turns."""

    ENTER = 0  # a player is waiting
    PAUSE = 1  # a player may soon wait
    EAGER = 2  # a player may keep typing
    REQUEST = 3  # a program is waiting
    BACKGROUND = 4  # nobody is waiting


class _UserQueue(Generic[Item]):
    """Items of one priority: owners are served round-robin, each one's items in FIFO order."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[Hashable, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_owner.values()))

    def __iter__(self) -> Iterator[Item]:
        return (item for items in self._by_owner.values() for item in items)

    def append(self, owner: Hashable, item: Item) -> None:
        """Add an item; an owner who had none goes to the end of the round."""
        self._by_owner.setdefault(owner, deque()).append(item)

    def take_first(self) -> Item | None:
        """Remove and return the oldest item of the owner whose turn it is."""
        if not self._by_owner:
            return None
        owner, items = self._by_owner.popitem(last=False)
        item = items.popleft()
        if items:
            self._by_owner[owner] = items
        return item

    def take_newest(self) -> Item:
        """Remove and return the newest item of the owner with the most items."""
        owner = max(reversed(self._by_owner), key=lambda other: len(self._by_owner[other]))
        item = self._by_owner[owner].pop()
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        return item

    def remove(self, owner: Hashable, item: Item) -> bool:
        """Remove an item; return False if it is not queued."""
        items = self._by_owner.get(owner)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del self._by_owner[owner]
        return True


class EmbeddingQueue(Generic[Item]):
    """At most `capacity` waiting items; when full, the least urgent is evicted.

    Items that `is_abandoned` accepts do not count when space is needed: they are dropped first.
    Within a priority, owners are served in turn, however many items each has waiting.
    """

    def __init__(
        self,
        capacity: int,
        is_abandoned: Callable[[Item], bool] = lambda _: False,
        owner: Callable[[Item], Hashable] = lambda _: None,
    ) -> None:
        self._capacity = capacity
        self._is_abandoned = is_abandoned
        self._owner = owner
        self._queues: dict[Priority, _UserQueue[Item]] = {
            priority: _UserQueue() for priority in Priority
        }

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def push(self, item: Item, priority: Priority) -> Item | None:
        """Add `item`; return the item evicted for it, if any.

        It is taken from the least urgent priority below `priority`: the newest item of the owner
        with the most.

        Raises:
            Overloaded: the queue is full of items at least as urgent.
        """
        evicted = None
        if len(self) >= self._capacity:
            self._drop_abandoned()
        if len(self) >= self._capacity:
            evicted = self._evict_below(priority)
            if evicted is None:
                raise Overloaded("Too many texts are waiting to be embedded; try again shortly.")
        self._queues[priority].append(self._owner(item), item)
        return evicted

    def pop(self) -> Item | None:
        """Remove and return the most urgent item, or None."""
        for queue in self._queues.values():
            item = queue.take_first()
            if item is not None:
                return item
        return None

    def discard(self, item: Item) -> bool:
        """Remove an abandoned item; return False if it is not queued."""
        owner = self._owner(item)
        return any(queue.remove(owner, item) for queue in self._queues.values())

    def promote(self, matches: Callable[[Item], bool], priority: Priority) -> list[Item]:
        """Move matching, less urgent items to the end of `priority`'s queue; return them."""
        promoted = []
        for other, queue in self._queues.items():
            if other > priority:
                for item in [item for item in queue if matches(item)]:
                    queue.remove(self._owner(item), item)
                    self._queues[priority].append(self._owner(item), item)
                    promoted.append(item)
        return promoted

    def _drop_abandoned(self) -> None:
        for queue in self._queues.values():
            for item in [item for item in queue if self._is_abandoned(item)]:
                queue.remove(self._owner(item), item)

    def _evict_below(self, priority: Priority) -> Item | None:
        for other in sorted(Priority, reverse=True):
            if other > priority and len(self._queues[other]):
                return self._queues[other].take_newest()
        return None
