"""`foremind db`: the schema."""

import typer

from foremind.app import database_url
from foremind.cli.running import run, say
from foremind.settings import Settings, load_settings
from foremind.storage import migrations
from foremind.storage.migrations import Migration

app = typer.Typer(help="The database schema.", no_args_is_help=True)


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


async def _migrate(settings: Settings) -> list[Migration]:
    async with database_url(settings, say) as url:
        return await migrations.migrate(url)


async def _status(settings: Settings) -> tuple[list[Migration], list[Migration]]:
    async with database_url(settings, say) as url:
        return await migrations.status(url)
