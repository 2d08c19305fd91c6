"""Trouble between the server and PostgreSQL: it stays up, says so, and recovers by itself."""

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import httpx2
import psutil
import pytest

from foremind.app import serving
from foremind.client import connect
from foremind.domain.clock import SystemClock
from foremind.domain.errors import DatabaseUnsuitable
from foremind.domain.settings import Settings
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.storage.embedded_postgres import embedded_postgres
from foremind.storage.migrations import migrate
from tests.conftest import PATIENCE, eventually, patiently
from tests.faults.proxy import fault_proxy
from tests.faults.traffic import Traffic, traffic_on

RESTARTS = 10
DISK = "160m"
_TIMEOUT_S = 4.0  # long enough to start with on a busy machine, short enough to wait for


@asynccontextmanager
async def own_postgres(folder: Path) -> AsyncIterator[str]:
    """A database server that nobody else uses, and that is started again when it dies."""
    async with (
        Supervisor(SystemClock(), Metrics()) as supervisor,
        embedded_postgres(folder, supervisor) as url,
    ):
        await migrate(url)
        yield url


def postmaster(folder: Path) -> psutil.Process:
    """The database server of a data folder."""
    return psutil.Process(int((folder / "postgres/postmaster.pid").read_text().split()[0]))


def runs(folder: Path) -> bool:
    """Whether it does, or is about to."""
    try:
        return postmaster(folder).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, OSError, IndexError):
        return False


async def killed(folder: Path) -> None:
    """End it as if its machine had lost power, once it runs."""
    await eventually(lambda: runs(folder))
    process = postmaster(folder)
    process.kill()
    await asyncio.to_thread(process.wait)


def over_tcp(url: str, port: int) -> str:
    """The URL of the same database, behind a proxy."""
    return re.sub(r"@/(\w+)\?.*", rf"@127.0.0.1:{port}/\1", url)


def socket_of(url: str) -> str:
    """Where the database server listens."""
    folder = re.search(r"host=([^&]+)", url)
    assert folder is not None
    return f"{folder[1]}/.s.PGSQL.5432"


async def ready(port: int) -> bool:
    """Whether a server says that it is."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200


async def unready(port: int) -> bool:
    """Whether it says that it is not."""
    return not await ready(port)


async def goes_on(traffic: Traffic, more: int = 4) -> None:
    """Wait until messages are accepted again."""
    wanted = len(traffic.accepted) + more
    await eventually(lambda: len(traffic.accepted) >= wanted)


async def fails(traffic: Traffic) -> None:
    """Wait until a message is refused."""
    before = len(traffic.errors)
    await eventually(lambda: len(traffic.errors) > before)


async def test_restarts_of_the_database_lose_nothing(settings: Settings, tmp_path: Path) -> None:
    """Killed at any moment, under traffic, it comes back by itself; the server stays."""
    async with own_postgres(tmp_path) as url:
        changed = settings.model_copy(update={"database_url": _secret(settings, url)})
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                for number in range(RESTARTS):
                    await asyncio.sleep(0.1 + 0.037 * number)
                    await killed(tmp_path)
                    await goes_on(traffic, 1)
                await goes_on(traffic)
            await traffic.check(url)
            await patiently(lambda: ready(port))
    assert len(traffic.accepted) > RESTARTS


async def test_the_embedded_database_stops_with_its_last_user(tmp_path: Path) -> None:
    """Two use it, one after the other leaves."""
    async with embedded_postgres(tmp_path) as url:
        running = postmaster(tmp_path)
        async with embedded_postgres(tmp_path) as also:
            raw = await asyncpg.connect(also)
            await raw.close()
            assert postmaster(tmp_path) == running
        raw = await asyncpg.connect(url)
        assert await raw.fetchval("SELECT 1") == 1
        await raw.close()
        assert postmaster(tmp_path) == running
    assert not running.is_running()


async def test_what_keeps_the_embedded_database_from_starting_is_told(tmp_path: Path) -> None:
    """In its own words, and where they stand."""
    async with embedded_postgres(tmp_path):
        pass
    with (tmp_path / "postgres/postgresql.conf").open("a") as settings:
        settings.write("shared_buffers = 'nonsense'\n")
    with pytest.raises(DatabaseUnsuitable, match=r"did not start: .*FATAL.*own log is"):
        async with embedded_postgres(tmp_path):
            pass


async def test_a_bad_line_to_the_database_loses_nothing(
    settings: Settings, database_url: str
) -> None:
    """Slow, cut, reset and silent in turn."""
    async with fault_proxy(socket_of(database_url)) as proxy:
        changed = settings.model_copy(
            update={
                "database_url": _secret(settings, over_tcp(database_url, proxy.port)),
                "database_timeout_s": _TIMEOUT_S,
            }
        )
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                await goes_on(traffic)
                proxy.faults.latency_s, proxy.faults.jitter_s = 0.01, 0.01
                await goes_on(traffic)
                proxy.faults.latency_s = proxy.faults.jitter_s = 0.0
                for trouble in (proxy.cut, proxy.reset) * 3:
                    trouble()
                    await goes_on(traffic)
                proxy.faults.silent = True
                await fails(traffic)
                proxy.faults.silent = False
                await goes_on(traffic)
                proxy.faults.refuses = True
                proxy.cut()
                await patiently(lambda: unready(port))
                proxy.faults.refuses = False
                await goes_on(traffic)
            await traffic.check(database_url)
            await patiently(lambda: ready(port))
    assert traffic.errors


async def test_an_exhausted_pool_is_an_error_to_retry(
    settings: Settings, database_url: str
) -> None:
    """Every connection waits for a lock; then it is gone, and all is well."""
    changed = settings.model_copy(
        update={"database_pool_size": 2, "database_timeout_s": _TIMEOUT_S}
    )
    async with serving(changed) as (_, port):
        async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
            await goes_on(traffic)
            blocker = await asyncpg.connect(database_url)
            try:
                async with blocker.transaction():
                    await blocker.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
                    await fails(traffic)
            finally:
                await blocker.close()
            await goes_on(traffic)
        await traffic.check(database_url)
    assert {error["code"] for error in traffic.errors} == {"storage_unavailable"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, where this user may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_database_that_freezes_is_told_and_waited_for(
    settings: Settings, tmp_path: Path
) -> None:
    """Stopped in its tracks it refuses nothing and answers nothing; then it goes on."""
    async with own_postgres(tmp_path) as url:
        changed = settings.model_copy(
            update={"database_url": _secret(settings, url), "database_timeout_s": _TIMEOUT_S}
        )
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                await goes_on(traffic)
                frozen = [postmaster(tmp_path), *postmaster(tmp_path).children()]
                for each in frozen:
                    each.suspend()
                try:
                    await fails(traffic)
                    await patiently(lambda: unready(port))
                finally:
                    for each in frozen:
                        each.resume()
                await goes_on(traffic)
            await traffic.check(url)
            await patiently(lambda: ready(port))


async def test_a_full_disk_is_an_error_to_retry(settings: Settings, small_disk: Path) -> None:
    """Nothing more is accepted until there is room; then everything is."""
    async with own_postgres(small_disk) as url:
        changed = settings.model_copy(
            update={"database_url": _secret(settings, url), "database_timeout_s": 5.0}
        )
        async with serving(changed) as (_, port):
            async with traffic_on(f"ws://127.0.0.1:{port}/v1/ws") as traffic:
                await goes_on(traffic)
                ballast = small_disk / "ballast"
                free = os.statvfs(small_disk)
                ballast.write_bytes(b"\0" * (free.f_bavail * free.f_bsize - 65_536))
                await fails(traffic)
                await patiently(lambda: unready(port))
                ballast.unlink()
                await goes_on(traffic)
            await traffic.check(url)
            await patiently(lambda: ready(port))


class _SteppingClock(SystemClock):
    """The machine's time, but its date jumps."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        """The date as somebody set it."""
        return super().now() + self.ahead


async def test_a_clock_that_steps_changes_no_order(settings: Settings) -> None:
    """Back a day, ahead a year: what was said stays in the order it was said in."""
    clock = _SteppingClock()
    async with (
        serving(settings, clock=clock) as (_, port),
        connect(f"ws://127.0.0.1:{port}/v1/ws") as client,
    ):
        await client.open_session("wren", user_id="ana", name="Ana")
        for number, days in enumerate((0, -1, 365, 0, -400, 3)):
            clock.ahead = timedelta(days=days)
            await client.send(f"I promise this is number {number}", f"m{number}")
            await client.expect_all("message.accepted", "response.done", "memory.stored")
        opened = await _again(port)
    said = [each["text"] for each in opened["turns"] if each["speaker"] == "user"]
    assert said == [f"I promise this is number {number}" for number in range(6)]


async def _again(port: int) -> dict[str, list[dict[str, str]]]:
    async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
        return await client.open_session("wren", user_id="ana", name="Ana")


def _secret(settings: Settings, url: str) -> object:
    assert settings.database_url is not None
    return type(settings.database_url)(url)
