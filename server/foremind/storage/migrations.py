"""Numbered plain-SQL migrations, run once each, in order and under a lock; checksums are stored."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import asyncpg

from foremind.domain.errors import DatabaseUnsuitable
from foremind.runtime.assets import asset
from foremind.storage.named_queries import load_queries
from foremind.storage.sharding import check_node

MIN_POSTGRES = 16
MIN_PGVECTOR = (0, 7)  # the first with halfvec
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `sql/migrations/`."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the SQL."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load_migrations() -> list[Migration]:
    """Return every migration, in order."""
    migrations = []
    for path in sorted((asset("sql") / "migrations").glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path.name}: expected NNNN_name.sql")
        migrations.append(Migration(int(match[1]), match[2], path.read_text("utf-8")))
    return migrations


def pending(known: list[Migration], applied: dict[int, str]) -> list[Migration]:
    """Return the migrations that have not run, given the checksums by number of those that have.

    Raises:
        DatabaseUnsuitable: the database was migrated with other files.
    """
    for number in applied.keys() - {migration.number for migration in known}:
        raise DatabaseUnsuitable(
            f"The database has migration {number:04}, which this version does not know: it was "
            "used by a newer Foremind. Upgrade Foremind, or restore an older backup."
        )
    for migration in known:
        if applied.get(migration.number, migration.checksum) != migration.checksum:
            raise DatabaseUnsuitable(
                f"Migration {migration.number:04}_{migration.name} differs from the one that this "
                "database was made with. Restore the file as it was released."
            )
    return [migration for migration in known if migration.number not in applied]


async def migrate(url: str) -> list[Migration]:
    """Run all pending migrations in one transaction, and return them.

    Raises:
        DatabaseUnsuitable: the server cannot be reached, it or its pgvector is too old, or it is a
            worker of a sharded database.
    """
    queries = load_queries()
    async with connected(url) as connection:
        await _check_server(connection)
        await check_node(connection)
        if await connection.fetchval(queries["has_migrations_table"]) and not pending(
            load_migrations(), await _applied(connection)
        ):
            return []  # so a login without rights to change the schema works
        async with connection.transaction():
            if await connection.fetchval(queries["has_citus"]):
                await connection.execute(queries["prepare_distribution"])
            await connection.execute(queries["lock_migrations"])
            await connection.execute(queries["create_migrations_table"])
            to_run = pending(load_migrations(), await _applied(connection))
            for migration in to_run:
                await _run(connection, migration)
            await _create_server_role(connection)
        return to_run


async def status(url: str) -> tuple[list[Migration], list[Migration]]:
    """Return the applied and the pending migrations, changing nothing.

    Raises:
        DatabaseUnsuitable: the database cannot be reached, or this is a worker of a sharded one.
    """
    async with connected(url) as connection:
        await check_node(connection)
        exists = await connection.fetchval(load_queries()["has_migrations_table"])
        applied = await _applied(connection) if exists else {}
        to_run = pending(load_migrations(), applied)
        return [migration for migration in load_migrations() if migration not in to_run], to_run


class connected:  # noqa: N801 - used as a context manager only
    """A connection for the length of a block; failing to connect is a setup error."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Any:
        try:
            self._connection = await asyncpg.connect(self._url, timeout=10)
        except (OSError, TimeoutError, asyncpg.PostgresError, ValueError) as error:
            raise DatabaseUnsuitable(
                f"The database cannot be reached: {error}. Check FOREMIND_DATABASE_URL."
            ) from error
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


async def _applied(connection: Any) -> dict[int, str]:
    rows = await connection.fetch(load_queries()["applied_migrations"])
    return {row["number"]: row["checksum"] for row in rows}


async def _run(connection: Any, migration: Migration) -> None:
    try:
        await connection.execute(migration.sql)
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseUnsuitable(
            f"Migration {migration.number:04}_{migration.name} may not run: {error}. Let an "
            "administrator run CREATE EXTENSION vector in this database, or use its owner."
        ) from error
    await connection.execute(
        load_queries()["record_migration"], migration.number, migration.name, migration.checksum
    )


async def _create_server_role(connection: Any) -> None:
    """Create the role that the server assumes, if this login may create roles."""
    queries = load_queries()
    try:
        async with connection.transaction():
            await connection.execute(queries["create_server_role"])
            await connection.execute(queries["grant_server_role"])
    except asyncpg.InsufficientPrivilegeError:
        # Row-level security is forced on a plain owner as well; the pool checks it.
        return


async def _check_server(connection: Any) -> None:
    version = await connection.fetchval(load_queries()["server_version"])
    available = await connection.fetchval(load_queries()["available_vector"])
    if problem := unsuitable(version, available):
        raise DatabaseUnsuitable(problem)


def unsuitable(server_version_num: int, vector_version: str | None) -> str | None:
    """Return what is wrong with a database server, or None.

    Args:
        vector_version: the pgvector that is installed, or else available; None if neither.
    """
    if server_version_num < MIN_POSTGRES * 10_000:
        return (
            f"PostgreSQL {MIN_POSTGRES} or newer is needed; this is "
            f"{server_version_num // 10_000}.{server_version_num % 10_000}."
        )
    required = ".".join(map(str, MIN_PGVECTOR))
    if vector_version is None:
        return (
            f"The database server lacks pgvector; install version {required} or newer on it "
            "(for Debian: the package postgresql-18-pgvector)."
        )
    if tuple(int(part) for part in vector_version.split(".")[:2]) < MIN_PGVECTOR:
        return (
            f"pgvector {required} or newer is needed; this is {vector_version}. Upgrade the "
            "package on the database server, then run ALTER EXTENSION vector UPDATE."
        )
    return None
