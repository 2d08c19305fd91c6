"""The databases that a cluster may stand on, and what goes wrong with their nodes."""

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import asyncpg

from foremind.domain.clock import SystemClock
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.storage.distribution import distribute
from foremind.storage.embedded_postgres import embedded_postgres
from foremind_eval.processes.citus_cluster import CitusCluster

_NAME = "cluster"  # of the database on Citus
_SHARDS = 8
_POLL_S = 0.05
_RECOVERY_TIMEOUT_S = 120.0
_MOVE_TIMEOUT_S = 600.0


class Database(Protocol):
    """A database under a cluster."""

    @property
    def url(self) -> str:
        """The URL that gateways are given."""

    async def crash_node(self, rng: random.Random) -> None:
        """End a node without a checkpoint, as a crash does; return once it has recovered."""


@dataclass(frozen=True)
class EmbeddedDatabase:
    """One PostgreSQL server in a folder, which is started again whenever it dies."""

    url: str
    folder: Path

    async def crash_node(self, _: random.Random) -> None:
        """Crash the server."""
        os.kill(int((self.folder / "postmaster.pid").read_text().split("\n", 1)[0]), signal.SIGQUIT)
        async with asyncio.timeout(_RECOVERY_TIMEOUT_S):
            while True:
                await asyncio.sleep(_POLL_S)
                with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    connection = await asyncpg.connect(self.url)
                    await connection.close()
                    return


@dataclass(frozen=True)
class CitusDatabase:
    """A distributed database on a cluster whose nodes run on this machine."""

    nodes: CitusCluster

    @property
    def url(self) -> str:
        """Its URL on the coordinator."""
        return self.nodes.url(_NAME)

    async def crash_node(self, rng: random.Random) -> None:
        """Crash the coordinator or a worker, and start it again."""
        node = await asyncpg.connect(rng.choice(self.nodes.nodes))
        try:
            folder = Path(await node.fetchval("SHOW data_directory"))
            programs = await node.fetchval("SELECT setting FROM pg_config WHERE name = 'BINDIR'")
        finally:
            await node.close()
        await asyncio.to_thread(_restart, folder, f"{programs}/pg_ctl")

    async def move_shard(self, rng: random.Random) -> None:
        """Move a group of co-located shards from its worker to another, under traffic."""
        coordinator = await asyncpg.connect(self.url, command_timeout=_MOVE_TIMEOUT_S)
        try:
            shard = rng.choice(await coordinator.fetch(_SHARDS_OF_TURNS))
            await coordinator.execute(_MOVE, *shard)
        finally:
            await coordinator.close()


def _restart(folder: Path, pg_ctl: str) -> None:
    """Restart a server without a checkpoint, as the user who owns its folder."""
    owner = folder.stat()
    subprocess.run(
        [
            *(pg_ctl, "restart", "--mode=immediate", "--wait", "--silent"),
            *(f"--pgdata={folder}", f"--log={folder / 'restarted.log'}"),
        ],
        user=owner.st_uid,
        group=owner.st_gid,
        extra_groups=[] if os.geteuid() == 0 else None,
        cwd=folder,
        check=True,
    )


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[EmbeddedDatabase]:
    """Run a PostgreSQL server in a folder."""
    clock = SystemClock()
    async with (
        Supervisor(clock, Metrics()) as supervisor,
        embedded_postgres(folder, supervisor, clock) as url,
    ):
        yield EmbeddedDatabase(url, folder / "postgres")


@asynccontextmanager
async def on_citus(nodes: CitusCluster) -> AsyncIterator[CitusDatabase]:
    """Create a distributed database on a cluster, and drop it afterwards."""
    await nodes.create(_NAME)
    await distribute(nodes.url(_NAME), _SHARDS)
    try:
        yield CitusDatabase(nodes)
    finally:
        await nodes.drop(_NAME)


_SHARDS_OF_TURNS = """
SELECT shard.shardid, shard.nodename, shard.nodeport, other.nodename, other.nodeport
FROM citus_shards AS shard
JOIN pg_dist_node AS other ON other.shouldhaveshards AND other.isactive
    AND (other.nodename, other.nodeport) <> (shard.nodename, shard.nodeport)
WHERE shard.table_name = 'turns'::regclass
ORDER BY shard.shardid, other.nodeid
"""
_MOVE = "SELECT citus_move_shard_placement($1, $2, $3, $4, $5, 'auto')"
