"""Spreads the tables of a Citus database over its nodes, and shows where they are."""

from dataclasses import dataclass
from typing import Any

from foremind.domain.errors import DatabaseUnsuitable
from foremind.storage.migrations import connected
from foremind.storage.named_queries import load_queries
from foremind.storage.sharding import (
    OWNED_TABLES,
    OWNER_TABLE,
    REFERENCE_TABLES,
    undistributed_tables,
)

_TIMEOUT_S = 24 * 3600.0  # spreading a filled database copies every row


@dataclass(frozen=True, slots=True)
class ShardNode:
    """A node of a Citus database; `bytes` is the size of its shards, with their indexes."""

    host: str
    port: int
    active: bool
    coordinator: bool
    shards: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ShardedTable:
    """A table that is spread over the nodes, or of which every node has a copy."""

    name: str
    kind: str
    column: str
    shards: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ShardMap:
    """Where the tables of a Citus database are; `missing` ones are yet to be distributed."""

    nodes: list[ShardNode]
    tables: list[ShardedTable]
    missing: list[str]


async def distribute(url: str, shards: int) -> list[str]:
    """Spread or copy every table that is not yet, in one transaction; return their names.

    Args:
        shards: into how many parts relationships are spread; it is decided by the first call.

    Raises:
        DatabaseUnsuitable: it is no migrated Citus database with nodes that take shards, this is
            not its coordinator, the login does not see every row, or servers are connected.
    """
    queries = load_queries()
    async with connected(url) as connection:
        await _check(connection)
        missing = set(await undistributed_tables(connection))
        async with connection.transaction():
            await connection.execute(queries["prepare_distribution"])
            return await _spread(connection, missing, shards)


async def shard_map(url: str) -> ShardMap | None:
    """Return where the tables are; None unless this is a Citus database."""
    queries = load_queries()
    async with connected(url) as connection:
        if not await connection.fetchval(queries["has_citus"]):
            return None
        nodes = await connection.fetch(queries["shard_nodes"])
        tables = await connection.fetch(queries["shard_tables"])
        return ShardMap(
            [ShardNode(**row) for row in nodes],
            [ShardedTable(**row) for row in tables],
            await undistributed_tables(connection),
        )


async def _spread(connection: Any, missing: set[str], shards: int) -> list[str]:
    """Spread or copy tables; foreign keys are dropped meanwhile, as they prescribe no order."""
    queries = load_queries()
    copied = [name for name in REFERENCE_TABLES if name in missing]
    owned = [name for name in OWNED_TABLES if name in missing]
    owner = [OWNER_TABLE] if OWNER_TABLE in missing else []
    spread = [*copied, *owner, *owned]
    if not spread:
        return []
    foreign_keys = await connection.fetch(queries["foreign_keys"])
    for key in foreign_keys:
        await connection.execute(key["drop"])
    if "turns" in owned:
        await connection.execute(queries["message_ids_by_relationship"])
    for name in copied:
        await connection.fetchval(queries["copy_to_nodes"], name, timeout=_TIMEOUT_S)
    for name in owner:
        await connection.fetchval(queries["distribute_owner"], name, shards, timeout=_TIMEOUT_S)
    for name in owned:
        await connection.fetchval(
            queries["distribute_owned"], name, OWNER_TABLE, timeout=_TIMEOUT_S
        )
    for name in spread:
        await connection.fetchval(queries["truncate_local_data"], name)
    for key in foreign_keys:
        await connection.execute(key["create"], timeout=_TIMEOUT_S)
    return spread


async def _check(connection: Any) -> None:
    queries = load_queries()

    async def value(name: str) -> Any:
        return await connection.fetchval(queries[name])

    if not await value("has_citus"):
        raise DatabaseUnsuitable(
            "This is not a Citus database. Let an administrator run CREATE EXTENSION citus in it, "
            "here and on every worker, and add the workers with citus_add_node."
        )
    if not await value("is_coordinator"):
        raise DatabaseUnsuitable("This is a worker node: name the coordinator of the database.")
    if not await value("has_migrations_table"):
        raise DatabaseUnsuitable("The database is empty: run `foremind db migrate` first.")
    if not await value("nodes_for_shards"):
        raise DatabaseUnsuitable(
            "The Citus database has no node that takes shards: add workers with citus_add_node."
        )
    if servers := await value("servers_connected"):
        raise DatabaseUnsuitable(
            f"Servers use this database ({servers} connections): stop them first."
        )
    if not await value("sees_every_row"):
        raise DatabaseUnsuitable(
            "Row-level security hides rows from this login, so they would not be copied: use one "
            "that bypasses it, such as an administrator."
        )
