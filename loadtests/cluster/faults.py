"""What goes wrong in a cluster under traffic, by name; later faults are added here."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from foremind_eval.processes.nats_server import NatsServer
from loadtests.cluster.databases import CitusDatabase, EmbeddedDatabase
from loadtests.cluster.topology import WorkerCluster

_AWAY_S = (0.0, 3.0)  # how long NATS is away


@dataclass(frozen=True)
class Installation:
    """Everything that a fault may hit."""

    cluster: WorkerCluster
    nats: NatsServer
    database: EmbeddedDatabase | CitusDatabase


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and how often by default."""

    happen: Callable[[Installation, random.Random], Awaitable[None]]
    times: int
    only_on_citus: bool = False


async def _kill_gateway(hit: Installation, rng: random.Random) -> None:
    await hit.cluster.kill_gateway(rng)


async def _kill_nats(hit: Installation, rng: random.Random) -> None:
    hit.nats.kill()
    await asyncio.sleep(rng.uniform(*_AWAY_S))
    await asyncio.to_thread(hit.nats.start)


async def _crash_node(hit: Installation, rng: random.Random) -> None:
    await hit.database.crash_node(rng)


async def _move_shard(hit: Installation, rng: random.Random) -> None:
    assert isinstance(hit.database, CitusDatabase)
    await hit.database.move_shard(rng)


FAULTS: dict[str, Fault] = {
    "gateway_kill": Fault(_kill_gateway, times=50),
    "nats_kill": Fault(_kill_nats, times=10),
    "database_crash": Fault(_crash_node, times=10),
    "shard_move": Fault(_move_shard, times=5, only_on_citus=True),
}
