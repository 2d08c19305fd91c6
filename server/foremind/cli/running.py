"""What commands share: running a coroutine, progress messages, what is logged."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from foremind.app.configuration import load_settings
from foremind.runtime.logs import configure_logging
from foremind.runtime.supervision import begin, stop

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


def log_warnings() -> None:
    """Log warnings only, as all commands do but those that serve."""
    configure_logging(load_settings(log_level="warning"))
