"""`foremind companions`: lists, creates, changes and gives back companions."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import typer
from rich import print as rich_print
from rich.table import Table

from foremind.app.configuration import load_settings, read_companion
from foremind.app.core import announcing_database, database_url
from foremind.cards.card_fields import card_of, companion_of, mended_card
from foremind.cards.card_file import MAX_FILE_BYTES, CardFormat, read_card, write_card
from foremind.cli.running import run, say
from foremind.domain.clock import SystemClock
from foremind.domain.companion import CompanionFile, Notice, first_invalid_field
from foremind.domain.errors import InvalidFile, RequestError
from foremind.domain.settings.settings import Settings
from foremind.lore.lorebook import Lorebook, lorebook_in
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor
from foremind.storage.companion_store import CompanionStore
from foremind.storage.migrations import migrate

Result = TypeVar("Result")

app = typer.Typer(
    help="List companions, create or change them from TOML files and character cards, and get "
    "their cards.",
    no_args_is_help=True,
)


@app.command("list")
def list_companions() -> None:
    """List the companions in the configured database."""
    table = Table("slug", "name", "version", "greeting")
    for companion in run(_with_store(load_settings(), lambda store: store.list())):
        table.add_row(companion.slug, companion.name, str(companion.version), companion.greeting)
    rich_print(table)


@app.command("put")
def put_companion(
    file: Path = typer.Argument(
        help="TOML file (see examples/wren.toml), or a character card: JSON, PNG or CHARX."
    ),
    slug: str | None = typer.Option(
        None, help="The slug of a card's companion. Default: made of the card's name."
    ),
) -> None:
    """Create or replace a companion from a TOML file or a character card.

    Its slug identifies it. A card leaves the settings of a companion that exists as they are. A
    running server uses the new version at once.
    """
    is_card = file.suffix.lower() != ".toml"
    companion, notices = _read_card_file(file, slug) if is_card else _read_toml(file, slug)
    stored = run(
        _with_store(load_settings(), lambda store: store.put(companion, keep_settings=is_card))
    )
    say(f"{stored.name} ({stored.slug}) is stored as version {stored.version}.")
    for notice in notices:
        say(f"  {notice.field}: {notice.text}")


@app.command("get")
def get_companion(
    slug: str = typer.Argument(help="The companion's slug."),
    card_format: CardFormat = typer.Option("json", "--as", help="The format of the file."),
    out: Path | None = typer.Option(None, help="The file to write. Default: standard output."),
) -> None:
    """Write the character card of a companion, as it was given, or made of the companion."""
    companion = run(_with_store(load_settings(), lambda store: store.find(slug)))
    content = write_card(card_of(companion), card_format)
    if out is None:
        sys.stdout.buffer.write(content)
    else:
        out.write_bytes(content)


def _read_toml(file: Path, slug: str | None) -> tuple[CompanionFile, list[Notice]]:
    """Read a companion file; return what was mended in its card, too.

    Raises:
        InvalidFile: naming the field and what was expected.
    """
    if slug is not None:
        raise InvalidFile("--slug: expected only with a character card; a TOML file has its slug")
    companion = read_companion(file)
    notices: list[Notice] = []
    try:
        if companion.card is not None:
            card = mended_card(companion.card, "card", notices)
            companion = msgspec.structs.replace(companion, card=card)
        Lorebook.parse(lorebook_in(companion.card))  # refused here rather than ignored by servers
    except RequestError as error:
        raise InvalidFile(f"{file}: {error.message}", param=error.param) from None
    return companion, notices


def _read_card_file(file: Path, slug: str | None) -> tuple[CompanionFile, list[Notice]]:
    """Read a character card; return what was mended in it, too.

    Raises:
        InvalidFile: naming the field and what was expected.
    """
    try:
        with file.open("rb") as opened:
            card = read_card(opened.read(MAX_FILE_BYTES + 1), slug)
        companion = companion_of(card.data, slug)
        Lorebook.parse(lorebook_in(companion.card))
    except OSError as error:
        raise InvalidFile(str(error)) from None
    except RequestError as error:
        raise InvalidFile(f"{file}: {error.message}", param=error.param) from None
    problem = first_invalid_field(companion)
    if problem is not None:
        raise InvalidFile(f"{file}: {': '.join(problem)}; give one with --slug", param=problem[0])
    return companion, card.notices


async def _with_store(
    settings: Settings, use: Callable[[CompanionStore], Awaitable[Result]]
) -> Result:
    clock, metrics = SystemClock(), Metrics()
    async with Supervisor(clock, metrics) as supervisor, database_url(settings, say) as url:
        await migrate(url)
        runtime = RuntimeServices(settings, clock, metrics, supervisor)
        async with announcing_database(url, 2, runtime) as (database, _):
            return await use(CompanionStore(database))
