"""One owner for everything that runs in the background: what fails is started again, and told of.

Three kinds of background work, and nothing else creates a task in the server:

- `Supervisor.start`: a loop that runs as long as the server does;
- `Supervisor.every`: a duty that comes round again and again;
- `begin`: a task that somebody holds, awaits and ends, such as a reply. Its failure is logged.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self, TypeVar
from weakref import WeakSet

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, TemporaryError
from foremind.runtime.metrics import Metrics

_FIRST_PAUSE_S = 0.5  # before the first restart; doubled for each that follows
_LONGEST_PAUSE_S = 10.0
_TOLERATED_S = 5.0  # trouble shorter than that leaves the server ready

_Result = TypeVar("_Result")
_begun: "WeakSet[asyncio.Task[Any]]" = WeakSet()

_log = structlog.get_logger("foremind.runtime.supervision")


class SupervisedLoop:
    """A loop that is started again whenever it ends, until it is stopped.

    The loop is given this object: it calls `well` whenever it got somewhere, and may call `ill`
    where it waits for better times without ending.
    """

    def __init__(
        self,
        name: str,
        work: Callable[["SupervisedLoop"], Awaitable[None]],
        silent_s: float | None,
        clock: Clock,
        metrics: Metrics,
        draw: random.Random,
    ) -> None:
        self.name = name
        self._work = work
        self._silent_s = silent_s
        self._clock = clock
        self._draw = draw
        self._restarts = metrics.task_restarts.labels(name)
        self._up = metrics.task_up.labels(name)
        self._heard_at = clock.monotonic()
        self._ill_since: float | None = None
        self._reason = ""
        self._failures = 0  # in a row
        self._try_again = asyncio.Event()
        self._first_well = asyncio.Event()
        self._stopping = False
        self._restarts.inc(0)
        self._up.set(1)
        self.task = begin(self._keep_running(), name)

    def well(self) -> None:
        """Learn that the loop got somewhere."""
        self._heard_at = self._clock.monotonic()
        self._ill_since = None
        self._failures = 0
        self._up.set(1)
        self._first_well.set()

    def ill(self, error: BaseException) -> None:
        """Learn that the loop cannot go on for now."""
        self._heard_at = self._clock.monotonic()
        self._reason = error.code if isinstance(error, ForemindError) else type(error).__name__
        if self._ill_since is None:
            self._ill_since = self._heard_at
        self._up.set(0)

    def try_again(self) -> None:
        """End the pause before the next restart: what it waited for may be back."""
        self._try_again.set()

    async def begun(self) -> None:
        """Wait until the loop got somewhere for the first time."""
        await self._first_well.wait()

    async def stop(self) -> None:
        """End the loop, and wait for its end."""
        self._stopping = True
        await stop(self.task)
        self._up.set(0)

    async def finish(self, seconds: float) -> None:
        """Let the loop, told by its owner to end, do so within `seconds`; then stop it."""
        self._stopping = True
        self._try_again.set()
        await asyncio.wait({self.task}, timeout=seconds)
        await self.stop()

    def trouble(self) -> str | None:
        """Return what has been wrong for longer than is tolerated, else None."""
        now = self._clock.monotonic()
        if self._ill_since is not None and now - self._ill_since >= _TOLERATED_S:
            return f"{self._reason} for {now - self._ill_since:.0f} s"
        if self._silent_s is not None and now - self._heard_at > self._silent_s:
            return f"no sign of life for {now - self._heard_at:.0f} s"
        if self.task.done() and not self._stopping:
            return "ended"
        return None

    async def _keep_running(self) -> None:
        while not self._stopping:
            self._try_again.clear()
            try:
                await self._work(self)
                if self._stopping:
                    return
                self._failed(RuntimeError("it ended by itself"))
            except asyncio.CancelledError as error:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                self._failed(error)  # something that it waited for was cancelled, not the loop
            except Exception as error:
                self._failed(error)
            if not self._stopping:
                await self._pause()

    def _failed(self, error: BaseException) -> None:
        self.ill(error)
        self._failures += 1
        self._restarts.inc()
        if isinstance(error, TemporaryError):
            _log.warning("task.failed", task=self.name, reason=error.code, again=self._failures)
        else:  # a defect
            _log.error("task.failed", task=self.name, again=self._failures, exc_info=error)

    async def _pause(self) -> None:
        until = self._clock.monotonic() + pause_s(self._failures, self._draw.random())
        timer = self._clock.call_at(until, self._try_again.set)
        try:
            await self._try_again.wait()
        finally:
            timer.cancel()


class Supervisor:
    """Starts loops, knows how they are, and ends on leaving those that still run."""

    def __init__(self, clock: Clock, metrics: Metrics, draw: random.Random | None = None) -> None:
        self._clock = clock
        self._metrics = metrics
        self._draw = draw or random.Random()  # noqa: S311 - spreads restarts, guards nothing
        self._loops: dict[str, SupervisedLoop] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for loop in reversed(list(self._loops.values())):
            await loop.stop()

    @property
    def loops(self) -> list[SupervisedLoop]:
        """Everything that is supervised."""
        return list(self._loops.values())

    def start(
        self,
        name: str,
        work: Callable[[SupervisedLoop], Awaitable[None]],
        *,
        silent_s: float | None = None,
    ) -> SupervisedLoop:
        """Run `work` in the background, again whenever it fails, with growing pauses.

        Args:
            silent_s: the longest that it may go without `well` or `ill` before that counts as
                trouble; None for a loop that rightly waits for ever.
        """
        if name in self._loops and not self._loops[name].task.done():
            raise ValueError(f"{name} runs already")
        loop = SupervisedLoop(name, work, silent_s, self._clock, self._metrics, self._draw)
        self._loops[name] = loop
        return loop

    def every(
        self, name: str, seconds: float, duty: Callable[[], Awaitable[object]]
    ) -> SupervisedLoop:
        """Do something now and every `seconds` from then on, sooner again where it fails."""

        async def work(loop: SupervisedLoop) -> None:
            while True:
                await duty()
                loop.well()
                await self._clock.sleep(seconds)

        return self.start(name, work)

    def troubles(self) -> dict[str, str]:
        """Return what is wrong, by the name of the loop."""
        found = {name: loop.trouble() for name, loop in self._loops.items()}
        return {name: trouble for name, trouble in found.items() if trouble is not None}

    def try_again(self) -> None:
        """End every pause before a restart: what they waited for is back."""
        for loop in self._loops.values():
            loop.try_again()


def pause_s(failures: int, draw: float) -> float:
    """Return the seconds before a restart: doubling, and spread by `draw` in [0, 1)."""
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10))
    return longest * (0.5 + draw / 2)


def begin(work: Coroutine[Any, Any, _Result], name: str) -> "asyncio.Task[_Result]":
    """Begin a task that the caller holds, awaits and ends; what it raises is at least logged."""
    task = asyncio.create_task(work, name=name)
    _begun.add(task)
    task.add_done_callback(_ended)
    return task


def is_owned(task: "asyncio.Task[Any]") -> bool:
    """Tell whether a task was begun here."""
    return task in _begun


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended, however they do."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _ended(task: "asyncio.Task[Any]") -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None and not isinstance(error, ForemindError):
        _log.error("task.broken", task=task.get_name(), exc_info=error)


class TaskSet:
    """Tasks that are begun one by one and ended together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Begin a task that is held until it ends."""
        task = begin(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait until all have ended, those included that are begun meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Cancel all and wait for their end."""
        await stop(*self._tasks)
