"""Ends sessions in time: when nobody resumed them, or their token has expired."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from foremind.auth.authority import Authority
from foremind.domain.clock import Clock
from foremind.domain.settings.settings import Settings
from foremind.gateway.session import Session
from foremind.runtime.supervision import SupervisedLoop, Supervisor

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


_MIN_WAIT_S = 0.05  # between two checks of a session that lost its connection
_BUSY_CHECK_S = 1.0  # the same, while only a reply keeps it
_TOKEN_CHECK_S = 2.0  # polled: keys can be withdrawn, and the wall clock can step
_PRUNE_S = 30.0  # between two removals of expired events
_SWEEP_BATCH = 50  # sessions checked before the event loop runs other tasks


class SessionSweeper:
    """Checks each session when it is due, while it runs.

    Args:
        end: ends a session, and has it checked no more.
        expel: does so because its token has expired.
    """

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        clock: Clock,
        supervisor: Supervisor,
        end: Callable[[Session], None],
        expel: Callable[[Session, str], None],
    ) -> None:
        self._settings = settings
        self._authority = authority
        self._clock = clock
        self._supervisor = supervisor
        self._end = end
        self._expel = expel
        self._check_times: ExpiryQueue[Session] = ExpiryQueue()
        self._wakeup = asyncio.Event()  # set when a check is due
        self._loop: SupervisedLoop | None = None

    def start(self) -> None:
        """Begin to check sessions."""
        self._loop = self._supervisor.start("session-sweeper", self._sweep_loop)

    async def stop(self) -> None:
        """Check no more."""
        if self._loop is not None:
            await self._loop.stop()

    def schedule(self, session: Session) -> None:
        """Schedule the next check of a session, which was opened, checked, or lost its client."""
        earliest = self._check_times.earliest()
        check_at = next_check(
            self._settings,
            self._clock.monotonic(),
            session.detached_at,
            busy=session.busy,
            token_expires=session.principal.expires_at is not None,
        )
        self._check_times.set(session, check_at)
        if earliest is None or check_at < earliest:
            self._wakeup.set()

    def forget(self, session: Session) -> None:
        """Do not check a session any more: it has ended."""
        self._check_times.set(session, None)

    async def _sweep_loop(self, loop: SupervisedLoop) -> None:
        """Check each session when it is due."""
        while True:
            self._wakeup.clear()
            earliest = self._check_times.earliest()
            timer = None if earliest is None else self._clock.call_at(earliest, self._wakeup.set)
            try:
                await self._wakeup.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            await self._sweep_due()
            loop.report_progress()

    async def _sweep_due(self) -> None:
        """Check the sessions that are due; a separate frame, so that no reference outlives it."""
        due = self._check_times.pop_due(self._clock.monotonic())
        for number, session in enumerate(due, 1):
            self._sweep_one(session)
            if number % _SWEEP_BATCH == 0:
                await asyncio.sleep(0)

    def _sweep_one(self, session: Session) -> None:
        self.schedule(session)  # unless it ends
        try:
            self._sweep(session, self._clock.monotonic())
        except Exception:  # the loop restarts without this session
            self._end(session)
            raise

    def _sweep(self, session: Session, now: float) -> None:
        """Drop a session's expired events, and enforce its time limits."""
        session.client.prune()
        if session.detached_at is None:
            if not self._authority.still_valid(session.principal):
                self._expel(session, "token expired")
            return
        detached_s = now - session.detached_at
        if session.busy and detached_s >= self._settings.reply_grace_s:
            session.stop_reply()
        elif not session.busy and detached_s >= self._settings.resume_s:
            self._end(session)


def next_check(
    settings: Settings,
    now: float,
    detached_at: float | None,
    *,
    busy: bool,
    token_expires: bool,
) -> float:
    """Return the monotonic time at which a session is to be checked next. Pure.

    Args:
        detached_at: when its connection was lost; None while connected.
        busy: whether it answers a message.
        token_expires: whether its token does.
    """
    if detached_at is None:
        return now + (_TOKEN_CHECK_S if token_expires else _PRUNE_S)
    ends_at = detached_at + settings.resume_s
    if busy:  # until its reply is complete, which nobody tells the sweeper
        stopped_at = detached_at + settings.reply_grace_s
        ends_at = min(stopped_at, max(ends_at, now + _BUSY_CHECK_S))
    return max(ends_at, now + _MIN_WAIT_S)
