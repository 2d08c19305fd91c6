"""`foremind db`: schema migrations and backups."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import typer

from foremind.app import database_url
from foremind.cli.running import run, say
from foremind.domain.settings import Settings, load_settings
from foremind.storage import migrations
from foremind.storage.backup import back_up
from foremind.storage.backup import restore as restore_backup
from foremind.storage.migrations import Migration

app = typer.Typer(help="Migrate, back up and restore the database.", no_args_is_help=True)


@app.command()
def migrate() -> None:
    """Run the pending migrations of the configured database.

    `foremind serve` does so on start as well.
    """
    for migration in run(_migrate(load_settings())):
        print(f"applied {migration.number:04} {migration.name}")
    print(f"The database is up to date ({len(migrations.load_migrations())} migrations).")


@app.command()
def status() -> None:
    """List applied and pending migrations; exit with code 1 if any are pending."""
    applied, pending = run(_status(load_settings()))
    for migration in applied:
        print(f"applied {migration.number:04} {migration.name}")
    for migration in pending:
        print(f"pending {migration.number:04} {migration.name}")
    raise typer.Exit(1 if pending else 0)


@app.command()
def backup(file: Path = typer.Argument(help="File to write.")) -> None:
    """Back up the whole database to a file; the server may be running."""
    run(_with_url(load_settings(), lambda url: back_up(url, file)))
    print(f"Wrote {file} ({file.stat().st_size:,} bytes).")


@app.command()
def restore(
    file: Path = typer.Argument(help="File written by `foremind db backup`.", exists=True),
) -> None:
    """Restore a backup into an empty database, and run pending migrations."""
    settings = load_settings()
    run(_with_url(settings, lambda url: restore_backup(url, file)))
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
