"""Backup, restore and a shell of the whole database, with PostgreSQL's own tools."""

import asyncio
import os
import signal
from pathlib import Path
from urllib.parse import unquote, urlsplit

import asyncpg

from foremind.domain.errors import DatabaseUnsuitable
from foremind.storage.embedded_postgres import tools
from foremind.storage.migrations import connected
from foremind.storage.named_queries import load_queries
from foremind.storage.sharding import is_sharded


async def back_up(url: str, file: Path) -> None:
    """Write a consistent snapshot of the database to a file; the server may be running.

    Raises:
        DatabaseUnsuitable: the backup failed, and no file is left behind; or the database is
            sharded.
    """
    async with connected(url) as connection:
        if await is_sharded(connection):
            raise DatabaseUnsuitable(
                "The database is spread over the nodes of a Citus cluster: back up all of them, "
                "with what its PostgreSQL servers are backed up with (such as pg_basebackup)."
            )
    partial = file.with_name(file.name + ".partial")
    try:
        partial.touch(mode=0o600)  # everything that everybody said
        partial.chmod(0o600)
        await _run("pg_dump", url, "--format=custom", "--no-owner", f"--file={partial}")
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


async def restore(url: str, file: Path) -> None:
    """Restore a backup into an empty database, in one transaction.

    Raises:
        DatabaseUnsuitable: the database is not empty, or the file cannot be read.
    """
    connection = await asyncpg.connect(url, timeout=10)
    try:
        queries = load_queries()
        if await connection.fetchval(queries["has_migrations_table"]):
            raise DatabaseUnsuitable(
                "This database is not empty: restore into an empty one (a new "
                "FOREMIND_DATA_DIR, or a new database for FOREMIND_DATABASE_URL)."
            )
        await connection.execute(queries["create_server_role"])
    finally:
        await connection.close()
    await _run(
        "pg_restore", url, "--no-owner", "--single-transaction", "--exit-on-error", str(file)
    )


async def open_shell(url: str) -> int:
    """Run psql on the terminal until it ends, and return its exit code."""
    # Ctrl-C is for psql, which cancels a query.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
    process = await asyncio.create_subprocess_exec(
        tools() / "psql", f"--dbname={_without_password(url)}", env=_environment(url)
    )
    return await process.wait()


async def _run(program: str, url: str, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        tools() / program,
        "--no-password",
        f"--dbname={_without_password(url)}",
        *arguments,
        env=_environment(url),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    if process.returncode:
        raise DatabaseUnsuitable(f"{program} failed: {stderr.decode(errors='replace').strip()}")


def _environment(url: str) -> dict[str, str]:
    return {**os.environ, "PGPASSWORD": unquote(urlsplit(url).password or "")}


def _without_password(url: str) -> str:
    """Return the URL without its password, which a list of processes would show."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", "@", 1) if password else url
