"""Stores which gateways there are; one is alive while it holds the lock of its presence."""

from collections.abc import Sequence
from dataclasses import dataclass

from foremind.storage.database import Database
from foremind.storage.presence import Presence


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
