"""Fair scheduling: one slice of one connection's work in each iteration of the event loop.

Other ready callbacks run in between, so a connection with much to process delays nobody, and none
runs while something of more urgency waits. The time spent on anonymous connections is metered, and
limited to a share of the loop while identified connections are active.
"""

import asyncio
import contextvars
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from fair_transport.rate_limits import TokenBucket

MAX_HOLD_S = 0.05  # then others continue: what is waited for may hang, or come without a gap


class Precedence:
    """Knows whether something waits that comes before every slice, such as a message to be stored.

    Those that overlap share one hold; the next begins when none waits any more.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._waiting = 0
        self._held_until = 0.0

    def hold_until(self, done: "asyncio.Future[Any]") -> None:
        """Hold others back until a future is done, or for as long as that is allowed."""
        if not self._waiting:
            self._held_until = self._now() + MAX_HOLD_S
        self._waiting += 1
        done.add_done_callback(self._release)

    def _release(self, _: object) -> None:
        self._waiting -= 1

    @property
    def holds(self) -> bool:
        """Whether others have to wait now."""
        return self._waiting > 0 and self._now() < self._held_until


_ANONYMOUS_SHARE = 0.2  # of the loop's time
_BURST_S = 1.0  # of loop time that anonymous connections may use at once, as after a restart
_MAX_DEBT_S = 0.1  # how much one long slice can delay those that wait
_ACTIVE_S = 0.25  # how long after a message identified connections count as active
_MIN_WAIT_S = 0.001  # timers are no finer


class SliceHandler(Protocol):
    """Something that has work to do in slices."""

    def run_slice(self) -> None:
        """Do one slice of work; enqueue again if there is more."""


class FairScheduler:
    """A FIFO queue without duplicates that runs one handler per iteration of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, precedence: Precedence) -> None:
        self._loop = loop
        self._precedence = precedence
        self._handlers: OrderedDict[SliceHandler, None] = OrderedDict()  # one per connection
        self._acceptors: OrderedDict[SliceHandler, None] = OrderedDict()  # one per listener
        self._acceptors_first = False
        self._handle: asyncio.Handle | None = None
        # An empty context: tasks that start in a slice must not inherit a requester's log fields.
        self._context = contextvars.Context()

    def enqueue(self, handler: SliceHandler, *, accepting: bool = False) -> None:
        """Queue a handler for one slice; one that is queued already keeps its place.

        Every other slice goes to handlers that are `accepting` connections, so that new connections
        are accepted however many handlers are queued.
        """
        (self._acceptors if accepting else self._handlers)[handler] = None
        self._schedule(0.0)

    def cancel(self, handler: SliceHandler) -> None:
        """Remove a handler from the queue. Idempotent."""
        self._handlers.pop(handler, None)
        self._acceptors.pop(handler, None)

    def _schedule(self, wait_s: float) -> None:
        if self._handle is None and (self._handlers or self._acceptors):
            if wait_s > 0:
                self._handle = self._loop.call_later(wait_s, self._run, context=self._context)
            else:
                self._handle = self._loop.call_soon(self._run, context=self._context)

    def _run(self) -> None:
        self._handle = None
        wait = self._wait_s()
        if wait <= 0 and (handler := self._pop()) is not None:
            try:
                handler.run_slice()
            finally:
                self._schedule(0.0)
        else:
            self._schedule(wait)

    def _pop(self) -> SliceHandler | None:
        self._acceptors_first = not self._acceptors_first
        queues = (self._acceptors, self._handlers)
        for queue in queues if self._acceptors_first else reversed(queues):
            if queue:
                return queue.popitem(last=False)[0]
        return None

    def _wait_s(self) -> float:
        return _MIN_WAIT_S if self._precedence.holds else 0.0


class AnonymousScheduler(FairScheduler):
    """Schedules anonymous connections, limiting them to a share of the event loop's time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        precedence: Precedence,
        now: Callable[[], float] = time.perf_counter,
        thread_time: Callable[[], float] = time.thread_time,  # excludes other processes' CPU use
    ) -> None:
        super().__init__(loop, precedence)
        self._now = now
        self._thread_time = thread_time
        self._share = TokenBucket(_ANONYMOUS_SHARE, _BURST_S / _ANONYMOUS_SHARE, _MAX_DEBT_S)
        self._active_at = float("-inf")

    def note_identified_traffic(self) -> None:
        """Record that an identified connection sent a message."""
        self._active_at = self._now()

    @contextmanager
    def metered(self) -> Iterator[None]:
        """Charge the CPU time of the block to anonymous connections."""
        started = self._thread_time()
        try:
            yield
        finally:
            self.charge(self._thread_time() - started)

    def charge(self, seconds: float) -> None:
        """Charge loop time to anonymous connections."""
        self._share.take(self._now(), seconds)

    def _wait_s(self) -> float:
        now = self._now()
        wait = self._share.wait(now, 0.0)
        if wait <= 0 or now - self._active_at > _ACTIVE_S:
            return super()._wait_s()
        return max(_MIN_WAIT_S, wait)


class MeteredCoroutine(Coroutine[Any, Any, None]):
    """A coroutine whose steps are metered while its connection is anonymous."""

    __slots__ = ("_coroutine", "_is_anonymous", "_scheduler")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        scheduler: AnonymousScheduler,
        is_anonymous: Callable[[], bool],
    ) -> None:
        self._coroutine = coroutine
        self._scheduler = scheduler
        self._is_anonymous = is_anonymous

    def send(self, value: Any) -> Any:
        """Run to the next suspension."""
        if not self._is_anonymous():
            return self._coroutine.send(value)
        with self._scheduler.metered():
            return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception at the suspension point."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Any:
        """Await the coroutine from another one."""
        return self._coroutine.__await__()
