"""What goes wrong in a cluster under traffic, by name; later faults are added here."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from foremind_eval.processes.nats_server import NatsServer
from loadtests.cluster.topology import WorkerCluster

_AWAY_S = (0.0, 3.0)  # how long NATS is away
_POLL_S = 0.05


@dataclass(frozen=True)
class Installation:
    """Everything that a fault may hit.

    Attributes:
        postgres: the folder of a PostgreSQL server that is restarted whenever it dies.
    """

    cluster: WorkerCluster
    nats: NatsServer
    postgres: Path
    database_url: str


Fault = Callable[[Installation, random.Random], Awaitable[None]]


async def _kill_gateway(hit: Installation, rng: random.Random) -> None:
    await hit.cluster.kill_gateway(rng)


async def _kill_nats(hit: Installation, rng: random.Random) -> None:
    hit.nats.kill()
    await asyncio.sleep(rng.uniform(*_AWAY_S))
    await asyncio.to_thread(hit.nats.start)


async def _crash_database(hit: Installation, _: random.Random) -> None:
    """End the server without a checkpoint, as a crash does; return once it has recovered."""
    os.kill(_postmaster(hit.postgres), signal.SIGQUIT)
    while True:
        await asyncio.sleep(_POLL_S)
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await asyncpg.connect(hit.database_url)
            await connection.close()
            return


def _postmaster(folder: Path) -> int:
    return int((folder / "postmaster.pid").read_text().split("\n", 1)[0])


FAULTS: dict[str, Fault] = {
    "gateway_kill": _kill_gateway,
    "nats_kill": _kill_nats,
    "database_crash": _crash_database,
}
