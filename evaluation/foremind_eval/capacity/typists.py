"""Clients that type as people do: a key four times a second, and a message now and then."""

import asyncio
import random
import time

from foremind.runtime.supervision import begin, stop
from foremind_client import Client

TEXT = "Do you remember the harbour and all the boats of last summer"  # 60 characters
KEYS_PER_S = 4.0
ENTER_AFTER_S = 0.2


async def type_text(client: Client, draw: random.Random) -> None:
    """Send a draft for each key of the text."""
    due = time.perf_counter()
    for end in range(1, len(TEXT) + 1):
        due += draw.expovariate(KEYS_PER_S)
        await asyncio.sleep(due - time.perf_counter())
        await client.draft(TEXT[:end])


async def converse(client: Client, interval_s: float, seed: int) -> None:
    """Type and send a message every `interval_s` seconds, until cancelled.

    The first is begun at any time within that interval, so that a crowd sends at a constant rate.
    """
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    reader = begin(discard_events(client), "reader")
    due = time.perf_counter() + draw.uniform(0, interval_s)
    try:
        while True:
            await asyncio.sleep(due - time.perf_counter())
            await type_text(client, draw)
            await asyncio.sleep(ENTER_AFTER_S)
            await client.send(TEXT)
            due += interval_s
    finally:
        await stop(reader)


async def discard_events(client: Client) -> None:
    """Read events until the connection is closed."""
    async for _ in client.events():
        pass
