"""`foremind db`: schema migrations and backups."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import typer

from foremind.app.configuration import load_settings
from foremind.app.core import announcing_database, database_url
from foremind.cli.running import run, say
from foremind.domain.clock import SystemClock
from foremind.domain.settings.settings import Settings
from foremind.memory.reembed import Reembedding
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor
from foremind.storage import migrations
from foremind.storage.backup import back_up, open_shell
from foremind.storage.backup import restore as restore_backup
from foremind.storage.distribution import ShardMap, shard_map
from foremind.storage.distribution import distribute as spread_tables
from foremind.storage.embedded_postgres import as_server
from foremind.storage.migrations import Migration
from foremind_models import Manifest, find_model, ready_model

Result = TypeVar("Result")

_CONNECTIONS = 3  # of `reembed`: one holds the model locked, another writes

app = typer.Typer(
    help="Migrate, distribute, back up, restore and look at the database.", no_args_is_help=True
)


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
    """List applied and pending migrations; exit with code 1 if any are pending.

    Of a Citus database, also list its nodes and tables, with shards and sizes; the code is 1, too,
    if some tables are distributed and others not yet.
    """
    settings = load_settings()
    applied, pending = run(_status(settings))
    for migration in applied:
        print(f"applied {migration.number:04} {migration.name}")
    for migration in pending:
        print(f"pending {migration.number:04} {migration.name}")
    shards = run(_with_url(settings, shard_map))
    if shards is not None:
        print("\n".join(_described(shards)))
    undistributed = shards is not None and shards.tables and shards.missing
    raise typer.Exit(1 if pending or undistributed else 0)


@app.command()
def distribute(
    shards: int = typer.Option(
        32, min=1, max=1024, help="Parts that relationships are spread into, once and for all."
    ),
) -> None:
    """Spread the tables of a Citus database over its nodes; the servers must be stopped.

    Run it again after a migration that adds tables: only what is not spread yet is.
    """
    spread = run(_with_url(load_settings(), lambda url: spread_tables(url, shards)))
    for name in spread:
        print(f"distributed {name}")
    if not spread:
        print("Every table is distributed already.")


@app.command()
def reembed(
    model: str = typer.Argument(help="Another embedding model, as in `foremind models list`."),
) -> None:
    """Replace the embedding model of the database; the servers may be running.

    Every vector is made again with it, which takes a few milliseconds for each; then servers start
    again with it, within seconds. Run it again if it was interrupted: it continues. Afterwards, set
    FOREMIND_EMBEDDING_MODEL; until then, servers that are told the former model use this one.
    """
    settings = load_settings()
    manifest = find_model(model, settings.models_dir)
    if run(_reembed(settings, manifest)):
        print(f"Set FOREMIND_EMBEDDING_MODEL={manifest.name}.")
    else:
        print(f"The database has the embedding model {manifest.name} already.")


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


@app.command()
def shell() -> None:
    """Open psql on the database; the server may be running.

    It connects as the server does: the login of the embedded one sees every row, another one those
    of a relationship that its transaction names with `SET LOCAL foremind.relationship = 1`.
    """
    raise typer.Exit(run(_with_url(load_settings(), open_shell)))


async def _reembed(settings: Settings, manifest: Manifest) -> bool:
    model = await asyncio.to_thread(ready_model, manifest, settings.models_dir, TEXT_FEATURES, say)
    encoder = await asyncio.to_thread(model.encoder)
    clock, metrics = SystemClock(), Metrics()
    async with (
        Supervisor(clock, metrics) as supervisor,
        database_url(settings, say, supervisor, clock) as url,
        announcing_database(
            url if settings.database_url else as_server(url),
            _CONNECTIONS,
            RuntimeServices(settings, clock, metrics, supervisor),
        ) as (database, _),
    ):
        work = Reembedding(database, url, manifest, encoder, settings, clock, say)
        return await work.run()


def _described(shards: ShardMap) -> list[str]:
    """Return a line for each node and for each table."""
    lines = []
    for node in shards.nodes:
        kind = "coordinator" if node.coordinator else "worker"
        state = "" if node.active else ", inactive"
        lines.append(
            f"node {node.host}:{node.port} ({kind}{state}): "
            f"{node.shards} shards, {node.bytes:,} bytes"
        )
    for table in shards.tables:
        how = f"{table.shards} shards by {table.column}"
        if table.kind != "distributed":
            how = "a copy on every node"
        lines.append(f"table {table.name}: {how}, {table.bytes:,} bytes")
    lines += [f"table {name}: not distributed" for name in shards.missing]
    return lines


async def _with_url(settings: Settings, work: Callable[[str], Awaitable[Result]]) -> Result:
    async with database_url(settings, say) as url:
        return await work(url)


async def _migrate(settings: Settings) -> list[Migration]:
    async with database_url(settings, say) as url:
        return await migrations.migrate(url)


async def _status(settings: Settings) -> tuple[list[Migration], list[Migration]]:
    async with database_url(settings, say) as url:
        return await migrations.status(url)
