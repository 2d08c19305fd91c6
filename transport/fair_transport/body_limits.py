"""Byte limits over the bodies of all requests and of all large responses in flight."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fair_transport.options import Hooks, Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_SLICE = 65_536  # bytes of a response body passed on before waiting for the client to read
_TOO_MUCH_IN_FLIGHT = Refusal(
    503, "overloaded", "Too many large responses in flight; try again shortly."
)


class BodyBudget:
    """ASGI middleware that limits the bytes of bodies in flight and sends large ones in slices.

    A request body counts from its first byte until the response is complete, a large response body
    until it has been sent. A request is refused with 503 if the total of either kind would exceed
    `max_bytes`.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, hooks: Hooks) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._hooks = hooks
        #: Bytes of all request bodies, and of large response bodies, in flight.
        self.request_bytes = self.response_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            if self.request_bytes + size > self._max_bytes:
                self._hooks.on_refused("bodies")
                raise self._hooks.body_refused("Too many uploads at once; try again shortly.")
            received += size
            self.request_bytes += size
            return message

        try:
            await self._app(scope, counted_receive, self._limited(send))
        finally:
            self.request_bytes -= received

    def _limited(self, send: Send) -> Send:
        start: Message | None = None

        async def limited_send(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message  # sent once the body is known to be within the limit
                return
            size = len(message.get("body", b""))
            counted = size if size > _SLICE else 0
            if start is not None:
                if counted and self.response_bytes + counted > self._max_bytes:
                    await self._refuse(send)
                    return
                await send(start)
                start = None
            self.response_bytes += counted
            try:
                await _send_in_slices(message, send)
            finally:
                self.response_bytes -= counted

        return limited_send

    async def _refuse(self, send: Send) -> None:
        self._hooks.on_refused("answers")
        body = self._hooks.error_body(_TOO_MUCH_IN_FLIGHT)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        status = _TOO_MUCH_IN_FLIGHT.status
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _send_in_slices(message: Message, send: Send) -> None:
    body: Any = message.get("body", b"")
    if len(body) <= _SLICE:
        await send(message)
        return
    view, more = memoryview(body), message.get("more_body", False)
    for start in range(0, len(body), _SLICE):
        last = start + _SLICE >= len(body)
        await send({**message, "body": view[start : start + _SLICE],
                    "more_body": more or not last})  # fmt: skip
        await asyncio.sleep(0)  # lets a disconnect be noticed
