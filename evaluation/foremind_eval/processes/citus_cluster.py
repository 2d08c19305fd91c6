"""Databases of a Citus cluster: a template on every node, cloned on every node for each test."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from foremind.storage.distribution import distribute
from foremind.storage.migrations import migrate

#: Names the database `postgres` of a coordinator whose workers have been added to it.
COORDINATOR_VARIABLE = "FOREMIND_TEST_CITUS"
TEMPLATE = "foremind"
SHARDS = 4  # on two workers each has more than one, and cloning takes a fraction of a second
_MAX_DROPS = 20
_LOCK = 41  # of the processes of a test run, for the time in which one of them makes the template


class CitusCluster:
    """The nodes of a cluster, the coordinator first.

    Args:
        nodes: the URL of the database `postgres` of each node.
    """

    def __init__(self, nodes: list[str]) -> None:
        self.nodes = nodes

    @classmethod
    def of(cls, coordinator: str) -> "CitusCluster":
        """Find the nodes of a cluster by its coordinator's URL."""
        return cls([coordinator, *asyncio.run(_workers(coordinator))])

    def url(self, database: str) -> str:
        """The URL of a database on the coordinator."""
        return _of(self.nodes[0], database)

    def on_worker(self, url: str) -> str:
        """The URL of the same database on a worker."""
        return _of(self.nodes[1], urlsplit(url).path.removeprefix("/"))

    async def make_template(self) -> None:
        """Create the migrated and distributed template, once per test run."""
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)
        async with _connected(self.nodes[0]) as admin:
            await admin.execute(f"SELECT pg_advisory_lock({_LOCK})")
            made_by = await admin.fetchval(
                "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1",
                TEMPLATE,
            )
            if made_by != run:
                await self._make_template()
                await admin.execute(f"COMMENT ON DATABASE {TEMPLATE} IS '{run}'")

    async def clone(self, name: str) -> None:
        """Create a database like the template."""
        await self._everywhere(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")

    async def drop(self, name: str) -> None:
        """Drop a database on every node."""
        for attempt in range(_MAX_DROPS):
            try:
                await self._everywhere(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            except asyncpg.ObjectInUseError:  # Citus has connected again
                if attempt == _MAX_DROPS - 1:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    async def create(self, name: str) -> None:
        """Create a migrated database of which nothing is distributed."""
        await self.drop(name)
        await self._everywhere(f"CREATE DATABASE {name}")
        for node in self.nodes:
            async with _connected(_of(node, name)) as raw:
                await raw.execute("CREATE EXTENSION citus; CREATE EXTENSION vector")
        coordinator = urlsplit(self.nodes[0])
        async with _connected(self.url(name)) as raw:
            await raw.execute(
                f"SELECT citus_set_coordinator_host('{coordinator.hostname}', {coordinator.port})"
            )
            for url in self.nodes[1:]:
                worker = urlsplit(url)
                await raw.execute(f"SELECT citus_add_node('{worker.hostname}', {worker.port})")
        await migrate(self.url(name))

    async def _make_template(self) -> None:
        await self.create(TEMPLATE)
        await distribute(self.url(TEMPLATE), SHARDS)
        # A database that is in use cannot be cloned: Citus keeps connections and a process.
        await self._everywhere(
            f"ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false",
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"  # noqa: S608
            f" WHERE datname = '{TEMPLATE}'",
        )

    async def _everywhere(self, *statements: str) -> None:
        async def run(node: str) -> None:
            async with _connected(node) as raw:
                for statement in statements:
                    await raw.execute(statement)

        await asyncio.gather(*map(run, self.nodes))


async def _workers(coordinator: str) -> list[str]:
    async with _connected(coordinator) as raw:
        rows = await raw.fetch("SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0")
    return [_at(coordinator, row["nodename"], row["nodeport"]) for row in rows]


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    raw = await asyncpg.connect(url)
    try:
        yield raw
    finally:
        await raw.close()


def _of(url: str, database: str) -> str:
    # The query, even if empty, marks the end of the database's name, which tests replace.
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}", query="application_name=tests"))


def _at(url: str, host: str, port: int) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@{host}:{port}"))
