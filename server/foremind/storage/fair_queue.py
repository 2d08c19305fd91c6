"""Who goes next where many want the same few things: everybody in turn, not who asks most."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from foremind.domain.errors import RateLimited

Ticket = TypeVar("Ticket")


class FairQueue(Generic[Ticket]):
    """Lets at most `places` in, and `each` of one owner; the others wait, owners in turn. Pure.

    Args:
        waiting: tickets of one owner that may wait.
    """

    def __init__(self, places: int, each: int, waiting: int) -> None:
        self._places = places
        self._each = each
        self._most_waiting = waiting
        self._inside: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, deque[Ticket]] = OrderedDict()

    def ask(self, owner: Hashable, ticket: Ticket) -> None:
        """Stand in line.

        Raises:
            RateLimited: too many of this owner wait.
        """
        if len(self._waiting.get(owner, ())) >= self._most_waiting:
            raise RateLimited(
                f"At most {self._each} of this at once, and {self._most_waiting} more waiting."
            )
        self._waiting.setdefault(owner, deque()).append(ticket)

    def next(self) -> Ticket | None:
        """Return who may go in now, None where nobody may."""
        if self._inside.total() >= self._places:
            return None
        for owner, tickets in self._waiting.items():
            if self._inside[owner] < self._each:
                ticket = tickets.popleft()
                self._inside[owner] += 1
                self._waiting.move_to_end(owner)  # the others first, next time
                self._drop_if_empty(owner)
                return ticket
        return None

    def left(self, owner: Hashable) -> None:
        """Note that one of an owner's that was inside is done."""
        self._inside[owner] -= 1
        if not self._inside[owner]:
            del self._inside[owner]

    def gave_up(self, owner: Hashable, ticket: Ticket) -> bool:
        """Take a ticket out of the line; False where it was let in already."""
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
    """Waits in a `FairQueue`, at most `patience_s`."""

    def __init__(self, places: int, each: int, waiting: int, patience_s: float) -> None:
        self._line: FairQueue[asyncio.Future[None]] = FairQueue(places, each, waiting)
        self._patience_s = patience_s

    @asynccontextmanager
    async def turn(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait for one's turn; it lasts as long as the block.

        Raises:
            RateLimited: too much of this owner's is under way.
        """
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.ask(owner, ticket)
        try:
            self._let_in()
            async with asyncio.timeout(self._patience_s):
                await ticket
        except BaseException as error:
            if not self._line.gave_up(owner, ticket):
                self._leave(owner)
            if isinstance(error, TimeoutError):
                raise RateLimited("Too much is under way; try again when it is done.") from None
            raise
        try:
            yield
        finally:
            self._leave(owner)

    def _leave(self, owner: Hashable) -> None:
        self._line.left(owner)
        self._let_in()

    def _let_in(self) -> None:
        while (ticket := self._line.next()) is not None:
            if not ticket.done():
                ticket.set_result(None)
