"""Which gateways there are: each shows that it is alive by a lock that ends with its connection."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from foremind.domain.clock import Clock
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import MAX_SILENCE_S, Database, hold_connection
from foremind.storage.named_queries import load_queries


class Presence:
    """The number under which this process claims the messages it answers.

    Every connection that holds the lock has a new number, so claims end with their connection.
    """

    def __init__(self) -> None:
        #: None while no connection holds the lock; then nothing is claimed.
        self.number: int | None = None


class PresenceKeeper:
    """Holds the lock, on a connection of its own, while it is entered.

    It also holds the lock that shows which embedding model's vectors this process searches.

    Args:
        fingerprint: of that model.
    """

    def __init__(
        self,
        url: str,
        fingerprint: str,
        presence: Presence,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self._url = url
        self._fingerprint = fingerprint
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
        await connection.execute(load_queries()["hold_embedding_model"], self._fingerprint)
        await connection.execute(load_queries()["lock_presence"], number)
        self._presence.number = number


@dataclass(frozen=True, slots=True)
class StoredGateway:
    """A gateway that is alive."""

    name: str
    url: str
    presence: int
    draining: bool


class GatewayStore:
    """Reads and writes the gateways of a database; every call may raise StorageUnavailable."""

    def __init__(self, database: Database, presence: Presence) -> None:
        self._database = database
        #: By which the others see that this gateway is alive.
        self.presence = presence

    async def alive(self) -> Sequence[StoredGateway]:
        """Return the gateways that are alive, draining or not, by name."""
        return [StoredGateway(**row) for row in await self._database.rows("live_gateways")]

    async def put(self, name: str, url: str, presence: int) -> None:
        """Record a gateway that is not draining, and delete those that have ended."""
        await self._database.execute("put_gateway", name, url, presence)

    async def drain(self, name: str) -> None:
        """Record that this process, if it is the gateway of that name, accepts no more sessions."""
        await self._database.execute("drain_gateway", name, self.presence.number)
