"""Whose turn it is: one slice of one connection's work in each turn of the event loop.

Everything else that is ready goes on in between, so that a connection with much to handle holds up
nobody. What anonymous connections cause is timed, and takes no more than a share of the loop while
somebody who is known wants it.
"""

import asyncio
import contextvars
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from foremind.domain.rate_limits import TokenBucket

_SHARE = 0.2  # of the loop's time, for those who have not said who they are
_BURST_S = 1.0  # of it that they may take at once: a crowd that enters together
_MOST_OWED_S = 0.1  # what one long step can cost those who wait
_LATELY_S = 0.25  # a known connection sent something: it may send more
_LEAST_WAIT_S = 0.001  # timers are no finer


class SliceHandler(Protocol):
    """Something with work to do, a slice at a time."""

    def take_turn(self) -> None:
        """Do one slice; ask for another turn if there is more."""


class FairScheduler:
    """Takers in the order in which they asked, each once; one of them in a turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[SliceHandler, None] = OrderedDict()  # bounded by the connections
        self._at_the_door: OrderedDict[SliceHandler, None] = OrderedDict()  # by the listeners
        self._door_next = False
        self._next: asyncio.Handle | None = None
        # Not the asker's: what begins in a turn would carry its log fields.
        self._context = contextvars.Context()

    def ask(self, taker: SliceHandler, *, at_the_door: bool = False) -> None:
        """Queue for a turn; who waits already keeps its place.

        Every other turn is for those at the door: however many wait inside, people come in.
        """
        (self._at_the_door if at_the_door else self._waiting)[taker] = None
        self._arm(0.0)

    def leave(self, taker: SliceHandler) -> None:
        """Give up waiting."""
        self._waiting.pop(taker, None)
        self._at_the_door.pop(taker, None)

    def _arm(self, wait_s: float) -> None:
        if self._next is None and (self._waiting or self._at_the_door):
            if wait_s > 0:
                self._next = self._loop.call_later(wait_s, self._run, context=self._context)
            else:
                self._next = self._loop.call_soon(self._run, context=self._context)

    def _run(self) -> None:
        self._next = None
        wait = self._wait_s()
        if wait <= 0 and (taker := self._first()) is not None:
            try:
                taker.take_turn()
            finally:
                self._arm(0.0)
        else:
            self._arm(wait)

    def _first(self) -> SliceHandler | None:
        self._door_next = not self._door_next
        lines = (self._at_the_door, self._waiting)
        for line in lines if self._door_next else reversed(lines):
            if line:
                return line.popitem(last=False)[0]
        return None

    def _wait_s(self) -> float:
        return 0.0


class AnonymousScheduler(FairScheduler):
    """The line of who has not said who it is; what they cause is held to a share of the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.perf_counter,
        worked: Callable[[], float] = time.thread_time,  # others' use of the processor not counted
    ) -> None:
        super().__init__(loop)
        self._now = now
        self._worked = worked
        self._share = TokenBucket(_SHARE, _BURST_S / _SHARE, _MOST_OWED_S)
        self._wanted_at = float("-inf")

    def somebody_known(self) -> None:
        """Note that a known connection sent a message."""
        self._wanted_at = self._now()

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count what the block works as done for an anonymous connection."""
        began = self._worked()
        try:
            yield
        finally:
            self.spend(self._worked() - began)

    def spend(self, seconds: float) -> None:
        """Count time of the loop that anonymous connections took."""
        self._share.take(self._now(), seconds)

    def _wait_s(self) -> float:
        now = self._now()
        wait = self._share.wait(now, 0.0)
        if wait <= 0 or now - self._wanted_at > _LATELY_S:
            return 0.0
        return max(_LEAST_WAIT_S, wait)


class MeteredCoroutine(Coroutine[Any, Any, None]):
    """A coroutine whose steps are timed for as long as its connection is anonymous."""

    __slots__ = ("_anonymous", "_line", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, None],
        line: AnonymousScheduler,
        anonymous: Callable[[], bool],
    ) -> None:
        self._work = work
        self._line = line
        self._anonymous = anonymous

    def send(self, value: Any) -> Any:
        """Run it to where it waits next."""
        if not self._anonymous():
            return self._work.send(value)
        with self._line.spending():
            return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise something where it waits."""
        return self._work.throw(*error)

    def close(self) -> None:
        """Give it up."""
        self._work.close()

    def __await__(self) -> Any:
        """Wait for it from another coroutine."""
        return self._work.__await__()
