"""A language model server's slots: who may use one now, and what they remember."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.prefill_chunks import length, shared

# A background request that was kept waiting for so long is answered, once in the same time.
_PATIENCE_S = 600.0
# Whoever types is taken to press Enter within this time of the last keystroke.
_TYPING_S = 5.0


class Preempted(Exception):
    """Work that can be done again had to make room for something that is waited for."""


class SlotLease:
    """Where a piece of work sits that may be displaced; `keep` makes it work that is waited for."""

    def __init__(self, slots: "SlotPool", task: "asyncio.Task[object]") -> None:
        self._slots = slots
        self.task = task
        self.displaced = False
        self.kept = False

    def keep(self) -> None:
        """From now on a player waits for this: nothing displaces it, and it displaces others."""
        self._slots.keep(self)

    def displace(self) -> None:
        """Cancel what sits here."""
        if not self.displaced:
            self.displaced = True
            self.task.cancel()


class SlotPool:
    """Keeps what may be done again out of the way of what is waited for.

    Work that is waited for is never held up here. Work done ahead begins only where one of the
    server's `count` slots is free, in turn, and is cancelled as soon as its slot is wanted. Work in
    the background does the same, gives way to work done ahead as well, and is held back while
    somebody types. Last comes what only reads again what the background pushed out. Others' use of
    the server, such as other processes', is not known.

    Args:
        patience_s: a background request that has waited for so long is no longer displaced or held
            back; one at a time, and no other within the same time.
        typing_s: how long after a keystroke a slot is held free.
    """

    def __init__(
        self, count: int, patience_s: float = _PATIENCE_S, typing_s: float = _TYPING_S
    ) -> None:
        self._count = count
        self._patience_s = patience_s
        self._typing_s = typing_s
        self._wanted = 0
        self._seats: list[SlotLease] = []
        self._waiting: deque[asyncio.Future[None]] = deque()  # at most one of each open session
        self._background: list[SlotLease] = []
        # At most as many as steps of curation, ratings and behaviours go on at once.
        self._patient: deque[asyncio.Future[None]] = deque()
        self._kept_waiting: set[asyncio.Task[object] | None] = set()  # those of `_patient`
        self._returning: SlotLease | None = None
        self._let_through_at = float("-inf")  # when one that was overdue was
        self._typing_until = float("-inf")
        self._quiet: asyncio.TimerHandle | None = None
        self._prompts: deque[list[Message]] = deque(maxlen=count)  # last used last
        #: The last prompt that somebody waited for.
        self.last_wanted: Sequence[Message] = ()

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
    async def spare(self) -> AsyncIterator[SlotLease]:
        """Wait for a free slot; work done ahead goes on inside, in the task that entered.

        Raises:
            Displaced: the slot is wanted; the task was cancelled, and that is taken back.
        """
        while self._free < 1:
            await self._turn(self._waiting)
        async with self._seated(self._seats) as seat:
            self._make_room()
            yield seat

    @asynccontextmanager
    async def background(self, since: float) -> AsyncIterator[SlotLease]:
        """Wait for a slot that nobody wants; background work goes on inside.

        Args:
            since: when the work first asked for a slot, by the event loop's clock.

        Raises:
            Displaced: as `spare`.
        """
        now = asyncio.get_running_loop().time
        task = asyncio.current_task()
        self._kept_waiting.add(task)
        try:
            while self._left < 1 and now() < self._overdue_at(since):
                await self._turn(self._patient, self._overdue_at(since))
        finally:
            self._kept_waiting.discard(task)
        overdue = self._left < 1
        async with self._seated(self._background) as seat:
            if overdue:
                self._let_through_at = now()
                seat.keep()
            else:
                self._make_room()
            yield seat

    def keeps_waiting(self, task: "asyncio.Task[object]") -> bool:
        """Tell whether a task waits for a slot with work in the background."""
        return task in self._kept_waiting

    @asynccontextmanager
    async def returning(self) -> AsyncIterator[None]:
        """Read again what was pushed out, inside, while nobody else uses the server.

        Raises:
            Displaced: somebody does, or does this already.
        """
        if self._returning is not None or self._unused < 1 or (self._patient and self._left > 0):
            raise Preempted
        own: list[SlotLease] = []
        try:
            async with self._seated(own) as self._returning:
                yield
        finally:
            self._returning = None

    def typed(self) -> None:
        """Somebody types: a slot will soon be wanted."""
        loop = asyncio.get_running_loop()
        self._typing_until = loop.time() + self._typing_s
        self._make_room()
        if self._quiet is None:
            self._quiet = loop.call_at(self._typing_until, self._rests)

    def asked(self, messages: Sequence[Message]) -> None:
        """The server is given a prompt: the slot that holds its beginning goes on, or one starts.

        A guess: servers choose by the likest prompt, then by the longest unused.
        """
        for prompt in list(self._prompts):
            if shared(prompt, messages) == length(prompt):
                self._prompts.remove(prompt)
        self._prompts.append(list(messages))

    def forget(self) -> None:
        """Hold no prompt any more, and have none read again: something in it may be forgotten."""
        self._prompts.clear()
        self.last_wanted = ()
        if self._returning is not None:
            self._returning.displace()

    def known(self, messages: Sequence[Message]) -> int:
        """Return how many characters of a prompt some slot has probably read."""
        return max((shared(prompt, messages) for prompt in self._prompts), default=0)

    def keep(self, seat: SlotLease) -> None:
        """Make what sits here work that is waited for."""
        for seats in (self._seats, self._background):
            if seat in seats and not seat.displaced:
                seats.remove(seat)
                seat.kept = True
                self._wanted += 1
                self._make_room()

    @property
    def _free(self) -> int:
        """Slots for work done ahead."""
        return self._count - self._wanted - len(self._seats)

    @property
    def _left(self) -> int:
        """Slots for work in the background."""
        return self._unused - self._expected

    @property
    def _unused(self) -> int:
        return self._free - len(self._waiting) - len(self._background)

    @property
    def _expected(self) -> int:
        """Slots that will soon be wanted: one, however many type."""
        return int(asyncio.get_running_loop().time() < self._typing_until)

    def _overdue_at(self, since: float) -> float:
        return max(since, self._let_through_at) + self._patience_s

    def _make_room(self) -> None:
        left = max(0, self._count - self._wanted)
        for seat in self._seats[left:]:
            seat.displace()
        for seat in self._background[max(0, left - len(self._seats) - self._expected) :]:
            seat.displace()
        if self._returning is not None and self._unused < 1:
            self._returning.displace()

    @asynccontextmanager
    async def _seated(self, seats: list[SlotLease]) -> AsyncIterator[SlotLease]:
        task = asyncio.current_task()
        assert task is not None
        seat = SlotLease(self, task)
        seats.append(seat)
        self._call_next()  # there may be room for one more
        try:
            yield seat
        except asyncio.CancelledError:
            # As `asyncio.timeout` does: only a cancellation of one's own is taken back.
            if seat.displaced and task.uncancel() == 0:
                raise Preempted from None
            raise
        finally:
            if seat.kept:
                self._wanted -= 1
            else:
                seats.remove(seat)
            self._call_next()

    async def _turn(self, line: "deque[asyncio.Future[None]]", until: float | None = None) -> None:
        """Wait in a line until called, or until a time of the event loop's clock."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        line.append(turn)
        timer = None if until is None else loop.call_at(until, _call, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._call_next()  # called, and gone: the next one's turn
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if turn in line:
                line.remove(turn)

    def _call_next(self) -> None:
        for line, slots in ((self._waiting, self._free), (self._patient, self._left)):
            while slots > 0 and line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return

    def _rests(self) -> None:
        """Nobody has typed for a while, unless somebody has."""
        loop = asyncio.get_running_loop()
        again = loop.time() < self._typing_until
        self._quiet = loop.call_at(self._typing_until, self._rests) if again else None
        self._call_next()


def _call(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
