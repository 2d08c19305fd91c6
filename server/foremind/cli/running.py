"""What commands share: running a coroutine, and progress messages."""

import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    import uvloop as event_loop
except ImportError:  # not made for every system
    import asyncio as event_loop  # type: ignore[no-redef]

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on uvloop, or where that is not installed on asyncio; return its result."""
    return event_loop.run(main)


def say(line: str) -> None:
    """Print a progress message to standard error; standard output is for results."""
    print(line, file=sys.stderr, flush=True)
