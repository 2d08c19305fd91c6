"""`foremind companions`: who can be talked with."""

from pathlib import Path

import typer
from rich import print as rich_print
from rich.table import Table

from foremind.app import database_url
from foremind.cli.running import run, say
from foremind.domain.companion import Companion, CompanionFile, read_companion
from foremind.domain.settings import Settings, load_settings
from foremind.storage.companion_store import CompanionStore
from foremind.storage.database import Database
from foremind.storage.migrations import migrate

app = typer.Typer(
    help="List companions, or create and change them from files.", no_args_is_help=True
)


@app.command("list")
def list_companions() -> None:
    """List the companions of the configured database."""
    table = Table("slug", "name", "version", "greeting")
    for each in run(_with_store(load_settings(), None)):
        table.add_row(each.slug, each.name, str(each.version), each.greeting)
    rich_print(table)


@app.command("put")
def put_companion(file: Path = typer.Argument(help="A TOML file; see examples/wren.toml.")) -> None:
    """Create or replace the companion that a file describes."""
    (stored, *_) = run(_with_store(load_settings(), read_companion(file)))
    say(f"{stored.name} ({stored.slug}) is stored as version {stored.version}.")


async def _with_store(settings: Settings, new: CompanionFile | None) -> list[Companion]:
    async with database_url(settings, say) as url:
        await migrate(url)
        async with Database.connect(url, size=2, timeout_s=settings.database_timeout_s) as database:
            store = CompanionStore(database)
            return [await store.put(new)] if new else await store.list()
