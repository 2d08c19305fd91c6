"""Bodies of requests and responses: what all of them hold at once is bounded."""

import asyncio
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foremind.domain.errors import Overloaded
from foremind.runtime.metrics import Metrics

_SLICE = 65_536  # bytes of a response that are handed over before its reader is waited for


class BodyBudget:
    """ASGI middleware: counts what bodies hold, and hands those of large responses over in slices.

    A request's body counts from its first byte until it is answered, a large response's until it is
    handed over. Where all of either kind would be more than `most_bytes`, one more is refused.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, metrics: Metrics) -> None:
        self._app = app
        self._most = most_bytes
        self._metrics = metrics
        #: Bytes of the bodies of all requests now, and of large responses.
        self.held = self.unread = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        mine = 0

        async def counted() -> Message:
            nonlocal mine
            message = await receive()
            size = len(message.get("body", b""))
            if self.held + size > self._most:
                self._metrics.refused.labels("bodies").inc()
                raise Overloaded("Too much is being uploaded at once; try again shortly.")
            mine += size
            self.held += size
            return message

        try:
            await self._app(scope, counted, self._handing_over(send))
        finally:
            self.held -= mine

    def _handing_over(self, send: Send) -> Send:
        start: Message | None = None

        async def handing_over(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message  # told once it is known that there is room for what follows
                return
            size = len(message.get("body", b""))
            large = size if size > _SLICE else 0
            if start is not None:
                if large and self.unread + large > self._most:
                    await self._refuse(send)
                    return
                await send(start)
                start = None
            self.unread += large
            try:
                await _in_slices(message, send)
            finally:
                self.unread -= large

        return handing_over

    async def _refuse(self, send: Send) -> None:
        self._metrics.refused.labels("answers").inc()
        error = Overloaded("Too much waits to be read; try again shortly.")
        body = error_body(error.kind, error.code, error.message, retryable=True)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def error_body(kind: str, code: str, message: str, *, retryable: bool) -> bytes:
    """Return the body that every error has."""
    error = {
        "type": kind,
        "code": code,
        "message": message,
        "param": None,
        "retryable": retryable,
    }
    return msgspec.json.encode({"error": error})


async def _in_slices(message: Message, send: Send) -> None:
    body: Any = message.get("body", b"")
    if len(body) <= _SLICE:
        await send(message)
        return
    view, more = memoryview(body), message.get("more_body", False)
    for start in range(0, len(body), _SLICE):
        last = start + _SLICE >= len(body)
        await send({**message, "body": view[start : start + _SLICE],
                    "more_body": more or not last})  # fmt: skip
        await asyncio.sleep(0)  # or nobody learns that the reader is gone
