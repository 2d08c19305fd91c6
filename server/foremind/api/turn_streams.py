"""What the doors that make turns over HTTP share: how a turn begins, ends, and is streamed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foremind.domain.errors import ForemindError
from foremind.domain.turn_request import TurnBegun, TurnDone, TurnEvent
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


EVENT_STREAM = "text/event-stream"


async def begin_turn(
    stack: AsyncExitStack, turn: AbstractAsyncContextManager[AsyncIterator[TurnEvent]]
) -> tuple[TurnBegun, AsyncIterator[TurnEvent]]:
    """Wait until the message is stored and its reply begins; return what is still to come, too.

    Args:
        stack: leaving it ends the turn.

    Raises:
        ForemindError: the message was refused.
    """
    events = await stack.enter_async_context(turn)
    begun = await anext(events)
    assert isinstance(begun, TurnBegun)
    return begun, events


async def end_of(events: AsyncIterator[TurnEvent]) -> TurnDone:
    """Wait until a reply has ended.

    Raises:
        ForemindError: the turn ended without one.
    """
    async for event in events:
        if isinstance(event, TurnDone):
            return event
    raise ForemindError("The reply did not end.")


class StreamedTurn(Response):
    """Streams a turn as server-sent events; if the client leaves, the reply stops.

    Args:
        events: complete server-sent events.
        turn: left when the stream has ended.
    """

    media_type = EVENT_STREAM

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        turn: AsyncExitStack,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers={**(headers or {}), "cache-control": "no-store"})
        del self.headers["content-length"]
        self._events = events
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        async with self._turn:
            with suppress(ClientDisconnect):  # nobody receives more
                await while_connected(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._events) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
