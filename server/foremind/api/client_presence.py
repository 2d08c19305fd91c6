"""Stops work whose result nobody receives any more."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from foremind.runtime.supervision import begin, stop

Result = TypeVar("Result")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of some work for a client; stop it if the client leaves.

    Args:
        receive: of a request whose body has been read.

    Raises:
        ClientDisconnect: the client left before the work was done.
    """
    task = begin(work, "client-work")
    left = begin(_until_it_leaves(receive), "client-presence")
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        await stop(task, left)


async def _until_it_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
