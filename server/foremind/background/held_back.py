"""Relationships whose lanes a limit held back, in the order in which they may start."""

from foremind.background.lanes import Limit

MAX_HELD_BACK = 1000  # in all; polls find the others


class HeldBack:
    """A queue for each limit that was reached; bounded."""

    def __init__(self) -> None:
        self._queues: dict[Limit, dict[int, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, limit: Limit, relationship_id: int) -> None:
        """Queue a relationship for a limit, unless it is queued or too many are."""
        queue = self._queues.setdefault(limit, {})
        if relationship_id not in queue and self._count < MAX_HELD_BACK:
            queue[relationship_id] = None
            self._count += 1
        self._drop_if_empty(limit)

    def is_waiting(self, limit: Limit) -> bool:
        """Return whether a limit holds a relationship back."""
        return limit in self._queues

    def take(self, limit: Limit) -> int | None:
        """Remove the relationship that has waited the longest for a limit, and return it."""
        queue = self._queues.get(limit)
        if queue is None:
            return None
        relationship_id = next(iter(queue))
        del queue[relationship_id]
        self._count -= 1
        self._drop_if_empty(limit)
        return relationship_id

    def _drop_if_empty(self, limit: Limit) -> None:
        if not self._queues[limit]:
            del self._queues[limit]
