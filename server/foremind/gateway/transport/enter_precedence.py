"""Holds back what can wait while a message that was just sent is not stored yet."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

MAX_HOLD_S = 0.05  # then others continue: the database may hang, or messages come without a gap


class EnterPrecedence:
    """Knows whether a message waits between Enter and its acceptance.

    Messages that overlap share one hold; the next begins when none waits any more.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._waiting = 0
        self._held_until = 0.0

    def hold_until(self, stored: "asyncio.Future[Any]") -> None:
        """Hold others back until a future is done, or for as long as that is allowed."""
        if not self._waiting:
            self._held_until = self._now() + MAX_HOLD_S
        self._waiting += 1
        stored.add_done_callback(self._release)

    def _release(self, _: object) -> None:
        self._waiting -= 1

    @property
    def holds(self) -> bool:
        """Whether others have to wait now."""
        return self._waiting > 0 and self._now() < self._held_until
