"""Waiting in tests."""

import asyncio
from collections.abc import Callable

#: Timeout of every wait, in seconds: far longer than any takes, even on a busy machine.
PATIENCE = 100.0


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it did not hold within PATIENCE.
    """
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)
