"""The help of commands, as a terminal shows it."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import typer
from typer.testing import CliRunner

from foremind.cli.main import app as program

_COLUMNS = 80


def commands(command: object, *path: str) -> Iterator[str]:
    """Every command's words, but those of the evaluation, which has help of its own."""
    yield " ".join(path)
    for name, inner in getattr(command, "commands", {}).items():
        if name not in ("bench", "eval"):
            yield from commands(inner, *path, name)


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(program))))
def test_lines_of_help_are_as_long_as_the_terminal_allows(path: str) -> None:
    """Not broken where the source breaks them."""
    shown = (
        CliRunner()
        .invoke(program, [*path.split(), "--help"], env={"COLUMNS": str(_COLUMNS)})
        .stdout
    )
    text = shown.partition("Usage:")[2].partition("╭")[0]
    assert text.strip()
    for line, following in pairwise(map(str.strip, text.splitlines()[1:])):
        if line and following:
            assert len(line) + len(following.split()[0]) > _COLUMNS - 4, line
