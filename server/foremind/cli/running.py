"""What commands share: running a coroutine, and progress messages."""

import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on uvloop and return its result."""
    return uvloop.run(main)


def say(line: str) -> None:
    """Print a progress message to standard error; standard output is for results."""
    print(line, file=sys.stderr, flush=True)
