"""Many sessions at once, spread over servers."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from foremind_client import Client, connect

_MAX_CONNECTING = 50  # connections being opened at the same time

_numbers = itertools.count()


def new_users(count: int) -> list[str]:
    """Return ids of users that no call has returned before."""
    return [f"crowd-{next(_numbers)}" for _ in range(count)]


@asynccontextmanager
async def crowd(
    urls: Sequence[str], user_ids: Sequence[str], companion: str = "wren"
) -> AsyncIterator[list[Client]]:
    """Open a session for each user, over the servers in turn; yield the clients in that order."""
    connecting = asyncio.Semaphore(_MAX_CONNECTING)
    async with AsyncExitStack() as stack:

        async def open_session(number: int, user_id: str) -> Client:
            async with connecting:
                url = urls[number % len(urls)]
                client = await stack.enter_async_context(connect(url))
                await client.open_session(companion, user_id=user_id, name="N")
            return client

        yield await asyncio.gather(*itertools.starmap(open_session, enumerate(user_ids)))
