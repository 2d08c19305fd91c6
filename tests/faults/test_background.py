"""Whatever runs in the background comes back by itself; /readyz says what is wrong meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from foremind.client import Client, Conversation, Identity
from foremind.runtime.supervision import is_owned
from foremind.testing.manual_clock import ManualClock
from tests.acceptance.test_http import get
from tests.conftest import RunningServer, StartServer, eventually, patiently

#: Every loop of the server; whoever adds one adds it here, and the tests below hold for it.
LOOPS = {
    "embedding",
    "garbage",
    "library",
    "session-sweeper",
    "notifications",
    "jobs",
    "jobs-requeue",
    "jobs-log",
    "curation",
    "database-probe",
    "record-uses",
}
ON_THE_DATABASE = {"notifications", "jobs", "jobs-requeue", "curation"}


class World:
    """A server on a clock that the test moves, and its database's administrator."""

    def __init__(self, server: RunningServer, clock: ManualClock, admin: Any, name: str) -> None:
        self.server = server
        self.clock = clock
        self.admin = admin
        self.name = name

    async def readiness(self) -> tuple[int, dict[str, str]]:
        """What /readyz says."""
        status, _, body = await get(self.server, "/readyz")
        return status, json.loads(body)

    def restarts(self) -> dict[str, float]:
        """How often each loop was started again."""
        registry = self.server.app.core.metrics.registry
        return {
            loop.name: registry.get_sample_value(
                "foremind_task_restarts_total", {"task": loop.name}
            )
            or 0.0
            for loop in self.server.app.core.supervisor.loops
        }

    def down(self) -> set[str]:
        """The loops that do not do their work."""
        registry = self.server.app.core.metrics.registry
        return {
            loop.name
            for loop in self.server.app.core.supervisor.loops
            if not registry.get_sample_value("foremind_task_up", {"task": loop.name})
        }

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Let the clock run until something holds."""

        async def moved() -> bool:
            await self.clock.advance(1.0)
            return await holds()

        await patiently(moved)

    async def ready(self) -> bool:
        """Whether /readyz says so."""
        return (await self.readiness())[0] == 200

    async def order(self, what: str) -> None:
        """Give an order about the server's database."""
        await self.admin.execute(f"ALTER DATABASE {self.name} {what}")

    async def hang_up(self) -> None:
        """End every connection of the server."""
        await self.admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", self.name
        )


@pytest.fixture
async def world(start: StartServer, postgres: str, database_url: str) -> Any:
    """A server that is ready."""
    clock = ManualClock()
    server = await start(clock=clock)
    admin = await asyncpg.connect(postgres.replace("/foremind?", "/postgres?"))
    name = database_url.rpartition("/test_")[2].partition("?")[0]
    made = World(server, clock, admin, f"test_{name}")
    try:
        await made.until(made.ready)
        yield made
    finally:
        await made.order("WITH ALLOW_CONNECTIONS true")
        await admin.close()


async def says(world: World, client: Client, text: str) -> None:
    """A message is stored, judged and announced: every part of the background has done its work."""
    await client.send(text)
    heard: list[str] = []

    async def stored() -> bool:
        while "memory.stored" not in heard:
            try:
                async with asyncio.timeout(0.1):
                    heard.append((await client.next_event())["type"])
            except TimeoutError:
                return False
        return True

    await world.until(stored)


async def test_every_loop_comes_back_when_it_is_broken(world: World) -> None:
    """What each waits for is cancelled under its hands; none may be gone for good."""
    loops = world.server.app.core.supervisor.loops
    assert {loop.name for loop in loops} == LOOPS
    before = world.restarts()
    for loop in loops:
        waits_for = loop.task._fut_waiter  # type: ignore[attr-defined]
        assert waits_for is not None, loop.name
        waits_for.cancel()

    async def restarted() -> bool:
        return all(count > before[name] for name, count in world.restarts().items())

    async def well() -> bool:
        troubles = world.server.app.core.supervisor.troubles()
        return await world.ready() and not troubles and not world.down() & ON_THE_DATABASE

    await world.until(restarted)
    await world.until(well)
    client = await world.server.session()
    await says(world, client, "I promise to water the ferns on Sundays")


async def test_a_database_that_went_away_is_told_and_found_again(world: World) -> None:
    """Every loop that needs it fails, is named by /readyz, and works again when it is back."""
    client = await world.server.session()
    await says(world, client, "I promise to bring the red lantern")
    before = world.restarts()
    await world.order("WITH ALLOW_CONNECTIONS false")
    await world.hang_up()

    async def failed() -> bool:
        now = world.restarts()
        return all(now[name] > before[name] for name in ON_THE_DATABASE)

    async def named() -> bool:
        status, checks = await world.readiness()
        named = checks["background"]
        return status == 503 and all(name in named for name in ON_THE_DATABASE)

    await world.until(failed)
    await world.until(named)
    assert world.down() >= ON_THE_DATABASE
    assert (await world.readiness())[1]["database"] != "ok"
    await world.order("WITH ALLOW_CONNECTIONS true")
    await world.until(world.ready)
    await says(world, client, "I promise to bring the green lantern")
    assert world.down() == set()


@pytest.mark.parametrize("hung_up", [True, False])
async def test_a_read_only_database_is_told_and_left_behind(world: World, hung_up: bool) -> None:
    """Whether or not its connections were made before; and none of that time is used after it."""
    client = await world.server.session()
    await world.order("SET default_transaction_read_only = on")
    if hung_up:
        await world.hang_up()

    async def refused() -> bool:
        status, checks = await world.readiness()
        return status == 503 and "read-only" in checks["database"]

    await world.until(refused)
    await client.send("I promise to bring the blue lantern", "m1")
    refusal = (await client.expect("error"))["error"]
    assert (refusal["code"], refusal["retryable"]) == ("storage_unavailable", True)
    await world.order("RESET default_transaction_read_only")
    await world.until(world.ready)
    await client.send("I promise to bring the blue lantern", "m1")
    assert (await client.expect("message.accepted"))["id"] == "m1"
    await says(world, client, "I promise to bring the yellow lantern")


async def test_a_server_that_drains_is_not_ready(world: World) -> None:
    """A balancer sends nobody there any more."""
    assert await world.ready()
    drained = asyncio.ensure_future(world.server.app.registry.drain(0.0))
    await world.clock.advance(1.0)
    await drained
    status, checks = await world.readiness()
    assert (status, checks["server"]) == (503, "draining")


async def test_the_job_log_is_cut_while_the_server_runs(world: World) -> None:
    """Not only when it starts: what is a week old goes within the hour, portion by portion."""
    database = world.server.app.core.database

    async def old() -> int:
        return int(
            await database.pool.fetchval(
                "SELECT count(*) FROM pgqueuer_log WHERE created < now() - interval '7 days'"
            )
        )

    async def gone() -> bool:
        return await old() == 0

    await world.until(gone)
    await database.pool.execute(
        "INSERT INTO pgqueuer_log (created, job_id, status, priority, entrypoint) "
        "SELECT now() - interval '8 days', n, 'successful', 0, 'x' "
        "FROM generate_series(1, 25000) AS n"
    )
    assert await old() == 25_000
    await world.clock.leap(3600.0)
    await world.until(gone)


async def test_no_task_of_the_server_is_without_an_owner(world: World) -> None:
    """Begun in one place, so that its end is awaited and its failure learned of."""
    stray: set[str] = set()
    stop = asyncio.Event()

    async def watch() -> None:
        while not stop.is_set():
            for task in asyncio.all_tasks():
                frame = getattr(task.get_coro(), "cr_code", None)
                ours = frame is not None and "/server/foremind/" in frame.co_filename
                served = task.get_name().startswith("recall-")  # in a group that awaits it
                if ours and not served and not is_owned(task):
                    stray.add(f"{task.get_name()}: {task.get_coro()}")
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    client = await world.server.session()
    await client.draft("What did I promise about the lanterns?")
    await says(world, client, "I promise to bring the brass lantern")
    stop.set()
    await watching
    client_side = {each for each in stray if "foremind/client" in each}
    assert stray - client_side == set()


@pytest.mark.parametrize(
    ("setting", "sqlstate"),
    [("statement_timeout = '300ms'", "57014"), ("lock_timeout = '300ms'", "55P03")],
)
async def test_on_enter_a_statement_that_was_ended_is_an_error_to_retry(
    world: World, database_url: str, setting: str, sqlstate: str
) -> None:
    """The same message is accepted when it is sent again."""
    await world.order(f"SET {setting}")
    await world.hang_up()
    await world.until(world.ready)
    client = await world.server.session()
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


async def test_the_client_sends_again_what_was_refused_for_a_while(
    world: World, database_url: str
) -> None:
    """Nobody has to press Enter twice."""
    await world.order("SET statement_timeout = '300ms'")
    await world.hang_up()
    await world.until(world.ready)
    who = Identity("wren", user_id="ana", name="Ana")
    async with Conversation(world.server.url, who) as mind:
        blocker = await asyncpg.connect(database_url)
        try:
            async with blocker.transaction():
                await blocker.execute("SET LOCAL statement_timeout = 0")
                await blocker.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
                sending = asyncio.ensure_future(
                    mind.send("I promise to bring the tin lantern", "m1")
                )
                refused = "foremind_errors_total", {"code": "storage_unavailable"}
                registry = world.server.app.core.metrics.registry
                await eventually(lambda: bool(registry.get_sample_value(*refused)))
                assert not sending.done()
        finally:
            await blocker.close()
        assert (await sending)["id"] == "m1"


async def test_on_enter_a_deadlock_is_an_error_to_retry(world: World, database_url: str) -> None:
    """PostgreSQL ends one of the two; the same message is accepted when it is sent again."""
    client = await world.server.session()
    blocker = await asyncpg.connect(database_url)
    try:
        await blocker.execute("SET deadlock_timeout = '1h'")  # so that it is not the one to end
        for number in range(20):
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE pgqueuer IN ACCESS EXCLUSIVE MODE")
                await client.send("I promise to bring the golden lantern", f"m{number}")
                await patiently(lambda: _waits_for_the_queue(world))
                await blocker.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
                answer = await client.expect("message.accepted", "error")
            if answer["type"] == "error" and await _deadlocks(world):
                break
    finally:
        await blocker.close()
    assert await _deadlocks(world)
    assert (answer["error"]["code"], answer["error"]["retryable"]) == ("storage_unavailable", True)
    await client.send("I promise to bring the golden lantern", f"m{number}")
    assert (await client.expect("message.accepted"))["id"] == f"m{number}"


async def _waits_for_the_queue(world: World) -> bool:
    return bool(
        await world.admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock' "
            "AND query ILIKE '%turns%'",
            world.name,
        )
    )


async def _deadlocks(world: World) -> int:
    return int(
        await world.admin.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = $1", world.name
        )
    )
