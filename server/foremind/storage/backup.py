"""The whole database as one file, by PostgreSQL's own tools, and back."""

import asyncio
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import asyncpg

from foremind.domain.errors import DatabaseUnsuitable
from foremind.storage.embedded_postgres import tools
from foremind.storage.named_queries import load_queries


async def back_up(url: str, file: Path) -> None:
    """Write everything to a file, as of one moment; the server may go on meanwhile.

    Raises:
        DatabaseUnsuitable: it could not be read whole; no file is left.
    """
    partial = file.with_name(file.name + ".partial")
    try:
        await _run("pg_dump", url, "--format=custom", "--no-owner", f"--file={partial}")
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


async def restore(url: str, file: Path) -> None:
    """Read a backup into a database that holds nothing, all of it or none.

    Raises:
        DatabaseUnsuitable: the database holds something, or the file cannot be read.
    """
    connection = await asyncpg.connect(url, timeout=10)
    try:
        queries = load_queries()
        if await connection.fetchval(queries["has_migrations_table"]):
            raise DatabaseUnsuitable(
                "This database holds something already: restore into an empty one (a new "
                "FOREMIND_DATA_DIR, or a new database for FOREMIND_DATABASE_URL)."
            )
        await connection.execute(queries["create_server_role"])
    finally:
        await connection.close()
    await _run(
        "pg_restore", url, "--no-owner", "--single-transaction", "--exit-on-error", str(file)
    )


async def _run(program: str, url: str, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        tools() / program,
        "--no-password",
        f"--dbname={_without_password(url)}",
        *arguments,
        env={**os.environ, "PGPASSWORD": unquote(urlsplit(url).password or "")},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        raise DatabaseUnsuitable(f"{program} failed: {said.decode(errors='replace').strip()}")


def _without_password(url: str) -> str:
    """Return the URL as it may stand in a list of processes."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", "@", 1) if password else url
