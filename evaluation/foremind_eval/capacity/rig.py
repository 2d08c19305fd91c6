"""Gateways in processes of their own on one PostgreSQL, with meters on everything they use."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import httpx2
import msgspec
import psutil

from foremind.app.core import core
from foremind.domain.settings.settings import Secret, Settings
from foremind.storage.embedded_postgres import embedded_postgres
from foremind_client import Client
from foremind_eval.capacity.wire_tap import Traffic, wire_tap
from foremind_eval.many_clients import crowd, new_users
from foremind_eval.processes.server_process import cpu_s, running_server
from foremind_eval.seeding import fill, owner_connection

#: As many as `fill` spreads its memories over.
SEEDED_USERS = 40
MEMORIES_PER_USER = 1_000
_METRICS_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The meters at a moment, or what they counted between two: seconds, counts, and bytes."""

    seconds: float
    gateway_cpu_s: float
    database_cpu_s: float
    round_trips: int
    database_bytes: int
    client_bytes: int
    prefetches: float

    def __add__(self, other: "Reading") -> "Reading":
        """Return what happened in two periods together."""
        return Reading(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )

    def __sub__(self, earlier: "Reading") -> "Reading":
        """Return what happened since an earlier reading."""
        return Reading(
            *(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self))
        )


class Rig:
    """Running gateways, and the database that they share."""

    def __init__(self, postgres: psutil.Process, database: Traffic) -> None:
        self.urls: list[str] = []  #: of the gateways, through the tap if there is one
        self.gateways: list[psutil.Process] = []
        self._metrics_urls: list[str] = []
        self._postgres = postgres
        self._database = database
        self._clients: list[Traffic] = []

    def without_gateways(self) -> "Rig":
        """Return a rig on the same database, whose gateways have been stopped."""
        return Rig(self._postgres, self._database)

    async def start(
        self, settings: Settings, environment: dict[str, str], stack: AsyncExitStack, *, tap: bool
    ) -> None:
        """Start a gateway; it stops with the stack."""
        assert settings.database_url is not None
        database = {"FOREMIND_DATABASE_URL": settings.database_url.reveal()}
        running = running_server(settings, environment | database)
        url, process = await asyncio.to_thread(running.__enter__)
        stack.push_async_callback(asyncio.to_thread, running.__exit__, None, None, None)
        self.gateways.append(process)
        self._metrics_urls.append(url.replace("ws://", "http://").replace("/v1/ws", "/metrics"))
        if tap:
            port = int(re.findall(r":(\d+)/", url)[0])
            traffic = await stack.enter_async_context(
                wire_tap(lambda: asyncio.open_connection("127.0.0.1", port))
            )
            self._clients.append(traffic)
            url = f"ws://127.0.0.1:{traffic.port}/v1/ws"
        self.urls.append(url)

    @property
    def gateway_bytes(self) -> int:
        """The resident memory of all gateways."""
        return sum(process.memory_info().rss for process in self.gateways)

    @asynccontextmanager
    async def crowd(self, size: int, *, seeded: bool = False) -> AsyncIterator[list[Client]]:
        """Open a session for each of `size` users, spread over the gateways in turn.

        Args:
            seeded: of the users that have memories; there are `SEEDED_USERS` of them.
        """
        assert not seeded or size <= SEEDED_USERS
        users = [f"neighbour {number}" for number in range(size)] if seeded else new_users(size)
        async with crowd(self.urls, users, "seeded") as clients:
            yield clients

    async def read(self) -> Reading:
        """Read all meters."""
        async with httpx2.AsyncClient(timeout=_METRICS_TIMEOUT_S) as http:
            prepared = [_prepared((await http.get(url)).text) for url in self._metrics_urls]
        return Reading(
            seconds=time.perf_counter(),
            gateway_cpu_s=sum(map(cpu_s, self.gateways)),
            database_cpu_s=_database_cpu_s(self._postgres),
            round_trips=self._database.round_trips,
            database_bytes=self._database.bytes,
            client_bytes=sum(traffic.bytes for traffic in self._clients),
            prefetches=sum(prepared),
        )


@asynccontextmanager
async def rig(settings: Settings) -> AsyncIterator[tuple[Rig, Settings]]:
    """Run a PostgreSQL with seeded memories; yield a rig without gateways, and their settings."""
    async with embedded_postgres(settings.data_dir) as url:
        socket = Path(url.split("host=")[1]) / ".s.PGSQL.5432"
        pid = int((settings.data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
        async with wire_tap(lambda: asyncio.open_unix_connection(str(socket))) as traffic:
            tapped = f"postgresql://postgres@127.0.0.1:{traffic.port}/foremind"
            shared = msgspec.structs.replace(settings, database_url=Secret(tapped))
            async with core(shared) as parts:
                await fill(
                    parts,
                    parts.runtime.clock.now(),
                    own=0,
                    others=SEEDED_USERS * MEMORIES_PER_USER,
                )
                async with owner_connection(parts) as raw:
                    await raw.execute("CHECKPOINT")  # or it writes while others are measured
            yield Rig(psutil.Process(pid), traffic), shared


def _database_cpu_s(postmaster: psutil.Process) -> float:
    """Return the CPU time of a PostgreSQL, also of its processes that have ended."""
    ended = postmaster.cpu_times()
    running = (postmaster, *postmaster.children(recursive=True))
    return float(ended.children_user + ended.children_system) + sum(map(cpu_s, running))


def _prepared(metrics: str) -> float:
    """Return how many contexts were built."""
    built = re.findall(r'^foremind_stage_seconds_count\{stage="prepare"\} (\S+)', metrics, re.M)
    return sum(map(float, built))
