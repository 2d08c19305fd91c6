"""What the commands share: an event loop, and lines that say what goes on."""

import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on uvloop."""
    return uvloop.run(main)


def say(line: str) -> None:
    """Tell the person at the terminal what goes on; standard output stays for results."""
    print(line, file=sys.stderr, flush=True)
