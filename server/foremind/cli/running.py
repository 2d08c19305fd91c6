"""What commands share: running a coroutine, and progress messages."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import typer

from foremind.runtime.supervision import begin, stop

_GROUP = "foremind.commands"
_PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


def add_evaluation_command(app: typer.Typer, name: str, *, entry_point: str, summary: str) -> None:
    """Add a command that passes its arguments on to an entry point.

    The evaluation is imported only when such a command is run: a server never needs it. If it is
    not installed, the command says what to install, and exits with 2.

    Args:
        name: of the command within `app`.
        entry_point: the name in the group `foremind.commands` of a function that typer can run.
        summary: shown in the list of commands.
    """

    @app.command(name, help=summary, add_help_option=False, context_settings=_PASS_ON)
    def pass_on(context: typer.Context) -> None:
        found = _find(entry_point)
        if found is None:
            print(
                f"`{context.command_path}` is part of foremind-eval, which is not installed: "
                "run `pip install 'foremind[eval]'`, or `make eval` in a checkout.",
                file=sys.stderr,
            )
            raise typer.Exit(2)
        command = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        command.command()(found.load())
        command(args=context.args, prog_name=context.command_path)


def _find(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=_GROUP, name=name)), None)


try:
    import uvloop as event_loop
except ImportError:  # not made for every system
    import asyncio as event_loop  # type: ignore[no-redef]

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on uvloop, or where that is not installed on asyncio; return its result."""
    return event_loop.run(main)


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of several events is set."""
    waiting = [begin(event.wait(), "first-of") for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop(*waiting)


def exit_after(seconds: float, before: Callable[[], None] = lambda: None) -> None:
    """End this process in so many seconds, whatever still hangs then; `before` is called first.

    Nothing that was accepted is lost by that: it is on disk.
    """

    def end() -> None:
        say(f"Something did not stop within {seconds:g} s: exiting without it.")
        before()
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def say(line: str) -> None:
    """Print a progress message to standard error; standard output is for results."""
    print(line, file=sys.stderr, flush=True)
