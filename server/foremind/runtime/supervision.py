"""Supervised background tasks: restarted with exponential backoff when they fail, and reported.

All asyncio tasks of the server are created here, in one of three ways:

- `Supervisor.start`: a loop that runs as long as the server does;
- `Supervisor.every`: a periodic job;
- `begin`: a task that its owner awaits and stops, such as a reply. Its failure is logged.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Self, TypeVar
from weakref import WeakSet

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, TemporaryError
from foremind.runtime.metrics import Metrics

Result = TypeVar("Result")

# Processing a text of this length takes at most a few milliseconds, about as long as a thread
# switch may take.
_MAX_INLINE_CHARS = 4_000


async def run_or_offload(chars: int, work: Callable[[], Result]) -> Result:
    """Return the result of pure `work` on a text of so many characters."""
    return work() if chars <= _MAX_INLINE_CHARS else await asyncio.to_thread(work)


_MIN_DELAY_S = 0.5  # before the first restart; doubled for each further one
_MAX_DELAY_S = 10.0
_CANCEL_AGAIN_S = 10.0  # longer than a cancelled task takes to clean up
_GRACE_S = 5.0  # a failure shorter than this does not affect readiness

_Result = TypeVar("_Result")
_owned: "WeakSet[asyncio.Task[Any]]" = WeakSet()

_log = structlog.get_logger("foremind.runtime.supervision")


class LoopProblem(NamedTuple):
    """What is wrong with a loop; `code` is that of the error that it keeps failing with, if any."""

    description: str
    code: str | None


class SupervisedLoop:
    """A loop that is restarted whenever it ends, until it is stopped.

    `work` receives this object: it calls `report_progress` whenever it makes progress,
    and may call `report_failure` while it waits for a failure to pass without ending.
    """

    def __init__(
        self,
        name: str,
        work: Callable[["SupervisedLoop"], Awaitable[None]],
        max_silence_s: float | None,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self.name = name
        self._work = work
        self._max_silence_s = max_silence_s
        self._clock = clock
        self._rng = rng
        self._restarts = metrics.task_restarts.labels(name)
        self._up = metrics.task_up.labels(name)
        self._reported_at = clock.monotonic()
        self._failing_since: float | None = None
        self._reason = ""
        self._failures = 0  # consecutive
        self._retry = asyncio.Event()
        self._started = asyncio.Event()
        self._stopping = False
        self._restarts.inc(0)
        self._up.set(1)
        self.task = begin(self._keep_running(), name)

    def report_progress(self) -> None:
        """Report progress: the loop is healthy."""
        self._reported_at = self._clock.monotonic()
        self._failing_since = None
        self._failures = 0
        self._up.set(1)
        self._started.set()

    def report_failure(self, error: BaseException) -> None:
        """Report a failure: the loop makes no progress for now."""
        self._reported_at = self._clock.monotonic()
        self._reason = error.code if isinstance(error, ForemindError) else type(error).__name__
        if self._failing_since is None:
            self._failing_since = self._reported_at
        self._up.set(0)

    def restart_now(self) -> None:
        """Restart without further delay: a dependency may be available again."""
        self._retry.set()

    async def wait_until_started(self) -> None:
        """Wait until the loop has made progress for the first time."""
        await self._started.wait()

    async def stop(self) -> None:
        """Cancel the loop and wait until it has ended."""
        self._stopping = True
        await stop(self.task)
        self._up.set(0)

    async def finish(self, seconds: float) -> None:
        """Give a loop that is about to end up to `seconds` to do so; then stop it."""
        self._stopping = True
        self._retry.set()
        await asyncio.wait({self.task}, timeout=seconds)
        await self.stop()

    def problem(self) -> LoopProblem | None:
        """Return what has been wrong for longer than the grace period, else None."""
        now = self._clock.monotonic()
        if self._failing_since is not None and now - self._failing_since >= _GRACE_S:
            duration = now - self._failing_since
            return LoopProblem(f"{self._reason} for {duration:.0f} s", self._reason)
        if self._max_silence_s is not None and now - self._reported_at > self._max_silence_s:
            return LoopProblem(f"no heartbeat for {now - self._reported_at:.0f} s", None)
        if self.task.done() and not self._stopping:
            return LoopProblem("ended", None)
        return None

    async def _keep_running(self) -> None:
        while not self._stopping:
            self._retry.clear()
            try:
                await self._work(self)
                if self._stopping:
                    return
                self._record_failure(RuntimeError("the loop ended unexpectedly"))
            except asyncio.CancelledError as error:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                self._record_failure(
                    error
                )  # something it awaited was cancelled, not the loop itself
            except Exception as error:
                self._record_failure(error)
            if not self._stopping:
                await self._wait_for_restart()

    def _record_failure(self, error: BaseException) -> None:
        self.report_failure(error)
        self._failures += 1
        self._restarts.inc()
        if isinstance(error, TemporaryError):
            _log.warning("task.failed", task=self.name, reason=error.code, again=self._failures)
        else:  # a bug
            _log.error("task.failed", task=self.name, again=self._failures, exc_info=error)

    async def _wait_for_restart(self) -> None:
        restart_at = self._clock.monotonic() + restart_delay_s(self._failures, self._rng.random())
        timer = self._clock.call_at(restart_at, self._retry.set)
        try:
            await self._retry.wait()
        finally:
            timer.cancel()


class Supervisor:
    """Starts loops, reports their health, and stops those still running on exit."""

    def __init__(self, clock: Clock, metrics: Metrics, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._metrics = metrics
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not security
        self._loops: dict[str, SupervisedLoop] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for loop in reversed(list(self._loops.values())):
            await loop.stop()

    @property
    def loops(self) -> list[SupervisedLoop]:
        """All supervised loops."""
        return list(self._loops.values())

    def start(
        self,
        name: str,
        work: Callable[[SupervisedLoop], Awaitable[None]],
        *,
        max_silence_s: float | None = None,
    ) -> SupervisedLoop:
        """Run `work` in the background, and restart it with backoff whenever it ends.

        Args:
            max_silence_s: the maximum time between calls of `report_progress` or `report_failure`,
                beyond which the loop counts as hung; None for no limit.
        """
        if name in self._loops and not self._loops[name].task.done():
            raise ValueError(f"{name}: a loop of this name is already running")
        loop = SupervisedLoop(name, work, max_silence_s, self._clock, self._metrics, self._rng)
        self._loops[name] = loop
        return loop

    def every(
        self, name: str, seconds: float, job: Callable[[], Awaitable[object]]
    ) -> SupervisedLoop:
        """Run a job now and every `seconds` thereafter; after a failure it is retried sooner."""

        async def work(loop: SupervisedLoop) -> None:
            while True:
                await job()
                loop.report_progress()
                await self._clock.sleep(seconds)

        return self.start(name, work)

    def problems(self) -> dict[str, LoopProblem]:
        """Return the problems of unhealthy loops by name."""
        problems = {name: loop.problem() for name, loop in self._loops.items()}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def restart_now(self) -> None:
        """Restart all failed loops without further delay: a dependency is available again."""
        for loop in self._loops.values():
            loop.restart_now()


def restart_delay_s(failures: int, jitter: float) -> float:
    """Return the seconds before a restart: exponential backoff with `jitter` in [0, 1)."""
    max_delay_s = min(_MAX_DELAY_S, _MIN_DELAY_S * 2.0 ** min(failures - 1, 10))
    return max_delay_s * (0.5 + jitter / 2)


def begin(work: Coroutine[Any, Any, _Result], name: str) -> "asyncio.Task[_Result]":
    """Start a task that the caller owns, awaits and stops; an exception is logged in any case."""
    task = asyncio.create_task(work, name=name)
    _owned.add(task)
    task.add_done_callback(_log_exception)
    return task


def is_owned(task: "asyncio.Task[Any]") -> bool:
    """Return whether a task was started with `begin`."""
    return task in _owned


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended; exceptions are not raised.

    A library may swallow a cancellation, as the client of NATS does while it closes; so may
    `asyncio.wait_for` before Python 3.12. A task that goes on is therefore cancelled again.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_CANCEL_AGAIN_S)


def _log_exception(task: "asyncio.Task[Any]") -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None and not isinstance(error, ForemindError):
        _log.error("task.broken", task=task.get_name(), exc_info=error)


class TaskSet:
    """Tasks that are started individually and stopped together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start a task, which is kept until it ends."""
        task = begin(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait until all tasks have ended, including those started while waiting."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self, after_s: float = 0.0) -> None:
        """Wait until all tasks have ended; cancel those that have not within a time."""
        if after_s and self._tasks:
            await asyncio.wait(self._tasks, timeout=after_s)
        await stop(*self._tasks)
