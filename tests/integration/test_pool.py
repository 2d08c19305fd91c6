"""The pool keeps its size, whatever happens to its connections."""

import asyncio

import asyncpg
import pytest

from foremind.app import Core
from foremind.storage.database import Database, connect_as_server
from foremind.storage.job_queue import PoolDriver
from tests.conftest import PATIENCE


async def test_a_lost_connection_that_listened_is_given_back(built: Core) -> None:
    """Though it can no longer be reset: else each restart of the database costs one for good."""
    pool = built.database.pool
    driver = PoolDriver(pool)
    await driver.add_listener("anything", lambda *_: None)
    listening = driver._listener_connection
    assert listening is not None
    listening._con._protocol.abort()  # as a restarting server does, before anybody is told
    await driver.__aenter__()
    with pytest.raises(asyncpg.InterfaceError):
        await driver.__aexit__(None, None, None)
    everyone = [await pool.acquire(timeout=PATIENCE) for _ in range(pool.get_max_size())]
    for each in everyone:
        await pool.release(each)


async def test_a_pool_closes_though_a_connection_is_never_given_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds it is not waited for beyond a limit, and the connection ends."""
    monkeypatch.setattr("foremind.storage.database._CLOSE_S", 0)
    async with Database.connect(database_url, size=2, timeout_s=10) as database:
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
