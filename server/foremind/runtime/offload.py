"""Reading a text where it holds nobody up: at once where it is short, else in a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

# Read for everything that is asked of it, a text of this length takes a few milliseconds, which
# is about as long as a change of threads may take.
_SHORT_CHARS = 4_000


async def aside(chars: int, work: Callable[[], Result]) -> Result:
    """Return what pure `work` on so many characters comes to."""
    return work() if chars <= _SHORT_CHARS else await asyncio.to_thread(work)
