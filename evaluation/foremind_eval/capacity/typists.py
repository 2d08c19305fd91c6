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
    """Type and send a message about every `interval_s` seconds, until cancelled."""
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    reader = begin(discard_events(client), "reader")
    try:
        typing_s = len(TEXT) / KEYS_PER_S
        await asyncio.sleep(draw.uniform(0, interval_s))
        while True:
            started = time.perf_counter()
            await type_text(client, draw)
            await asyncio.sleep(ENTER_AFTER_S)
            await client.send(TEXT)
            pause_s = draw.uniform(0, 2 * (interval_s - typing_s))
            await asyncio.sleep(max(0.0, started + typing_s + pause_s - time.perf_counter()))
    finally:
        await stop(reader)


async def discard_events(client: Client) -> None:
    """Read events until the connection is closed."""
    async for _ in client.events():
        pass
