"""How tables are spread over the nodes of a Citus database, and what else is said instead."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.errors import DatabaseUnsuitable
from foremind.domain.relationship import MAX_COMPANIONS, companion_id_of, relationship_id_of
from foremind.domain.turn import Turn
from foremind.storage.companion_store import CompanionStore
from foremind.storage.database import Database
from foremind.storage.distribution import distribute, shard_map
from foremind.storage.migrations import load_migrations, migrate, status
from foremind.storage.named_queries import load_queries
from foremind.storage.sharding import LOCAL_TABLES, OWNED_TABLES, OWNER_TABLE, REFERENCE_TABLES
from foremind.storage.turn_store import TurnStore
from foremind_eval.processes.citus_cluster import SHARDS
from tests.conftest import PATIENCE, CommitsOnly, citus_cluster, on_citus

NOW = datetime(2026, 9, 25, 12, tzinfo=UTC)
_TABLES = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
_UNIDENTIFIED = """
SELECT relname FROM pg_class AS known WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
    AND relreplident <> 'f' AND NOT EXISTS (
        SELECT FROM pg_index WHERE indrelid = known.oid AND indisprimary
    )
"""
_OWNED = """
SELECT table_name::text FROM information_schema.columns
WHERE table_schema = 'public' AND column_name = 'relationship_id'
"""


def _connected(url: str) -> AbstractAsyncContextManager[Database]:
    return Database.connect(url, size=2, timeout_s=PATIENCE, publisher=CommitsOnly())


async def _column(url: str, query: str) -> list[Any]:
    raw = await asyncpg.connect(url)
    try:
        return [row[0] for row in await raw.fetch(query)]
    finally:
        await raw.close()


async def test_every_table_is_spread_copied_or_kept_on_the_coordinator(database_url: str) -> None:
    """A table that a migration adds must be listed as one of these."""
    listed = [OWNER_TABLE, *OWNED_TABLES, *REFERENCE_TABLES, *LOCAL_TABLES]
    assert sorted(listed) == sorted(await _column(database_url, _TABLES))
    assert sorted(OWNED_TABLES) == sorted(await _column(database_url, _OWNED))


async def test_only_a_citus_database_is_distributed_and_only_once(database_url: str) -> None:
    """Any other is refused with what is missing."""
    if not on_citus():
        with pytest.raises(DatabaseUnsuitable, match="not a Citus database"):
            await distribute(database_url, 4)
        assert await shard_map(database_url) is None
        return
    assert await distribute(database_url, SHARDS) == []
    shards = await shard_map(database_url)
    assert shards is not None
    tables = {table.name: table for table in shards.tables}
    assert tables.keys() == {OWNER_TABLE, *OWNED_TABLES, *REFERENCE_TABLES}
    assert {table.shards for table in tables.values() if table.kind == "distributed"} == {SHARDS}
    assert [node.coordinator for node in shards.nodes][:2] == [True, False]
    spread = SHARDS * (1 + len(OWNED_TABLES))
    assert sum(node.shards for node in shards.nodes) == spread
    assert all(node.shards < spread for node in shards.nodes)


async def test_a_distributed_database_with_servers_is_refused(
    database_url: str,
) -> None:
    """They would go on as if it were not distributed."""
    raw = await asyncpg.connect(database_url, server_settings={"application_name": "foremind"})
    try:
        with pytest.raises(DatabaseUnsuitable, match=r"stop them|not a Citus"):
            await distribute(database_url, 4)
    finally:
        await raw.close()


async def test_rows_of_every_table_can_be_replicated_to_a_new_node(database_url: str) -> None:
    """By a primary key, or by all of their columns; Citus adds no shards to a node otherwise."""
    unidentified = await _column(database_url, _UNIDENTIFIED)
    assert set(unidentified) <= set(LOCAL_TABLES)


async def test_a_table_that_a_migration_adds_is_distributed_later(undistributed_url: str) -> None:
    """Until then no server starts, and `foremind db status` has it among what is missing."""
    if not on_citus():
        return
    await distribute(undistributed_url, SHARDS)
    raw = await asyncpg.connect(undistributed_url)
    try:
        await raw.execute("DROP TABLE background_claims")
        async with raw.transaction():
            await raw.execute(load_queries()["prepare_distribution"])
            await raw.execute(_table("background_claims"))
            await raw.execute("ALTER TABLE turns ADD COLUMN mood text")
            await raw.execute("ALTER TABLE companions ADD COLUMN mood text")
    finally:
        await raw.close()
    shards = await shard_map(undistributed_url)
    assert shards is not None and shards.missing == ["background_claims"]
    with pytest.raises(DatabaseUnsuitable, match="background_claims"):
        async with _connected(undistributed_url):
            pass
    assert await distribute(undistributed_url, SHARDS) == ["background_claims"]
    async with _connected(undistributed_url) as database:
        assert database.sharded


def _table(name: str) -> str:
    """The statement that creates a table, as migrations have it."""
    sql = "".join(migration.sql for migration in load_migrations())
    found = re.search(rf"CREATE TABLE {name} \(.*?\n\);", sql, re.DOTALL)
    assert found is not None
    return found[0]


async def test_servers_connect_to_the_coordinator_only(database_url: str) -> None:
    """Where notifications and the numbers of turns come from."""
    url = database_url
    if cluster := citus_cluster():
        async with _connected(url) as database:
            assert database.sharded
        with pytest.raises(DatabaseUnsuitable, match="coordinator"):
            async with _connected(cluster.on_worker(url)):
                pass
        for command in (migrate, status):
            with pytest.raises(DatabaseUnsuitable, match="coordinator"):
                await command(cluster.on_worker(url))
    else:
        async with _connected(url) as database:
            assert not database.sharded


@pytest.fixture
async def undistributed_url(database_url: str) -> AsyncIterator[str]:
    """The URL of a database that is migrated and not distributed."""
    if cluster := citus_cluster():
        name = f"undistributed_{os.getpid()}"
        await cluster.create(name)
        yield cluster.url(name)
        await cluster.drop(name)
    else:
        yield database_url


async def test_what_was_said_before_a_database_is_distributed_stays(
    undistributed_url: str,
) -> None:
    """In order, under the same ids, and answered for once; the ids go on rising."""
    before = await _say(undistributed_url, "one", "two")
    if on_citus():
        assert OWNER_TABLE in await distribute(undistributed_url, SHARDS)
        counted = "SELECT count(*) FROM pg_dist_partition WHERE partmethod = 'h'"
        assert await _column(undistributed_url, counted) == [1 + len(OWNED_TABLES)]
    after = await _say(undistributed_url, "two", "three")
    assert [turn.id for turn in after][:2] == [turn.id for turn in before]
    assert [turn.content for turn in after] == ["one", "two", "three"]
    assert [turn.id for turn in after] == sorted(turn.id for turn in after)


async def _say(url: str, *messages: str) -> list[Turn]:
    """Send messages, each with its text as its id; return what was said so far."""
    async with _connected(url) as database:
        turns = TurnStore(database)
        companion = await CompanionStore(database).put(CompanionFile("wren", "Wren", "A bird."))
        session = await turns.open_session(
            "ana", "Ana", companion.id, NOW, lifetime=timedelta(hours=1)
        )
        for text in messages:
            await turns.commit_message(session, text, text, NOW)
        return await turns.recent_turns(session.relationship_id, 10)


def test_a_relationship_has_its_own_id_and_knows_its_companion() -> None:
    """So that the key alone keeps the pair unique, without another table."""
    pairs = [(1, 1), (1, 2), (2, 1), (1, MAX_COMPANIONS - 1), (2_000_000_000, 4)]
    ids = [relationship_id_of(user, companion) for user, companion in pairs]
    assert len(set(ids)) == len(pairs)
    assert [companion_id_of(id_) for id_ in ids] == [companion for _, companion in pairs]
    assert max(ids) < 2**63
