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
from foremind.cards.card_file import MAX_FILE_BYTES, CardFormat, ReadCard, read_card, write_card
from foremind.cli.running import run, say
from foremind.domain.clock import SystemClock
from foremind.domain.companion import Companion, CompanionFile, Notice, first_invalid_field
from foremind.domain.errors import InvalidFile, RequestError
from foremind.domain.settings.settings import Settings
from foremind.lore.lorebook import check_lorebook, with_lorebook
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
        help="TOML file (see examples/wren.toml), or a character card: JSON, PNG or CHARX; or a "
        "lorebook by itself, as SillyTavern's worlds are, for a companion that exists."
    ),
    slug: str | None = typer.Option(
        None,
        help="The slug of a card's or lorebook's companion. Default: made of the card's name.",
    ),
) -> None:
    """Create or replace a companion from a TOML file or a character card, or give it a lorebook.

    Its slug identifies it. A card leaves the settings of a companion that exists as they are. A
    running server uses the new version at once.
    """
    if file.suffix.lower() == ".toml":
        companion, notices = _read_toml(file, slug)
        stored = run(_with_store(load_settings(), lambda store: store.put(companion)))
    else:
        card = _read_card_file(file, slug)
        notices = card.notices
        stored = run(_with_store(load_settings(), lambda store: _put_card(store, card, slug)))
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
        notices += check_lorebook(companion.card)  # refused here rather than ignored by servers
    except RequestError as error:
        raise InvalidFile(f"{file}: {error.message}", param=error.param) from None
    return companion, notices


def _read_card_file(file: Path, slug: str | None) -> ReadCard:
    """Read a character card, or a lorebook for the companion of the slug; both are checked.

    Raises:
        InvalidFile: naming the field and what was expected.
    """
    try:
        with file.open("rb") as opened:
            card = read_card(opened.read(MAX_FILE_BYTES + 1), slug)
        card = card._replace(notices=[*card.notices, *check_lorebook(card.data)])
    except RequestError as error:
        raise InvalidFile(f"{file}: {error.message}", param=error.param) from None
    if card.is_lorebook:
        if slug is None:
            raise InvalidFile(f"{file}: expected --slug, the companion of this lorebook")
        return card
    problem = first_invalid_field(companion_of(card.data, slug))
    if problem is not None:
        raise InvalidFile(f"{file}: {': '.join(problem)}; give one with --slug", param=problem[0])
    return card


async def _put_card(store: CompanionStore, card: ReadCard, slug: str | None) -> Companion:
    """Store the companion of a card, or the lorebook of the companion of this slug."""
    if card.is_lorebook:
        companion = with_lorebook(await store.find(slug or ""), card.data["character_book"])
    else:
        companion = companion_of(card.data, slug)
    return await store.put(companion, keep_settings=True)


async def _with_store(
    settings: Settings, use: Callable[[CompanionStore], Awaitable[Result]]
) -> Result:
    clock, metrics = SystemClock(), Metrics()
    async with Supervisor(clock, metrics) as supervisor, database_url(settings, say) as url:
        await migrate(url)
        runtime = RuntimeServices(settings, clock, metrics, supervisor)
        async with announcing_database(url, 2, runtime) as (database, _):
            return await use(CompanionStore(database))
