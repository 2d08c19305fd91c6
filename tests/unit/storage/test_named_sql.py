"""SQL files: named queries and numbered migrations."""

import re

import pytest

from foremind.domain.errors import DatabaseUnsuitable
from foremind.runtime.assets import asset
from foremind.storage.migrations import Migration, load_migrations, pending, unsuitable
from foremind.storage.named_queries import load_queries

ROOT = asset("sql").parent


def test_every_query_is_used_and_every_name_known() -> None:
    """No dead SQL, no missing name."""
    sources = [path.read_text() for path in (ROOT / "server").rglob("*.py")]
    used = set(re.findall(r'"([a-z_]+)"', "\n".join(sources)))
    assert set(load_queries()) <= used


@pytest.mark.parametrize("name", sorted(load_queries()))
def test_queries_that_read_or_write_memory_name_their_relationship(name: str) -> None:
    """Memories are accessed only by their relationship or their own turn."""
    sql = load_queries()[name]
    if re.search(r"\b(FROM|INTO|UPDATE) (memories|memory_terms|turns)\b", sql):
        assert re.search(r"relationship_id|user_id = \$1|(turn\.|_turn_)id = \$1", sql), name


@pytest.mark.parametrize("name", sorted(load_queries()))
def test_what_changes_a_memory_stamps_the_version_it_is_given(name: str) -> None:
    """Only RelationshipTransaction raises the version; any other stamp could be ahead of it."""
    sql = load_queries()[name]
    if re.search(r"UPDATE memories\b", sql) and name != "fill_memories":  # with what none reads yet
        assert re.search(r"\bversion = \$\d+", sql), name
    if re.search(r"INSERT INTO memories\b", sql):
        assert re.search(r"\bversion\s*\)\s*SELECT [^;]*, \$2\s+FROM embedding_model", sql), name
        assert "SET memory_version = $2," in sql, name
    if name != "raise_memory_version":
        assert not re.search(r"memory_version [+]", sql), name


@pytest.mark.parametrize("version", ["memory_version", "layers_version"])
def test_one_place_raises_each_version(version: str) -> None:
    """So every transaction raises it once, before its first change."""
    raising = [
        path.name
        for path in (ROOT / "server").rglob("*.py")
        if f'"raise_{version}"' in path.read_text()
    ]
    assert raising == ["relationship_transaction.py"]
    statements = "".join(path.read_text() for path in (ROOT / "sql" / "queries").glob("*.sql"))
    assert statements.count(f"{version} = {version} + 1") == 1


def test_migrations_are_numbered_without_gaps() -> None:
    """They run in the order of their numbers."""
    assert [migration.number for migration in load_migrations()] == list(
        range(1, len(load_migrations()) + 1)
    )


def test_applied_migrations_are_not_pending() -> None:
    """They are recognised by number, and their checksums must match."""
    first, second = Migration(1, "one", "SELECT 1"), Migration(2, "two", "SELECT 2")
    assert pending([first, second], {}) == [first, second]
    assert pending([first, second], {1: first.checksum}) == [second]


def test_a_changed_migration_is_refused() -> None:
    """The database was migrated with another file."""
    with pytest.raises(DatabaseUnsuitable, match="differs"):
        pending([Migration(1, "one", "SELECT 1")], {1: "other"})


def test_a_newer_database_is_refused() -> None:
    """An older server must not write to it."""
    with pytest.raises(DatabaseUnsuitable, match="newer Foremind"):
        pending([Migration(1, "one", "SELECT 1")], {9: "x"})


@pytest.mark.parametrize(
    ("server", "vector", "problem"),
    [
        (180004, "0.8.5", None),
        (190000, "1.0.0", None),
        (150018, "0.8.5", "PostgreSQL 16 or newer is needed; this is 15.18"),
        (180004, None, "lacks pgvector"),
        (180004, "0.6.2", "pgvector 0.7 or newer is needed; this is 0.6.2"),
    ],
)
def test_an_unsuitable_server_is_detected(
    server: int, vector: str | None, problem: str | None
) -> None:
    """The message names the required and the actual version."""
    message = unsuitable(server, vector)
    assert (message is None) if problem is None else (message is not None and problem in message)
