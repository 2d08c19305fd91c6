"""The help of commands, as a terminal shows it."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from foremind.cli.main import COMMANDS, load_command
from foremind.cli.main import app as program

_COLUMNS = 80
# What every command costs of time is what these need: most of a second.
_HEAVY = ("asyncpg", "numpy", "onnxruntime", "starlette", "structlog", "uvicorn", "asyncio")


def commands(command: object, *path: str) -> Iterator[str]:
    """Every command's words."""
    yield " ".join(path)
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *path, name)


def own_commands() -> Iterator[str]:
    """Those of the server, and not of the evaluation."""
    yield ""
    for name, (target, _) in COMMANDS.items():
        if target.startswith("foremind."):
            yield from commands(load_command(name, target), name)


@pytest.mark.parametrize("path", list(own_commands()))
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


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("bench", "eval")])
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    target, summary = COMMANDS[name]
    assert load_command(name, target).help.partition("\n\n")[0] == summary


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["mood"], []])
def test_help_and_mistyped_commands_import_no_server(arguments: list[str]) -> None:
    """They are there at once."""
    source = (
        "import sys, foremind.__main__ as foremind\n"
        f"sys.argv = ['foremind', *{arguments}]\n"
        "try: foremind.main()\n"
        f"finally: print('loaded', *sorted(sys.modules.keys() & {set(_HEAVY)}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "loaded"
