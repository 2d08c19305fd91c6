"""The clock as a dependency, so that tests can control time."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; no effect once it has run."""


class Clock(Protocol):
    """Wall-clock and monotonic time, timers and sleeping."""

    def now(self) -> datetime:
        """Return the date and time in UTC."""

    def monotonic(self) -> float:
        """Return monotonic seconds; only differences are meaningful."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop once `monotonic()` has reached `when`."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        # The event loop's time is too coarse for timing stages.
        return time.perf_counter()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, when - self.monotonic()), callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
