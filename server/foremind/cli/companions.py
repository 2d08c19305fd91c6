"""`foremind companions`: lists, creates and changes companions."""

from pathlib import Path

import typer
from rich import print as rich_print
from rich.table import Table

from foremind.app.announcing import announcing_database
from foremind.app.core import database_url
from foremind.cli.running import run, say
from foremind.domain.clock import SystemClock
from foremind.domain.companion import Companion, CompanionFile, read_companion
from foremind.domain.settings.settings import Settings, load_settings
from foremind.lore.lorebook import Lorebook, lorebook_in
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor
from foremind.storage.companion_store import CompanionStore
from foremind.storage.migrations import migrate

app = typer.Typer(
    help="List companions, and create or change them from TOML files.", no_args_is_help=True
)


@app.command("list")
def list_companions() -> None:
    """List the companions in the configured database."""
    table = Table("slug", "name", "version", "greeting")
    for companion in run(_list_or_put(load_settings(), None)):
        table.add_row(companion.slug, companion.name, str(companion.version), companion.greeting)
    rich_print(table)


@app.command("put")
def put_companion(file: Path = typer.Argument(help="TOML file; see examples/wren.toml.")) -> None:
    """Create or replace a companion from a TOML file.

    Its slug identifies it. A running server uses the new version at once.
    """
    companion = read_companion(file)
    Lorebook.parse(lorebook_in(companion.card))  # refused here rather than ignored by servers
    (stored, *_) = run(_list_or_put(load_settings(), companion))
    say(f"{stored.name} ({stored.slug}) is stored as version {stored.version}.")


async def _list_or_put(settings: Settings, new: CompanionFile | None) -> list[Companion]:
    clock, metrics = SystemClock(), Metrics()
    async with Supervisor(clock, metrics) as supervisor, database_url(settings, say) as url:
        await migrate(url)
        runtime = RuntimeServices(settings, clock, metrics, supervisor)
        async with announcing_database(url, 2, runtime) as (database, _):
            store = CompanionStore(database)
            return [await store.put(new)] if new else await store.list()
