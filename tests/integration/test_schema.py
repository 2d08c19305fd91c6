"""The schema suits a sharded PostgreSQL: keys begin with the owner, policies are plain."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from foremind.storage.migrations import load_migrations, migrate

# Every primary key and unique constraint, with its first column.
_KEYS = """
SELECT key.conrelid::regclass::text AS name, key.conname, first.attname AS column
FROM pg_constraint AS key
JOIN pg_attribute AS first
    ON first.attrelid = key.conrelid AND first.attnum = key.conkey[1]
WHERE key.contype IN ('p', 'u') AND key.connamespace = 'public'::regnamespace
"""
# Every foreign key between tables that belong to relationships, with its first columns.
_REFERENCES = """
SELECT key.conname, near.attname AS near, far.attname AS far
FROM pg_constraint AS key
JOIN pg_attribute AS near ON near.attrelid = key.conrelid AND near.attnum = key.conkey[1]
JOIN pg_attribute AS far ON far.attrelid = key.confrelid AND far.attnum = key.confkey[1]
WHERE key.contype = 'f'
    AND key.conrelid::regclass::text = ANY ($1) AND key.confrelid::regclass::text = ANY ($1)
"""
_OWNED = """
SELECT table_name::text FROM information_schema.columns
WHERE table_schema = 'public' AND column_name = 'relationship_id'
"""


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def plain_owner(postgres: str) -> AsyncIterator[tuple[str, Any]]:
    """An empty database whose owner row-level security applies to: its URL, a connection to it."""
    admin = await asyncpg.connect(postgres.replace("/foremind?", "/postgres?"))
    url = postgres.replace("/foremind?", "/of_plain_owner?")
    try:
        await admin.execute("CREATE ROLE plain_owner LOGIN NOSUPERUSER NOBYPASSRLS")
        await admin.execute("CREATE DATABASE of_plain_owner OWNER plain_owner")
        async with _connected(url) as extending:
            await extending.execute("CREATE EXTENSION vector")
        url = url.replace("//postgres:@", "//plain_owner:@")
        assert await migrate(url) == load_migrations()
        async with _connected(url) as owner:
            yield url, owner
    finally:
        await admin.execute("DROP DATABASE IF EXISTS of_plain_owner WITH (FORCE)")
        await admin.execute("DROP ROLE IF EXISTS plain_owner")
        await admin.close()


async def test_keys_begin_with_the_relationship(plain_owner: tuple[str, Any]) -> None:
    """Of every table that belongs to one; so do foreign keys between two of them."""
    _, owner = plain_owner
    owned = {row[0] for row in await owner.fetch(_OWNED)}
    assert {"turns", "memories", "records", "sessions", "background_steps"} <= owned
    keys = [key for key in await owner.fetch(_KEYS) if key["name"] in owned]
    assert {key["name"] for key in keys} == owned
    assert [dict(key) for key in keys if key["column"] != "relationship_id"] == []
    references = await owner.fetch(_REFERENCES, sorted(owned))
    assert len(references) > 10
    assert {(key["near"], key["far"]) for key in references} == {
        ("relationship_id", "relationship_id")
    }


async def test_policies_hold_no_subselect(plain_owner: tuple[str, Any]) -> None:
    """A sharded PostgreSQL evaluates them on every shard."""
    _, owner = plain_owner
    policies = await owner.fetch("SELECT tablename, qual FROM pg_policies")
    assert len(policies) > 10
    assert [policy for policy in policies if "select" in policy["qual"].lower()] == []


async def test_row_level_security_applies_to_the_owner_of_the_tables(
    plain_owner: tuple[str, Any],
) -> None:
    """Whoever names another relationship, or none, sees nothing and can add nothing."""
    _, owner = plain_owner
    await owner.execute("""
        INSERT INTO companions (slug, name, greeting, persona) VALUES ('wren', 'Wren', '', '');
        INSERT INTO users (external_id, name) VALUES ('ana', 'Ana');
        INSERT INTO relationships (id, user_id, companion_id) VALUES (4194305, 1, 1);
        SET foremind.relationship = '4194305';
        INSERT INTO records (relationship_id, layer, content, made_by, created_at, updated_at)
        VALUES (4194305, 'vault', 'I live in Porto', 'user', now(), now());
    """)
    assert await owner.fetchval("SELECT count(*) FROM records") == 1
    for other in ("2", ""):
        await owner.execute(f"SET foremind.relationship = '{other}'")
        assert await owner.fetchval("SELECT count(*) FROM records") == 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await owner.execute(
                "INSERT INTO audit (relationship_id, actor, action, subject, happened_at)"
                " VALUES (4194305, 'ana', 'read', 'everything', now())"
            )
