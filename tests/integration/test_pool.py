"""The pool keeps its size, whatever happens to its connections."""

import asyncio

import asyncpg
import pytest

from foremind.app.core import Core
from foremind.domain.errors import StorageUnavailable
from foremind.storage.database import Database, connect_as_server
from tests.conftest import PATIENCE, CommitsOnly


async def test_a_connection_lost_within_a_transaction_is_given_back(built: Core) -> None:
    """Though it can no longer be rolled back: else each restart costs the pool one for good."""
    pool = built.database.pool
    with pytest.raises(StorageUnavailable):
        async with built.database.transaction() as connection:
            # As a restarting server does, before anybody is told.
            connection.raw._con._protocol.abort()
            await connection.row("ping")
    everyone = [await pool.acquire(timeout=PATIENCE) for _ in range(pool.get_max_size())]
    for connection in everyone:
        await pool.release(connection)


async def test_a_pool_closes_though_a_connection_is_never_given_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds it is not waited for beyond a limit, and the connection ends."""
    monkeypatch.setattr("foremind.storage.database._CLOSE_S", 0)
    async with Database.connect(
        database_url, size=2, timeout_s=10, publisher=CommitsOnly()
    ) as database:
        held = await database.pool.acquire()
    with pytest.raises(asyncpg.InterfaceError):
        await held.fetchval("SELECT 1")


async def test_whoever_gives_up_connecting_leaves_no_connection(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled while the role is being taken, it is closed by whoever made it."""
    made: list[asyncpg.Connection] = []
    connect, taking = asyncpg.connect, asyncio.Event()

    async def noted(*args: object, **options: object) -> asyncpg.Connection:
        made.append(await connect(*args, **options))
        taking.set()
        return made[0]

    monkeypatch.setattr(asyncpg, "connect", noted)
    connecting = asyncio.create_task(connect_as_server(database_url))
    await taking.wait()
    connecting.cancel()
    await asyncio.wait({connecting})
    assert made[0].is_closed()
