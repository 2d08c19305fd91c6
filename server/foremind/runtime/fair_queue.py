"""Fair admission to a limited resource: owners take turns, however much one asks for."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from foremind.domain.errors import RateLimited

Ticket = TypeVar("Ticket")


class FairQueue(Generic[Ticket]):
    """Admits tickets up to a capacity; the others wait, and owners take turns. Pure.

    Args:
        capacity: tickets admitted at a time.
        max_per_owner: of these, for one owner.
        max_waiting: tickets of one owner that may wait.
    """

    def __init__(self, capacity: int, max_per_owner: int, max_waiting: int) -> None:
        self._capacity = capacity
        self._max_per_owner = max_per_owner
        self._max_waiting = max_waiting
        self._admitted: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, deque[Ticket]] = OrderedDict()

    def enqueue(self, owner: Hashable, ticket: Ticket) -> None:
        """Add a waiting ticket.

        Raises:
            RateLimited: too many tickets of this owner are waiting.
        """
        if len(self._waiting.get(owner, ())) >= self._max_waiting:
            raise RateLimited(
                f"At most {self._max_per_owner} of this at once, and {self._max_waiting} more "
                "waiting."
            )
        self._waiting.setdefault(owner, deque()).append(ticket)

    def admit_next(self) -> Ticket | None:
        """Admit the next ticket and return it; None if none can be admitted now."""
        if self._admitted.total() >= self._capacity:
            return None
        for owner, tickets in self._waiting.items():
            if self._admitted[owner] < self._max_per_owner:
                ticket = tickets.popleft()
                self._admitted[owner] += 1
                self._waiting.move_to_end(owner)  # next time, the other owners come first
                self._drop_if_empty(owner)
                return ticket
        return None

    def release(self, owner: Hashable) -> None:
        """Release the place of one of an owner's admitted tickets."""
        self._admitted[owner] -= 1
        if not self._admitted[owner]:
            del self._admitted[owner]

    def withdraw(self, owner: Hashable, ticket: Ticket) -> bool:
        """Remove a waiting ticket; return False if it was admitted already."""
        tickets = self._waiting.get(owner)
        if tickets is None or ticket not in tickets:
            return False
        tickets.remove(ticket)
        self._drop_if_empty(owner)
        return True

    def _drop_if_empty(self, owner: Hashable) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]


class ConnectionQueue:
    """Waits in a `FairQueue`, which has the same arguments, for at most `timeout_s`."""

    def __init__(
        self, capacity: int, max_per_owner: int, max_waiting: int, timeout_s: float
    ) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(
            capacity, max_per_owner, max_waiting
        )
        self._timeout_s = timeout_s

    @asynccontextmanager
    async def turn(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait to be admitted; the place is released when the block ends.

        Raises:
            RateLimited: too many tickets of this owner are waiting, or this one waited too long.
        """
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.enqueue(owner, ticket)
        try:
            self._admit()
            async with asyncio.timeout(self._timeout_s):
                await ticket
        except BaseException as error:
            if not self._queue.withdraw(owner, ticket):
                self._release(owner)
            if isinstance(error, TimeoutError):
                raise RateLimited("Too much is in progress; try again when it is done.") from None
            raise
        try:
            yield
        finally:
            self._release(owner)

    def _release(self, owner: Hashable) -> None:
        self._queue.release(owner)
        self._admit()

    def _admit(self) -> None:
        while (ticket := self._queue.admit_next()) is not None:
            if not ticket.done():
                ticket.set_result(None)
