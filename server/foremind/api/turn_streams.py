"""What the doors that make turns over HTTP share: how a turn begins, ends, and is streamed."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foremind.api.client_presence import while_connected
from foremind.domain.errors import ForemindError
from foremind.domain.turn_request import TurnBegun, TurnDone, TurnEvent

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
