"""A clock that stands still until a test moves it."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
# Event loop iterations after each timer, so that what it woke can set the next timer.
_SETTLE_ITERATIONS = 20


class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Implements `domain.clock.Clock`; `advance` runs every timer that expires, in order."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def call_at(self, when: float, callback: Callable[[], None]) -> _ManualTimer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_at(
            self._elapsed + seconds, lambda: None if expired.done() else expired.set_result(None)
        )
        try:
            await expired
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move time forward, letting the event loop settle after every timer."""
        end = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, when)
            if timer.callback is not None:
                timer.callback()
                await self._settle()
        self._elapsed = end
        await self._settle()

    async def leap(self, seconds: float) -> None:
        """Move time forward in one step, as after a suspend: timers that expired run afterwards."""
        self._elapsed += seconds
        await self.advance(0)

    async def _settle(self) -> None:
        for _ in range(_SETTLE_ITERATIONS):
            await asyncio.sleep(0)
