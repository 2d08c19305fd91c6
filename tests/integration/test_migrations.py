"""A database of an earlier version is brought up to date with what is in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from foremind.storage.migrations import load_migrations, migrate
from foremind.storage.named_queries import load_queries

_EARLIER = 6  # migrations, before background work was done step by step
_SESSION = "6d1f6d0e-3c55-4b7a-9a43-2b1e4a9e7d10"
_HELD = f"""
SET foremind.relationship = '1';
INSERT INTO companions (slug, name, greeting, persona) VALUES ('wren', 'Wren', '', '');
INSERT INTO users (external_id, name) VALUES ('ana', 'Ana');
INSERT INTO relationships (user_id, companion_id) VALUES (1, 1);
INSERT INTO sessions (id, relationship_id, opened_at, active_at)
    VALUES ('{_SESSION}', 1, now(), now());
INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, content,
        created_at)
    VALUES (1, '{_SESSION}', 1, 'user', 'm', 'completed', 'I live in Porto', now());
INSERT INTO memories (relationship_id, created_at, source_turn_id, significance, term_count,
        memory_type, speaker, embedding, content, version, words)
    VALUES (1, now(), 1, 0.5, 1, 'conversation', 'user', '[1]', 'I live in Porto', 1, '');
INSERT INTO records (relationship_id, layer, content, details, made_by, created_at, updated_at)
    VALUES
        (1, 'questions', 'Whose dog?', '{{"status": "answered"}}', 'user', now(), now()),
        (1, 'questions', 'Which boat?', '{{"status": "open"}}', 'rules', now(), now()),
        (1, 'topics', 'Boats', '{{"status": "open"}}', 'rules', now(), now());
INSERT INTO documents (companion_id, title, media_type, chunks, created_at)
    VALUES (1, 'Ferry', 'text/plain', 0, now());
UPDATE relationships SET noted_turn_id = 1;
"""


@pytest.fixture
async def earlier(postgres: str) -> AsyncIterator[tuple[str, Any]]:
    """A database as an earlier version left it, and its owner, whom row-level security holds."""
    admin = await asyncpg.connect(postgres.replace("/foremind?", "/postgres?"))
    url = postgres.replace("/foremind?", "/of_earlier_version?")
    try:
        await admin.execute("CREATE ROLE plain_owner LOGIN NOSUPERUSER NOBYPASSRLS")
        await admin.execute("CREATE DATABASE of_earlier_version OWNER plain_owner")
        async with _connected(url) as extending:
            await extending.execute("CREATE EXTENSION vector")
        url = url.replace("//postgres:@", "//plain_owner:@")
        async with _connected(url) as owner:
            await _left_by_earlier_version(owner)
            yield url, owner
    finally:
        await admin.execute("DROP DATABASE IF EXISTS of_earlier_version WITH (FORCE)")
        await admin.execute("DROP ROLE IF EXISTS plain_owner")
        await admin.close()


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def _left_by_earlier_version(owner: Any) -> None:
    queries = load_queries()
    await owner.execute(queries["create_migrations_table"])
    for migration in load_migrations()[:_EARLIER]:
        await owner.execute(migration.sql)
        await owner.execute(
            queries["record_migration"],
            migration.number,
            migration.name,
            migration.checksum,
        )
    await owner.execute(_HELD)


async def test_what_an_earlier_version_kept_is_brought_along(earlier: tuple[str, Any]) -> None:
    """Also where row-level security holds for the owner of the tables."""
    url, owner = earlier
    assert len(await migrate(url)) == len(load_migrations()) - _EARLIER
    assert str(await owner.fetchval("SELECT session_id FROM memories")) == _SESSION
    cursors = await owner.fetchrow("SELECT stated_turn_id, profiled_turn_id FROM relationships")
    assert tuple(cursors) == (1, 1)
    assert await owner.fetchval("SELECT kept AND NOT corrected FROM turns")
    assert await owner.fetchval("SELECT cut FROM documents") == 1
    told = "SELECT details ->> 'status' FROM records ORDER BY id"
    assert [row[0] for row in await owner.fetch(told)] == ["settled", "open", None]


async def test_a_migration_leaves_row_level_security_forced(earlier: tuple[str, Any]) -> None:
    """Where one has to see everybody's rows, nobody else does afterwards."""
    url, owner = earlier
    await migrate(url)
    await owner.execute("SET foremind.relationship = '2'")
    for table in ("turns", "memories", "records"):
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 0, table
