"""Backup, restore and a shell of the whole database, with PostgreSQL's own tools."""

import asyncio
import itertools
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import asyncpg

from foremind.domain.errors import DatabaseUnsuitable
from foremind.storage.embedded_postgres import tools
from foremind.storage.migrations import connected
from foremind.storage.named_queries import load_queries
from foremind.storage.sharding import is_sharded

# pg_restore 17 and later begin with this, whatever the server is.
_UNKNOWN_BEFORE_17 = b"SET transaction_timeout = 0;\n"
_HEAD_LINES = 40  # before the first data, where it stands
_PART_BYTES = 1 << 16


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
    async with connected(url) as connection:
        await connection.execute(load_queries()["record_backup"])


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
    await _run_script_of(url, file)


async def _run_script_of(url: str, file: Path) -> None:
    """Run a backup as a script, without what servers before 17 do not know.

    It is one transaction, which is committed only once all of the backup was read: whatever ends
    before that, this process included, leaves the database empty.
    """
    reader = await asyncio.create_subprocess_exec(
        tools() / "pg_restore", "--no-owner", "--file=-", str(file), stdout=PIPE, stderr=PIPE
    )
    writer = await asyncio.create_subprocess_exec(
        tools() / "psql", "--no-psqlrc", "--no-password", "--quiet",
        "--set=ON_ERROR_STOP=1", f"--dbname={_without_password(url)}",
        env=_environment(url), stdin=PIPE, stdout=DEVNULL, stderr=PIPE,
    )  # fmt: skip
    assert reader.stdout is not None and writer.stdin is not None
    writer.stdin.write(b"BEGIN;\n")
    for number in itertools.count():
        is_head = number < _HEAD_LINES
        part = await (reader.stdout.readline() if is_head else reader.stdout.read(_PART_BYTES))
        if not part:
            break
        if not (is_head and part == _UNKNOWN_BEFORE_17):
            writer.stdin.write(part)
            with suppress(ConnectionError):  # psql has ended, and says why
                await writer.stdin.drain()
    _, unreadable = await reader.communicate()
    if not reader.returncode:
        writer.stdin.write(b"COMMIT;\n")
    writer.stdin.close()
    _, refused = await writer.communicate()
    if reader.returncode:
        raise DatabaseUnsuitable(f"pg_restore failed: {_text(unreadable)}")
    if writer.returncode:
        raise DatabaseUnsuitable(f"The backup could not be restored: {_text(refused)}")


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
        stdin=DEVNULL,
        stderr=PIPE,
    )
    _, stderr = await process.communicate()
    if process.returncode:
        raise DatabaseUnsuitable(f"{program} failed: {_text(stderr)}")


def _text(stderr: bytes) -> str:
    return stderr.decode(errors="replace").strip()


def _environment(url: str) -> dict[str, str]:
    return {**os.environ, "PGPASSWORD": unquote(urlsplit(url).password or "")}


def _without_password(url: str) -> str:
    """Return the URL without its password, which a list of processes would show."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", "@", 1) if password else url
