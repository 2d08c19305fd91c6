"""Runs text processing without blocking the event loop: short texts inline, others in a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

# Processing a text of this length takes at most a few milliseconds, about as long as a thread
# switch may take.
_MAX_INLINE_CHARS = 4_000


async def run_or_offload(chars: int, work: Callable[[], Result]) -> Result:
    """Return the result of pure `work` on a text of so many characters."""
    return work() if chars <= _MAX_INLINE_CHARS else await asyncio.to_thread(work)
