"""Opens the database together with what carries announcements between processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from foremind.cluster.announcement_bus import AnnouncementBus
from foremind.cluster.nats_bus import NatsAddress, NatsBus
from foremind.cluster.postgres_bus import PostgresBus
from foremind.runtime.services import RuntimeServices
from foremind.storage.database import Database


@asynccontextmanager
async def announcing_database(
    url: str, size: int, runtime: RuntimeServices
) -> AsyncIterator[tuple[Database, AnnouncementBus]]:
    """Open a pool of at most `size` connections, and what carries its announcements.

    Raises:
        InvalidFile: the credentials file of NATS cannot be used.
        DatabaseUnsuitable: row-level security does not apply to this login.
    """
    settings, clock, metrics = runtime.settings, runtime.clock, runtime.metrics
    timeout_s = settings.database_timeout_s
    if settings.nats_url is None:
        bus = PostgresBus(url, clock, metrics, runtime.supervisor)
        async with Database.connect(url, size=size, timeout_s=timeout_s, publisher=bus) as database:
            yield database, bus
        return

    async def subject() -> str:
        # One subject per database: identifiers mean nothing in another.
        identity = await database.value("database_identity")
        return f"foremind.{identity}.announcements"

    address = NatsAddress(settings.nats_url.get_secret_value(), settings.nats_credentials)
    nats = NatsBus(address, subject, clock, metrics, runtime.supervisor)
    async with (
        Database.connect(url, size=size, timeout_s=timeout_s, publisher=nats) as database,
        nats,
    ):
        yield database, nats
