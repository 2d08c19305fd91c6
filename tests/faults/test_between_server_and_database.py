"""Faults between the server and PostgreSQL: it stays up, reports them, and recovers."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx2
import msgspec
import psutil
import pytest

from foremind.app.server import serving
from foremind.domain.clock import SystemClock
from foremind.domain.errors import DatabaseUnsuitable
from foremind.domain.settings.settings import Settings
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.storage import embedded_postgres as embedded_server
from foremind.storage.embedded_postgres import embedded_postgres
from foremind.storage.migrations import migrate
from foremind_client import connect
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import PATIENCE, eventually, eventually_async
from tests.faults.conftest import full
from tests.faults.proxy import fault_proxy
from tests.faults.traffic import Traffic, traffic_on

RESTARTS = 10
_TIMEOUT_S = 4.0  # enough to start on a busy machine, and short enough to wait for


@asynccontextmanager
async def own_postgres(folder: Path) -> AsyncIterator[str]:
    """Run a database server for this test alone, which is restarted when it dies."""
    async with (
        Supervisor(SystemClock(), Metrics()) as supervisor,
        embedded_postgres(folder, supervisor) as url,
    ):
        await migrate(url)
        yield url


def postmaster(folder: Path) -> psutil.Process:
    """Return the database server process of a data folder."""
    return psutil.Process(int((folder / "postgres/postmaster.pid").read_text().split()[0]))


def is_running(folder: Path) -> bool:
    """Return whether the database server of a data folder is running or starting."""
    try:
        return postmaster(folder).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, OSError, IndexError):
        return False


async def kill(folder: Path) -> None:
    """Kill the database server as soon as it is running, as a crash would."""
    await eventually(lambda: is_running(folder))
    process = postmaster(folder)
    process.kill()
    await asyncio.to_thread(process.wait)


def over_tcp(url: str, port: int) -> str:
    """Return the URL of the same database through a proxy."""
    return re.sub(r"@[^/]*/(\w+)\?.*", rf"@127.0.0.1:{port}/\1", url)


def address_of(url: str) -> int | str:
    """Return the port of the database server, or the path of its socket."""
    if port := urlsplit(url).port:
        return port
    folder = re.search(r"host=([^&]+)", url)
    assert folder is not None
    return f"{folder[1]}/.s.PGSQL.5432"


async def ready(port: int) -> bool:
    """Return whether /readyz says that a server is ready."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200


async def unready(port: int) -> bool:
    """Return whether /readyz says that a server is not ready."""
    return not await ready(port)


async def accepts(traffic: Traffic, messages: int = 4) -> None:
    """Wait until more messages have been accepted."""
    expected = len(traffic.accepted) + messages
    await eventually(lambda: len(traffic.accepted) >= expected)


async def refuses(traffic: Traffic) -> None:
    """Wait until a message is refused."""
    before = len(traffic.errors)
    await eventually(lambda: len(traffic.errors) > before)


async def test_restarts_of_the_database_lose_nothing(settings: Settings, tmp_path: Path) -> None:
    """Killed repeatedly under traffic, it is restarted; the server keeps running."""
    async with own_postgres(tmp_path) as url:
        changed = msgspec.structs.replace(settings, database_url=_secret(settings, url))
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                for number in range(RESTARTS):
                    await asyncio.sleep(0.1 + 0.037 * number)
                    await kill(tmp_path)
                    await accepts(traffic, 1)
                await accepts(traffic)
            await traffic.check(url)
            await eventually_async(lambda: ready(port))
    assert len(traffic.accepted) > RESTARTS


@pytest.mark.parametrize("killed", [False, True])
async def test_a_database_that_hangs_is_restarted(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """It runs, but answers nobody: what is said after that is stored all the same.

    So it is if only its main process was killed, and the others hang.
    """
    monkeypatch.setattr(embedded_server, "_ANSWER_S", 1.0)
    monkeypatch.setattr(embedded_server, "_ASK_EVERY", 1)
    async with own_postgres(tmp_path) as url:
        changed = msgspec.structs.replace(
            settings, **{"database_url": _secret(settings, url), "database_timeout_s": _TIMEOUT_S}
        )
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                await accepts(traffic, 1)
                hung = postmaster(tmp_path)
                for process in hung.children():
                    process.suspend()
                if killed:
                    hung.kill()
                else:
                    hung.suspend()
                await eventually(lambda: not hung.is_running())
                await accepts(traffic)
            await traffic.check(url)


async def test_a_reply_that_ends_while_the_database_restarts_is_stored(
    settings: Settings, tmp_path: Path
) -> None:
    """The player has read it, so it must be there for the next session, too."""
    async with (
        own_postgres(tmp_path) as url,
        scripted_model(Script(hold_before=asyncio.Event())) as model,
    ):
        changed = msgspec.structs.replace(
            settings, **{"database_url": _secret(settings, url), "llm_url": model.url}
        )
        async with serving(changed) as (_, port):
            async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
                await client.open_session("wren", user_id="ana")
                await client.send("Hello")
                await client.expect("message.accepted")
                await kill(tmp_path)
                assert model.script.hold_before is not None
                model.script.hold_before.set()
                done = await client.expect("response.done")
            assert done["status"] == "completed"
            database = await asyncpg.connect(url)
            stored = "SELECT content FROM turns WHERE speaker = 'companion'"
            assert [row["content"] for row in await database.fetch(stored)] == [done["text"]]
            await database.close()


async def test_the_embedded_database_stops_with_its_last_user(tmp_path: Path) -> None:
    """It has two users, which leave one after the other."""
    async with embedded_postgres(tmp_path) as url:
        running = postmaster(tmp_path)
        async with embedded_postgres(tmp_path) as same_url:
            raw = await asyncpg.connect(same_url)
            await raw.close()
            assert postmaster(tmp_path) == running
        raw = await asyncpg.connect(url)
        assert await raw.fetchval("SELECT 1") == 1
        await raw.close()
        assert postmaster(tmp_path) == running
    assert not running.is_running()


async def test_the_cause_of_a_failed_database_start_is_reported(tmp_path: Path) -> None:
    """With PostgreSQL's message and the path of its log."""
    async with embedded_postgres(tmp_path):
        pass
    with (tmp_path / "postgres/postgresql.conf").open("a") as settings:
        settings.write("shared_buffers = 'nonsense'\n")
    with pytest.raises(DatabaseUnsuitable, match=r"did not start: .*FATAL.*Its log is"):
        async with embedded_postgres(tmp_path):
            pass


async def test_a_bad_connection_to_the_database_loses_nothing(
    settings: Settings, database_url: str
) -> None:
    """Slow, closed, reset, silent and refused in turn."""
    async with fault_proxy(address_of(database_url)) as proxy:
        changed = msgspec.structs.replace(
            settings,
            **{
                "database_url": _secret(settings, over_tcp(database_url, proxy.port)),
                "database_timeout_s": _TIMEOUT_S,
            },
        )
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                await accepts(traffic)
                proxy.faults.latency_s, proxy.faults.jitter_s = 0.01, 0.01
                await accepts(traffic)
                proxy.faults.latency_s = proxy.faults.jitter_s = 0.0
                for disconnect in (proxy.cut, proxy.reset) * 3:
                    disconnect()
                    await accepts(traffic)
                proxy.faults.silent = True
                await refuses(traffic)
                proxy.faults.silent = False
                await accepts(traffic)
                proxy.faults.refuses = True
                proxy.cut()
                await eventually_async(lambda: unready(port))
                proxy.faults.refuses = False
                await accepts(traffic)
            await traffic.check(database_url)
            await eventually_async(lambda: ready(port))
    assert traffic.errors


async def test_an_exhausted_pool_is_a_retryable_error(
    settings: Settings, database_url: str
) -> None:
    """Every connection waits for a lock, until it is released."""
    changed = msgspec.structs.replace(
        settings, **{"database_pool_size": 2, "database_timeout_s": _TIMEOUT_S}
    )
    async with serving(changed) as (_, port):
        async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
            await accepts(traffic)
            blocker = await asyncpg.connect(database_url)
            try:
                async with blocker.transaction():
                    await blocker.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
                    await refuses(traffic)
            finally:
                await blocker.close()
            await accepts(traffic)
        await traffic.check(database_url)
    assert {error["code"] for error in traffic.errors} == {"storage_unavailable"}


async def test_a_frozen_database_is_reported_until_it_resumes(
    settings: Settings, tmp_path: Path
) -> None:
    """While suspended, it neither refuses connections nor answers queries."""
    async with own_postgres(tmp_path) as url:
        changed = msgspec.structs.replace(
            settings, **{"database_url": _secret(settings, url), "database_timeout_s": _TIMEOUT_S}
        )
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                await accepts(traffic)
                processes = [postmaster(tmp_path), *postmaster(tmp_path).children()]
                for process in processes:
                    process.suspend()
                try:
                    await refuses(traffic)
                    await eventually_async(lambda: unready(port))
                finally:
                    for process in processes:
                        process.resume()
                await accepts(traffic)
            await traffic.check(url)
            await eventually_async(lambda: ready(port))


async def test_a_full_disk_is_a_retryable_error(settings: Settings, small_disk: Path) -> None:
    """Messages are refused until there is space again."""
    async with own_postgres(small_disk) as url:
        changed = msgspec.structs.replace(
            settings, **{"database_url": _secret(settings, url), "database_timeout_s": 5.0}
        )
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                await accepts(traffic)
                with full(small_disk):
                    await refuses(traffic)
                    await eventually_async(lambda: unready(port))
                await accepts(traffic)
            await traffic.check(url)
            await eventually_async(lambda: ready(port))


class _SteppingClock(SystemClock):
    """The system's clock with an adjustable date."""

    def __init__(self) -> None:
        self.offset = timedelta(0)

    def now(self) -> datetime:
        """Return the adjusted date."""
        return super().now() + self.offset


async def test_clock_steps_do_not_reorder_turns(settings: Settings) -> None:
    """Even if the clock goes back a day or ahead a year between messages."""
    clock = _SteppingClock()
    async with (
        serving(settings, clock=clock) as (_, port),
        connect(f"ws://127.0.0.1:{port}/v1/ws") as client,
    ):
        await client.open_session("wren", user_id="ana", name="Ana")
        for number, days in enumerate((0, -1, 365, 0, -400, 3)):
            clock.offset = timedelta(days=days)
            await client.send(f"I promise this is number {number}", f"m{number}")
            await client.expect_all("message.accepted", "response.done", "memory.stored")
        opened = await _reopen_session(port)
    texts = [turn["text"] for turn in opened["turns"] if turn["speaker"] == "user"]
    assert texts == [f"I promise this is number {number}" for number in range(6)]


async def _reopen_session(port: int) -> dict[str, list[dict[str, str]]]:
    async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
        return await client.open_session("wren", user_id="ana", name="Ana")


def _secret(settings: Settings, url: str) -> object:
    assert settings.database_url is not None
    return type(settings.database_url)(url)
