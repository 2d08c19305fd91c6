"""`foremind db`: the schema, backups."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import typer

from foremind.app import database_url
from foremind.cli.running import run, say
from foremind.domain.settings import Settings, load_settings
from foremind.storage import migrations
from foremind.storage.backup import back_up
from foremind.storage.backup import restore as read_back
from foremind.storage.migrations import Migration

app = typer.Typer(help="The database schema, and backups.", no_args_is_help=True)


@app.command()
def migrate() -> None:
    """Bring the configured database up to date."""
    ran = run(_migrate(load_settings()))
    for each in ran:
        print(f"applied {each.number:04} {each.name}")
    print(f"The database is up to date ({len(migrations.load_migrations())} migrations).")


@app.command()
def status() -> None:
    """Show which migrations ran; exit with 1 where some have not."""
    applied, waiting = run(_status(load_settings()))
    for each in applied:
        print(f"applied {each.number:04} {each.name}")
    for each in waiting:
        print(f"pending {each.number:04} {each.name}")
    raise typer.Exit(1 if waiting else 0)


@app.command()
def backup(file: Path = typer.Argument(help="The file to write.")) -> None:
    """Write the whole database to a file, while the server runs or not."""
    run(_with_url(load_settings(), lambda url: back_up(url, file)))
    print(f"Wrote {file} ({file.stat().st_size:,} bytes).")


@app.command()
def restore(file: Path = typer.Argument(help="A file that backup wrote.", exists=True)) -> None:
    """Read a backup into an empty database, and bring it up to date."""
    settings = load_settings()
    run(_with_url(settings, lambda url: read_back(url, file)))
    run(_migrate(settings))
    print(f"Restored {file}.")


async def _with_url(settings: Settings, work: Callable[[str], Awaitable[None]]) -> None:
    async with database_url(settings, say) as url:
        await work(url)


async def _migrate(settings: Settings) -> list[Migration]:
    async with database_url(settings, say) as url:
        return await migrations.migrate(url)


async def _status(settings: Settings) -> tuple[list[Migration], list[Migration]]:
    async with database_url(settings, say) as url:
        return await migrations.status(url)
