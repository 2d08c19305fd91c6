"""The waiting line for the embedding thread: bounded, fair, Enter first. Pure, no waiting in it."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from foremind.domain.errors import Overloaded

Item = TypeVar("Item")


class Priority(IntEnum):
    """Who is served first; within a class, users take turns."""

    ENTER = 0  # a player waits
    PAUSE = 1  # a player may soon wait
    EAGER = 2  # a player may type on
    BACKGROUND = 3  # nobody waits


class _UserQueue(Generic[Item]):
    """Items of one class: their owners take turns, each with its own in order of arrival."""

    def __init__(self) -> None:
        self._of: OrderedDict[Hashable, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[Item]:
        return (item for own in self._of.values() for item in own)

    def append(self, owner: Hashable, item: Item) -> None:
        """Add the newest of its owner, whose turn it is after that of everybody who waits."""
        self._of.setdefault(owner, deque()).append(item)

    def take_first(self) -> Item | None:
        """Take the oldest item of the owner whose turn it is."""
        if not self._of:
            return None
        owner, own = self._of.popitem(last=False)
        item = own.popleft()
        if own:
            self._of[owner] = own
        return item

    def take_newest(self) -> Item:
        """Take the newest item of the owner who has most."""
        owner = max(reversed(self._of), key=lambda each: len(self._of[each]))
        item = self._of[owner].pop()
        if not self._of[owner]:
            del self._of[owner]
        return item

    def remove(self, owner: Hashable, item: Item) -> bool:
        """Take an item out; False where it is not there."""
        own = self._of.get(owner)
        if own is None or item not in own:
            return False
        own.remove(item)
        if not own:
            del self._of[owner]
        return True


class EmbeddingQueue(Generic[Item]):
    """At most `capacity` waiting items; when full, the least urgent gives way.

    Items that turn out to be `unwanted` take nobody's place: they go first. Of what is equally
    urgent, each `owner` has one served in turn, however much the others have waiting.
    """

    def __init__(
        self,
        capacity: int,
        unwanted: Callable[[Item], bool] = lambda _: False,
        owner: Callable[[Item], Hashable] = lambda _: None,
    ) -> None:
        self._capacity = capacity
        self._unwanted = unwanted
        self._owner = owner
        self._lines: dict[Priority, _UserQueue[Item]] = {each: _UserQueue() for each in Priority}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def push(self, item: Item, priority: Priority) -> Item | None:
        """Add `item`; return the one that had to give way for it, if any.

        Of the least urgent class below `priority`, the newest of who has most gives way.

        Raises:
            Overloaded: the queue is full of items at least as urgent.
        """
        evicted = None
        if len(self) >= self._capacity:
            self._drop_unwanted()
        if len(self) >= self._capacity:
            evicted = self._evict_below(priority)
            if evicted is None:
                raise Overloaded("Too many texts are waiting to be embedded; try again shortly.")
        self._lines[priority].append(self._owner(item), item)
        return evicted

    def pop(self) -> Item | None:
        """Take the most urgent item, or None."""
        for line in self._lines.values():
            item = line.take_first()
            if item is not None:
                return item
        return None

    def discard(self, item: Item) -> bool:
        """Remove an item that nobody waits for any more; False where it is not waiting."""
        owner = self._owner(item)
        return any(line.remove(owner, item) for line in self._lines.values())

    def promote(self, wanted: Callable[[Item], bool], priority: Priority) -> list[Item]:
        """Move waiting items that are `wanted` to the end of a more urgent line; return them."""
        promoted = []
        for other, line in self._lines.items():
            if other > priority:
                for item in [item for item in line if wanted(item)]:
                    line.remove(self._owner(item), item)
                    self._lines[priority].append(self._owner(item), item)
                    promoted.append(item)
        return promoted

    def _drop_unwanted(self) -> None:
        for line in self._lines.values():
            for item in [item for item in line if self._unwanted(item)]:
                line.remove(self._owner(item), item)

    def _evict_below(self, priority: Priority) -> Item | None:
        for other in sorted(Priority, reverse=True):
            if other > priority and len(self._lines[other]):
                return self._lines[other].take_newest()
        return None
