"""An event loop on virtual time, which advances only when every task is waiting.

A run of minutes takes milliseconds, runs with the same seeds are identical, and a deadlock raises
an error instead of hanging the test.
"""

import asyncio
import selectors
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

_START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class Deadlock(Exception):
    """No task is ready and none waits for a timer."""


class _Selector(selectors.SelectSelector):
    """Advances virtual time instead of waiting."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        self.loop.elapsed += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Has no sockets and no threads; `executor_delay` returns the seconds that a job takes."""

    def __init__(self, executor_delay: Callable[[], float] = lambda: 0.0) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self.elapsed = 0.0
        self.executor_delay = executor_delay

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self.elapsed

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run `func` on the loop itself after `executor_delay`."""
        future = self.create_future()

        def run() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self.executor_delay(), run)
        return future


class VirtualClock:
    """Implements `foremind.domain.clock.Clock` on the running virtual loop."""

    def now(self) -> datetime:
        return _START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(when, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
