"""The `foremind` command: its subcommands, and one-line error messages with exit code 1.

What a command needs is imported when that is run, so that help and mistyped commands cost little.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import typer
from typer.core import TyperCommand

from foremind import __version__

_MARKUP: Final = "markdown"  # lines of docstrings flow

#: The commands: the function or the group that each is, and what the list of them says of it.
COMMANDS = {
    "serve": ("foremind.cli.serve:serve", "Run the server: WebSocket, HTTP API and demo page."),
    "embed": ("foremind.cli.serve:embed", "Serve the embedding model over OpenAI's interface."),
    "chat": (
        "foremind.cli.chat:chat",
        "Chat with a companion in the terminal; it recalls while you type.",
    ),
    "bench": (
        "foremind_eval.cli.bench:bench",
        "Measure latency on this machine (part of foremind-eval).",
    ),
    "token": (
        "foremind.cli.tokens:token",
        "Create an access token, signed with FOREMIND_AUTH_SECRET or FOREMIND_AUTH_KEYS.",
    ),
    "eval": (
        "foremind_eval.cli.evaluate:evaluate",
        "Measure recall through the real store and search (part of foremind-eval).",
    ),
    "import": (
        "foremind.cli.imports:import_chats",
        "Import chats of other programs as one relationship, with their dates.",
    ),
    "keys": ("foremind.cli.tokens:keys", "Create keys that sign access tokens."),
    "companions": (
        "foremind.cli.companions:app",
        "List companions, create or change them from TOML files and character cards, and get "
        "their cards.",
    ),
    "models": (
        "foremind.cli.models:app",
        "List, fetch, calibrate and benchmark embedding models.",
    ),
    "db": (
        "foremind.cli.db:app",
        "Migrate, distribute, back up, restore and look at the database.",
    ),
    "files": (
        "foremind.cli.files:app",
        "Write a relationship to a folder of Markdown files, and read edits back.",
    ),
}


def add_command(group: typer.Typer, name: str, target: str, summary: str) -> None:
    """Add a command that is imported when it is run.

    Args:
        target: the function or group that it is, as `module:name`.
        summary: shown in the list of commands.
    """

    class OnDemand(TyperCommand):
        def make_context(self, *words: Any, **extra: Any) -> Any:
            return load_command(name, target).make_context(*words, **extra)

    group.command(name, cls=OnDemand, help=summary)(lambda: None)


def load_command(name: str, target: str) -> Any:
    """Import a command; say what to install if it is one of the evaluation, and that is missing."""
    module, _, attribute = target.partition(":")
    if find_spec(module.partition(".")[0]) is None:
        print(
            f"`{name}` is part of foremind-eval, which is not installed: "
            "run `pip install 'foremind[eval]'`, or `make eval` in a checkout.",
            file=sys.stderr,
        )
        raise typer.Exit(2)
    found = getattr(import_module(module), attribute)
    program = typer.Typer(rich_markup_mode=_MARKUP)
    if isinstance(found, typer.Typer):
        program.add_typer(found, name=name)
    else:
        program.command(name)(found)
    return typer.main.get_group(program).commands[name]


app = typer.Typer(
    name="foremind",
    help="The server that has a companion's memories ready before the player presses Enter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
)
for name, (target, summary) in COMMANDS.items():
    add_command(app, name, target, summary)


def _print_version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version and exit.",
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    from foremind.cli.running import log_warnings  # noqa: PLC0415 - only if a command is run

    log_warnings()


def main() -> None:
    """Run the command line."""
    try:
        app()
    except OSError as error:
        if error.filename is None:
            raise
        print(f"foremind: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        from foremind.domain.errors import ForemindError  # noqa: PLC0415 - only if a command failed
        from foremind_models import ModelUnusable  # noqa: PLC0415 - as above

        if not isinstance(error, ForemindError | ModelUnusable):
            raise
        print(f"foremind: {error.message}", file=sys.stderr)
        sys.exit(1)
