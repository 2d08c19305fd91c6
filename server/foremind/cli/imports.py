"""`foremind import`: chats and memories of other programs, as a relationship."""

from pathlib import Path

import typer

from foremind.app.configuration import load_settings
from foremind.app.core import build_importer, core
from foremind.cli.running import run, say
from foremind.domain.errors import InvalidFile, InvalidMessage, TooLarge
from foremind.memory.foreign_chats import ForeignPast


def import_chats(
    files: list[Path] = typer.Argument(
        help="Chats of SillyTavern (JSONL), exports of ChatGPT or Character.AI, or a dump of mem0; "
        "also in a zip archive."
    ),
    companion: str = typer.Option(help="Slug of the companion who is to remember them."),
    user: str = typer.Option("player", help="Id of the user who said it."),
) -> None:
    """Import chats of other programs as one relationship, with their dates.

    Nothing may have been said with the companion yet. A server, running or started later, remembers
    what was said in the background.
    """
    contents = [file.read_bytes() for file in files]

    async def write() -> ForeignPast:
        async with core(load_settings(), say=say) as built:
            chosen = await built.stores.companions.find(companion)
            try:
                _, past = await build_importer(built).import_chats(
                    contents, user, None, chosen, "operator", built.runtime.clock.now()
                )
            except (InvalidMessage, TooLarge) as error:
                raise InvalidFile(", ".join(map(str, files)) + f": {error.message}") from None
            return past

    past = run(write())
    turns, sessions = len(past.export.turns), len(past.export.sessions)
    read = f"{_count(turns, 'turn')} in {_count(sessions, 'session')}"
    print(f"Imported {read if sessions else _count(turns, 'memory')} of {past.program}.")
    for notice in past.notices:
        print(f"  {notice.field}: {notice.text}")


def _count(number: int, noun: str) -> str:
    plural = f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
