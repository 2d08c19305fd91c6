"""Time as a collaborator, so that tests can move it."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from foremind.domain.errors import InvalidMessage


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Forget the callback; harmless once it has run."""


class Clock(Protocol):
    """What Foremind needs of time."""

    def now(self) -> datetime:
        """The date and time, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never step back; only differences mean anything."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop once `monotonic()` has reached `when`."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        # The loop's own time is cached once per iteration; stage timings need better.
        return time.perf_counter()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, when - self.monotonic()), callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def zone_named(name: str | None) -> ZoneInfo:
    """Return the zone of a player's clock; UTC where none is given.

    Raises:
        InvalidMessage: there is none of that name.
    """
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidMessage(
            "time_zone: expected an IANA name such as Europe/Lisbon", param="time_zone"
        ) from None
