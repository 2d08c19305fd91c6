"""The `foremind` command: its subcommands, and one-line error messages with exit code 1."""

import sys

import typer

from foremind import __version__
from foremind.app.configuration import load_settings
from foremind.cli import chat, companions, db, files, imports, models, serve, tokens
from foremind.cli.running import add_evaluation_command
from foremind.domain.errors import ForemindError
from foremind.runtime.logs import configure_logging
from foremind_models import ModelUnusable

app = typer.Typer(
    name="foremind",
    help="The server that has a companion's memories ready before the player presses Enter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # lines of docstrings flow
)
app.command("serve")(serve.serve)
app.command("embed")(serve.embed)
app.command("chat")(chat.chat)
add_evaluation_command(
    app,
    "bench",
    entry_point="bench",
    summary="Measure latency on this machine (part of foremind-eval).",
)
app.command("token")(tokens.token)
app.add_typer(tokens.keys, name="keys")
add_evaluation_command(
    app,
    "eval",
    entry_point="eval",
    summary="Measure recall through the real store and search (part of foremind-eval).",
)
app.add_typer(companions.app, name="companions")
app.add_typer(models.app, name="models")
app.add_typer(db.app, name="db")
app.add_typer(files.app, name="files")
app.command("import")(imports.import_chats)


def _print_version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(  # commands log warnings only; `serve` sets its own level
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version and exit.",
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    configure_logging(load_settings(log_level="warning"))


def main() -> None:
    """Run the command line."""
    try:
        app()
    except (ForemindError, ModelUnusable) as error:
        print(f"foremind: {error.message}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"foremind: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
