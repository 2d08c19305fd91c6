"""Background loops recover by themselves; /readyz reports failures meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from foremind.runtime.supervision import SupervisedLoop, is_owned
from foremind_client import Client, Conversation, Identity
from foremind_eval.doubles.manual_clock import ManualClock
from tests.acceptance.test_http import get
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    eventually_async,
    on_citus,
)

#: Every loop of the server; a new loop has to be added here, and is then covered by these tests.
LOOPS = {
    "abandoned-timelines",
    "embedding",
    "embedding-model",
    "garbage",
    "library",
    "model-probe",
    "session-sweeper",
    "scene-idle",
    "notifications",
    "presence",
    "reconciliation",
    "background",
    "database-probe",
    "record-uses",
    "spent-tokens",
    "user-erasures",
    "world-erasures",
}
DATABASE_LOOPS = {"notifications", "presence", "background"}


class FaultyDatabase:
    """A server on a manual clock, and an administrator's connection to PostgreSQL."""

    def __init__(
        self, server: RunningServer, clock: ManualClock, admin: Any, database: str
    ) -> None:
        self.server = server
        self.clock = clock
        self.admin = admin
        self.database = database

    async def readiness(self) -> tuple[int, dict[str, str]]:
        """Return the status and the checks of /readyz."""
        status, _, body = await get(self.server, "/readyz")
        return status, json.loads(body)

    def restarts(self) -> dict[str, float]:
        """Return how often each loop was restarted."""
        registry = self.server.app.core.runtime.metrics.registry
        return {
            loop.name: registry.get_sample_value(
                "foremind_task_restarts_total", {"task": loop.name}
            )
            or 0.0
            for loop in self.server.app.core.runtime.supervisor.loops
        }

    def down(self) -> set[str]:
        """Return the loops that are not working."""
        registry = self.server.app.core.runtime.metrics.registry
        return {
            loop.name
            for loop in self.server.app.core.runtime.supervisor.loops
            if not registry.get_sample_value("foremind_task_up", {"task": loop.name})
        }

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Advance the clock until a condition holds."""

        async def advance() -> bool:
            await self.clock.advance(1.0)
            return await condition()

        await eventually_async(advance)

    async def ready(self) -> bool:
        """Return whether /readyz says that the server is ready."""
        return (await self.readiness())[0] == 200

    async def session(self) -> Client:
        """Open a session, again if it is refused because the server was just cut off."""
        async with asyncio.timeout(PATIENCE):
            while True:
                client = await self.server.connect()
                opened = await client.open_session("wren", user_id="ana", name="Ana")
                if opened["type"] == "session.opened":
                    return client
                assert opened["error"]["retryable"], opened

    async def alter_database(self, change: str) -> None:
        """Run ALTER DATABASE on the server's database."""
        await self.admin.execute(f"ALTER DATABASE {self.database} {change}")

    async def terminate_connections(self) -> None:
        """Terminate every connection of the server."""
        await self.admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
            self.database,
        )


@pytest.fixture
async def world(start: StartServer, postgres: str, database_url: str) -> Any:
    """Start a server and wait until it is ready."""
    clock = ManualClock()
    server = await start(clock=clock)
    admin = await asyncpg.connect(postgres.replace("/foremind?", "/postgres?"))
    name = database_url.rpartition("/test_")[2].partition("?")[0]
    world = FaultyDatabase(server, clock, admin, f"test_{name}")
    try:
        await world.until(world.ready)
        yield world
    finally:
        await world.alter_database("WITH ALLOW_CONNECTIONS true")
        await admin.close()


async def send(world: FaultyDatabase, client: Client, text: str) -> None:
    """Send a message and wait for `memory.stored`, which takes all background work."""
    await client.send(text)
    event_types: list[str] = []

    async def stored() -> bool:
        while "memory.stored" not in event_types:
            try:
                async with asyncio.timeout(0.1):
                    event_types.append((await client.next_event())["type"])
            except TimeoutError:
                return False
        return True

    await world.until(stored)


async def interrupt(loop: SupervisedLoop) -> None:
    """Cancel the future that a loop awaits, as soon as it awaits one that is not done."""
    async with asyncio.timeout(PATIENCE):
        while (future := loop.task._fut_waiter) is None or not future.cancel():  # type: ignore[attr-defined]
            await asyncio.sleep(0)


async def test_every_loop_is_restarted_when_it_fails(world: FaultyDatabase) -> None:
    """After the future that it awaits is cancelled."""
    loops = world.server.app.core.runtime.supervisor.loops
    assert {loop.name for loop in loops} == LOOPS
    before = world.restarts()
    for loop in loops:
        await interrupt(loop)

    async def restarted() -> bool:
        return all(count > before[name] for name, count in world.restarts().items())

    async def recovered() -> bool:
        problems = world.server.app.core.runtime.supervisor.problems()
        return await world.ready() and not problems and not world.down() & DATABASE_LOOPS

    await world.until(restarted)
    await world.until(recovered)
    client = await world.server.session()
    await send(world, client, "I promise to water the ferns on Sundays")


async def test_an_unavailable_database_is_reported_until_it_is_back(world: FaultyDatabase) -> None:
    """Every loop that needs it fails, is named by /readyz, and works again afterwards."""
    client = await world.server.session()
    await send(world, client, "I promise to bring the red lantern")
    before = world.restarts()
    await world.alter_database("WITH ALLOW_CONNECTIONS false")
    await world.terminate_connections()

    async def failed() -> bool:
        restarts = world.restarts()
        return all(restarts[name] > before[name] for name in DATABASE_LOOPS)

    async def reported() -> bool:
        status, checks = await world.readiness()
        report = checks["background"]
        return status == 503 and all(name in report for name in DATABASE_LOOPS)

    await world.until(failed)
    await world.until(reported)
    assert world.down() >= DATABASE_LOOPS
    assert (await world.readiness())[1]["database"] != "ok"
    await world.alter_database("WITH ALLOW_CONNECTIONS true")
    await world.until(world.ready)
    await send(world, client, "I promise to bring the green lantern")
    assert world.down() == set()


@pytest.mark.parametrize("sharded", [True, False])
async def test_background_work_that_waits_for_a_node_leaves_the_server_ready(
    world: FaultyDatabase, database_url: str, sharded: bool
) -> None:
    """Of a sharded database, whose other nodes have the relationships of other players."""
    await world.alter_database("SET lock_timeout = '50ms'")
    await world.terminate_connections()
    await world.until(world.ready)
    blocker = await asyncpg.connect(database_url)

    async def reported() -> bool:
        world.server.app.core.database.sharded = sharded
        status, checks = await world.readiness()
        assert checks["database"] == "ok"
        degraded = checks["background"].startswith("degraded: ")
        return checks["background"] != "ok" and (degraded, status) == (
            (True, 200) if sharded else (False, 503)
        )

    try:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE background_steps IN ACCESS EXCLUSIVE MODE")
            await world.until(reported)
    finally:
        await blocker.close()
        world.server.app.core.database.sharded = on_citus()
        await world.alter_database("RESET lock_timeout")


@pytest.mark.parametrize("reconnected", [True, False])
async def test_a_read_only_database_is_reported_until_it_is_writable(
    world: FaultyDatabase, reconnected: bool
) -> None:
    """With old and with new connections; no read-only connection is used afterwards."""
    client = await world.server.session()
    await world.alter_database("SET default_transaction_read_only = on")
    if reconnected:
        await world.terminate_connections()

    async def refused() -> bool:
        status, checks = await world.readiness()
        return status == 503 and "read-only" in checks["database"]

    await world.until(refused)
    await client.send("I promise to bring the blue lantern", "m1")
    refusal = (await client.expect("error"))["error"]
    assert (refusal["code"], refusal["retryable"]) == ("storage_unavailable", True)
    await world.alter_database("RESET default_transaction_read_only")
    await world.until(world.ready)
    await client.send("I promise to bring the blue lantern", "m1")
    assert (await client.expect("message.accepted"))["id"] == "m1"
    await send(world, client, "I promise to bring the yellow lantern")


async def test_a_server_that_drains_is_not_ready(world: FaultyDatabase) -> None:
    """A load balancer sends it no more clients."""
    assert await world.ready()
    draining = asyncio.ensure_future(world.server.app.registry.drain(0.0))
    await world.clock.advance(1.0)
    await draining
    status, checks = await world.readiness()
    assert (status, checks["server"]) == (503, "draining")


async def test_every_task_of_the_server_has_an_owner(world: FaultyDatabase) -> None:
    """Created in one place, so that it is awaited and its failure is reported."""
    stray: set[str] = set()
    stop = asyncio.Event()

    async def watch() -> None:
        while not stop.is_set():
            for task in asyncio.all_tasks():
                code = getattr(task.get_coro(), "cr_code", None)
                ours = code is not None and "/server/foremind/" in code.co_filename
                in_group = task.get_name().startswith("recall-")  # a task group awaits it
                if ours and not in_group and not is_owned(task):
                    stray.add(f"{task.get_name()}: {task.get_coro()}")
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    client = await world.server.session()
    await client.draft("What did I promise about the lanterns?")
    await send(world, client, "I promise to bring the brass lantern")
    stop.set()
    await watching
    assert stray == set()


@pytest.mark.parametrize(
    ("setting", "sqlstate"),
    [("statement_timeout = '3s'", "57014"), ("lock_timeout = '3s'", "55P03")],
)
async def test_on_enter_a_statement_timeout_is_a_retryable_error(
    world: FaultyDatabase, database_url: str, setting: str, sqlstate: str
) -> None:
    """The same message is accepted when it is sent again."""
    await world.alter_database(f"SET {setting}")
    await world.terminate_connections()
    await world.until(world.ready)
    client = await world.session()
    blocker = await asyncpg.connect(database_url)
    try:
        async with blocker.transaction():
            await blocker.execute("SET LOCAL statement_timeout = 0")
            await blocker.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
            await client.send("I promise to bring the silver lantern", "m1")
            refusal = (await client.expect("error"))["error"]
    finally:
        await blocker.close()
    assert (refusal["code"], refusal["retryable"]) == ("storage_unavailable", True), sqlstate
    await client.send("I promise to bring the silver lantern", "m1")
    assert (await client.expect("message.accepted"))["id"] == "m1"


async def test_the_client_retries_what_was_refused_temporarily(
    world: FaultyDatabase, database_url: str
) -> None:
    """The player does not have to press Enter twice."""
    await world.alter_database("SET statement_timeout = '3s'")
    await world.terminate_connections()
    await world.until(world.ready)
    identity = Identity("wren", user_id="ana", name="Ana")
    async with Conversation(world.server.url, identity) as conversation:
        blocker = await asyncpg.connect(database_url)
        try:
            async with blocker.transaction():
                await blocker.execute("SET LOCAL statement_timeout = 0")
                await blocker.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
                sending = asyncio.ensure_future(
                    conversation.send("I promise to bring the tin lantern", "m1")
                )
                refused = "foremind_errors_total", {"code": "storage_unavailable"}
                registry = world.server.app.core.runtime.metrics.registry
                await eventually(lambda: bool(registry.get_sample_value(*refused)))
                assert not sending.done()
        finally:
            await blocker.close()
        assert (await sending)["id"] == "m1"


async def test_on_enter_a_deadlock_is_a_retryable_error(
    world: FaultyDatabase, database_url: str
) -> None:
    """PostgreSQL aborts one transaction; the same message is accepted when it is sent again."""
    client = await world.server.session()
    blocker = await asyncpg.connect(database_url)
    try:
        # So that PostgreSQL aborts the server's transaction, not this one.
        await blocker.execute("SET deadlock_timeout = '1h'")
        for number in range(20):
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE background_steps IN ACCESS EXCLUSIVE MODE")
                await client.send("I promise to bring the golden lantern", f"m{number}")
                await eventually_async(lambda: _is_waiting_for_lock(world))
                await blocker.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
                answer = await client.expect("message.accepted", "error")
            if answer["type"] == "error" and await _has_had_deadlock(world):
                break
    finally:
        await blocker.close()
    assert await _has_had_deadlock(world)
    assert (answer["error"]["code"], answer["error"]["retryable"]) == ("storage_unavailable", True)
    await client.send("I promise to bring the golden lantern", f"m{number}")
    assert (await client.expect("message.accepted"))["id"] == f"m{number}"


async def _is_waiting_for_lock(world: FaultyDatabase) -> bool:
    return bool(
        await world.admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock' "
            # Its statement, of which the first 1024 bytes are shown; on Citus, one of several.
            "AND (query ILIKE '%permitted%' OR query LIKE E'INSERT INTO background_steps\\n%')",
            world.database,
        )
    )


async def _has_had_deadlock(world: FaultyDatabase) -> bool:
    if on_citus():  # which resolves those between nodes itself, and counts none
        return True
    count = "SELECT deadlocks FROM pg_stat_database WHERE datname = $1"
    return bool(await world.admin.fetchval(count, world.database))
