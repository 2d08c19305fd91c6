"""Shows other processes that this one is alive, by a lock that ends with its connection."""

import secrets
from collections.abc import Callable
from typing import Any, Self

from foremind.domain.clock import Clock
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import MAX_SILENCE_S, hold_connection
from foremind.storage.named_queries import load_queries


class Presence:
    """The number under which this process claims the messages it answers.

    Every connection that holds the lock has a new number, so claims end with their connection.
    """

    def __init__(self) -> None:
        #: None while no connection holds the lock; then nothing is claimed.
        self.number: int | None = None


class PresenceKeeper:
    """Holds the lock, on a connection of its own, while it is entered."""

    def __init__(self, url: str, presence: Presence, clock: Clock, supervisor: Supervisor) -> None:
        self._url = url
        self._presence = presence
        self._clock = clock
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("presence", self._hold, max_silence_s=MAX_SILENCE_S)
        await self._loop.wait_until_started()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()

    async def _hold(self, loop: SupervisedLoop) -> None:
        try:
            await hold_connection(self._url, self._clock, loop, self._lock)
        finally:
            self._presence.number = None

    async def _lock(self, connection: Any, _fail: Callable[[Exception], None]) -> None:
        number = secrets.randbits(62)
        await connection.execute(load_queries()["lock_presence"], number)
        self._presence.number = number
