"""Large bodies and answers lie in files while they come and go: memory waits for no client."""

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

_IN_MEMORY = 262_144  # bytes; what is larger goes to a file that no other program sees
_PART = 65_536  # bytes sent at once
_PORTION = 100  # elements of a list that are encoded at once: a millisecond or two
_OF_A_USER = 2  # answers under way


async def received(request: Request, most: int, too_large: ForemindError) -> bytes:
    """Read a body of at most `most` bytes, keeping it out of memory until it is whole.

    Raises:
        ForemindError: `too_large`, where it has more.
        Overloaded: there is no room for it.
    """
    with SpooledTemporaryFile(_IN_MEMORY) as file:
        size = 0
        try:
            async for part in request.stream():
                size += len(part)
                if size > most:
                    request.state.connection.count_refused("body_size")
                    raise too_large
                file.write(part)
        except OSError:
            request.state.connection.count_refused("bodies")
            raise Overloaded("There is no room for the body; try again later.") from None
        file.seek(0)
        return await asyncio.to_thread(file.read) if size > _IN_MEMORY else file.read()


async def write_json(content: msgspec.Struct, file: IO[bytes]) -> None:
    """Write what `msgspec.json.encode` would, with others' work between portions of long lists."""
    for number, field in enumerate(msgspec.structs.fields(content)):
        name = msgspec.json.encode(field.encode_name)
        file.write((b"," if number else b"{") + name + b":")
        value = getattr(content, field.name)
        if not isinstance(value, list):
            file.write(msgspec.json.encode(value))
            continue
        file.write(b"[")
        for start in range(0, len(value), _PORTION):
            elements = msgspec.json.encode(value[start : start + _PORTION])[1:-1]
            file.write((b"," if start else b"") + elements)
            await asyncio.sleep(0)
        file.write(b"]")
    file.write(b"}")


class SpooledResponses:
    """Makes large answers one at a time, and hands them out from files.

    Args:
        most_bytes: of all files at once; what would be more is refused.
    """

    def __init__(self, most_bytes: int, metrics: Metrics) -> None:
        self._most = most_bytes
        self._metrics = metrics
        self._making = asyncio.Lock()
        self._of_user: Counter[str] = Counter()
        #: Bytes of all that is being handed out.
        self.held = 0

    async def answer(
        self,
        user_id: str,
        content: Callable[[], Awaitable[msgspec.Struct]],
        headers: Mapping[str, str],
    ) -> Response:
        """Return what `content` makes, as JSON.

        Raises:
            RateLimited: the user is reading as many as it may.
            Overloaded: all together would be too much.
        """
        if self._of_user[user_id] >= _OF_A_USER:
            self._metrics.refused.labels("exports_of_user").inc()
            raise RateLimited(f"At most {_OF_A_USER} exports at once.")
        self._of_user[user_id] += 1
        file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed when it is handed out
        try:
            async with self._making:
                await write_json(await content(), file)
            size = file.tell()
            if self.held + size > self._most:
                raise self._no_room("Too much is being exported at once; try again shortly.")
        except BaseException as error:
            file.close()
            self._done(user_id, 0)
            if isinstance(error, OSError):
                raise self._no_room("There is no room for the export; try again later.") from None
            raise
        self.held += size
        return _FileResponse(file, size, headers, lambda: self._done(user_id, size))

    def _no_room(self, message: str) -> Overloaded:
        self._metrics.refused.labels("exports").inc()
        return Overloaded(message)

    def _done(self, user_id: str, size: int) -> None:
        self.held -= size
        self._of_user[user_id] -= 1
        if not self._of_user[user_id]:
            del self._of_user[user_id]


class _FileResponse(Response):
    """Sends a file at its reader's pace, and closes it."""

    def __init__(
        self, file: IO[bytes], size: int, headers: Mapping[str, str], done: Callable[[], None]
    ) -> None:
        super().__init__(headers={**headers, "content-length": str(size)})
        self.headers["content-type"] = "application/json"
        self._file = file
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._file.seek(0)
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            while part := self._file.read(_PART):
                await send({"type": "http.response.body", "body": part, "more_body": True})
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._file.close()
            self._done()
