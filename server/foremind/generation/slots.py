"""A language model server's slots: who may use one now, and what they remember."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from foremind.generation.portions import length, shared
from foremind.generation.prompt import Message


class Displaced(Exception):
    """Work done ahead had to make room for something that is waited for."""


class Seat:
    """Where a piece of work done ahead sits; `keep` makes it work that is waited for."""

    def __init__(self, slots: "Slots", task: "asyncio.Task[object]") -> None:
        self._slots = slots
        self.task = task
        self.displaced = False
        self.kept = False

    def keep(self) -> None:
        """From now on a player waits for this: nothing displaces it, and it displaces others."""
        self._slots.keep(self)


class Slots:
    """Keeps what may be thrown away out of the way of what is waited for.

    Work that is waited for is never held up here. Work done ahead begins only where one of the
    server's `count` slots is free, in turn, and is cancelled as soon as its slot is wanted.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._wanted = 0
        self._seats: list[Seat] = []
        self._waiting: deque[asyncio.Future[None]] = deque()  # at most one of each open session
        self._prompts: deque[list[Message]] = deque(maxlen=count)  # last used last

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Work that is waited for goes on inside."""
        self._wanted += 1
        self._make_room()
        try:
            yield
        finally:
            self._wanted -= 1
            self._call_next()

    @asynccontextmanager
    async def spare(self) -> AsyncIterator[Seat]:
        """Wait for a free slot; work done ahead goes on inside, in the task that entered.

        Raises:
            Displaced: the slot is wanted; the task was cancelled, and that is taken back.
        """
        while self._free < 1:
            await self._turn()
        task = asyncio.current_task()
        assert task is not None
        seat = Seat(self, task)
        self._seats.append(seat)
        try:
            yield seat
        except asyncio.CancelledError:
            # As `asyncio.timeout` does: only a cancellation of one's own is taken back.
            if seat.displaced and task.uncancel() == 0:
                raise Displaced from None
            raise
        finally:
            self._leave(seat)

    def asked(self, messages: Sequence[Message]) -> None:
        """The server is given a prompt: the slot that holds its beginning goes on, or one starts.

        A guess: servers choose by the likest prompt, then by the longest unused.
        """
        for prompt in list(self._prompts):
            if shared(prompt, messages) == length(prompt):
                self._prompts.remove(prompt)
        self._prompts.append(list(messages))

    def known(self, messages: Sequence[Message]) -> int:
        """Return how many characters of a prompt some slot has probably read."""
        return max((shared(each, messages) for each in self._prompts), default=0)

    def keep(self, seat: Seat) -> None:
        """Make what sits here work that is waited for."""
        if seat in self._seats and not seat.displaced:
            self._seats.remove(seat)
            seat.kept = True
            self._wanted += 1
            self._make_room()

    @property
    def _free(self) -> int:
        return self._count - self._wanted - len(self._seats)

    def _make_room(self) -> None:
        for seat in self._seats[max(0, self._count - self._wanted) :]:
            if not seat.displaced:
                seat.displaced = True
                seat.task.cancel()

    def _leave(self, seat: Seat) -> None:
        if seat.kept:
            self._wanted -= 1
        else:
            self._seats.remove(seat)
        self._call_next()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._call_next()  # called, and gone: the next one's turn
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _call_next(self) -> None:
        while self._free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
