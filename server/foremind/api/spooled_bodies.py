"""Spools large request and response bodies to files, so that slow clients occupy no memory."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from tempfile import SpooledTemporaryFile
from typing import IO

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foremind.domain.errors import ForemindError, Overloaded, RateLimited
from foremind.runtime.metrics import Metrics

_IN_MEMORY = 262_144  # bytes; larger bodies go to an anonymous temporary file
_CHUNK = 65_536  # bytes sent at once
_BATCH = 100  # list elements encoded at once: a millisecond or two
_MAX_PER_USER = 2  # responses in flight


async def receive_body(request: Request, max_bytes: int, too_large: ForemindError) -> bytes:
    """Read a body, keeping it out of memory until it is complete.

    Raises:
        ForemindError: `too_large`, if it exceeds `max_bytes`.
        Overloaded: there is no space to spool it.
    """
    with SpooledTemporaryFile(_IN_MEMORY) as file:
        size = 0
        try:
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    request.state.connection.count_refused("body_size")
                    raise too_large
                file.write(chunk)
        except OSError:
            request.state.connection.count_refused("bodies")
            raise Overloaded("No space for the request body; try again later.") from None
        file.seek(0)
        return await asyncio.to_thread(file.read) if size > _IN_MEMORY else file.read()


async def write_json(content: msgspec.Struct, file: IO[bytes]) -> None:
    """Write exactly what `msgspec.json.encode` returns, yielding between batches of long lists."""
    for number, field in enumerate(msgspec.structs.fields(content)):
        name = msgspec.json.encode(field.encode_name)
        file.write((b"," if number else b"{") + name + b":")
        value = getattr(content, field.name)
        if not isinstance(value, list):
            file.write(msgspec.json.encode(value))
            continue
        file.write(b"[")
        for start in range(0, len(value), _BATCH):
            elements = msgspec.json.encode(value[start : start + _BATCH])[1:-1]
            file.write((b"," if start else b"") + elements)
            await asyncio.sleep(0)
        file.write(b"]")
    file.write(b"}")


class SpooledResponses:
    """Builds large responses one at a time, and streams them from files.

    Args:
        max_bytes: of all files together; a response that would exceed it is refused.
    """

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._building = asyncio.Lock()
        self._per_user: Counter[str] = Counter()
        #: Bytes of all responses in flight.
        self.pending_bytes = 0

    async def respond(
        self,
        user_id: str,
        build: Callable[[], Awaitable[msgspec.Struct]],
        headers: Mapping[str, str],
    ) -> Response:
        """Return a JSON response with what `build` returns.

        Raises:
            RateLimited: the user has too many responses in flight.
            Overloaded: the responses in flight would exceed the byte limit.
        """
        if self._per_user[user_id] >= _MAX_PER_USER:
            self._metrics.refused.labels("exports_of_user").inc()
            raise RateLimited(f"At most {_MAX_PER_USER} exports at once.")
        self._per_user[user_id] += 1
        file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed once it has been sent
        try:
            async with self._building:
                await write_json(await build(), file)
            size = file.tell()
            if self.pending_bytes + size > self._max_bytes:
                raise self._overloaded("Too many exports at once; try again shortly.")
        except BaseException as error:
            file.close()
            self._release(user_id, 0)
            if isinstance(error, OSError):
                raise self._overloaded("No space for the export; try again later.") from None
            raise
        self.pending_bytes += size
        return _FileResponse(file, size, headers, lambda: self._release(user_id, size))

    def _overloaded(self, message: str) -> Overloaded:
        self._metrics.refused.labels("exports").inc()
        return Overloaded(message)

    def _release(self, user_id: str, size: int) -> None:
        self.pending_bytes -= size
        self._per_user[user_id] -= 1
        if not self._per_user[user_id]:
            del self._per_user[user_id]


class _FileResponse(Response):
    """Streams a file as the client reads, then closes it."""

    def __init__(
        self, file: IO[bytes], size: int, headers: Mapping[str, str], on_close: Callable[[], None]
    ) -> None:
        super().__init__(headers={**headers, "content-length": str(size)})
        self.headers["content-type"] = "application/json"
        self._file = file
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._file.seek(0)
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            while chunk := self._file.read(_CHUNK):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._file.close()
            self._on_close()
