"""Decodes JSON bodies: small ones at once, large ones in batches that yield to the event loop."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar, get_args, get_origin

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foremind.domain.errors import NOT_JSON, ForemindError, InvalidMessage, Overloaded, RateLimited
from foremind.domain.field_problems import decode_leniently, json_problem
from foremind.domain.storable_text import half_character
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


Shape = TypeVar("Shape")
#: Checks a decoded value, given the path of its field, which is empty for the whole body.
Check = Callable[[object, str], None]

_BATCH_BYTES = 16_384  # decoded at once: a millisecond or two
_MAX_ELEMENT_BYTES = 524_288  # of one list element: 20 ms at worst
_MAX_FIELDS = 100  # of the body itself
_MAX_NESTING = 7  # levels within an element, more than any shape has

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rb'[\[{](?:[^\[\]{}"]++|' + _STRING + rb"%s)*+[\]}]"
_NESTED = _FLAT % b""
for _ in range(_MAX_NESTING):
    _NESTED = _FLAT % (b"|" + _NESTED)
_VALUE = rb"(?:" + _STRING + rb"|[-+.\w]++|" + _NESTED + rb")"
_NAME = re.compile(_SPACE + rb'"(\w{1,64})"' + _SPACE + b":" + _SPACE, re.DOTALL)
_ELEMENT = re.compile(_SPACE + _VALUE + _SPACE, re.DOTALL)
_OPEN_OBJECT = re.compile(
    _SPACE + rb"\{(?:" + _SPACE + _STRING + _SPACE + b":" + _SPACE + _VALUE + _SPACE + b",)*+"
    + _SPACE + rb'"(\w{1,64})"' + _SPACE + b":",
    re.DOTALL,
)  # fmt: skip


async def decode_json(raw: bytes, shape: type[Shape], check: Check) -> Shape:
    """Decode a JSON body and check its values.

    The lists of a large body are decoded a few elements at a time, and each batch is checked before
    the next is decoded. An element may have at most half a mebibyte.

    Raises:
        InvalidMessage: the body is not valid JSON, or a field is invalid; `param` names it.
    """
    if len(raw) > _BATCH_BYTES:
        large_body: Shape = await _BodyReader(raw, shape, check).read()
        return large_body
    body: Shape = _decode(raw, shape)
    check(body, "")
    return body


def _decode(raw: bytes, shape: Any, path: str = "", first: int = 0) -> Any:
    """Decode a whole body, or a batch of the list at `path` that begins with element `first`."""
    try:
        return decode_leniently(raw, partial(msgspec.json.decode, type=shape))
    except msgspec.ValidationError:
        param, expected = json_problem(raw, shape)
        if path:
            param = re.sub(r"^\[(\d+)\]", lambda index: f"{path}[{first + int(index[1])}]", param)
        param = param or path or "body"
        raise InvalidMessage(f"{param}: {expected}", param=param) from None
    except NOT_JSON as error:
        is_small = not path and len(raw) <= _BATCH_BYTES  # to be read once more
        half = half_character(raw) if is_small else None
        raise (half or _malformed(str(error))) from None


def _malformed(reason: str) -> InvalidMessage:
    return InvalidMessage(f"body: expected JSON: {reason}", param="body")


class _BodyReader:
    """Reads one large body from start to end."""

    def __init__(self, raw: bytes, shape: type[Any], check: Check) -> None:
        self._raw = raw
        self._position = 0
        self._shape = shape
        self._check = check
        self._list_fields = {
            field.encode_name.encode(): (field.name, field.type)
            for field in msgspec.structs.fields(shape)
            if get_origin(field.type) is list and _is_struct(get_args(field.type)[0])
        }

    async def read(self) -> Any:
        """Return the decoded body."""
        fields: list[bytes] = []
        lists: dict[str, list[Any]] = {}
        more = self._skip(b"{") and not self._skip(b"}")
        if not more and self._position == 0:
            raise _malformed("expected an object")
        while more:
            name, prefix = self._read_name()
            if name in self._list_fields and self._skip(b"["):
                field, type_ = self._list_fields[name]
                lists[field] = await self._read_list(field, type_)
                fields.append(prefix + b"[]")
            else:
                fields.append(prefix + self._read_element(name.decode()))
            if len(fields) > _MAX_FIELDS:
                raise InvalidMessage(f"body: expected at most {_MAX_FIELDS} fields", param="body")
            more = self._skip(b",")
            if not more and not self._skip(b"}"):
                raise _malformed(f"expected a comma or brace at byte {self._position}")
        if self._raw[self._position : self._position + _MAX_ELEMENT_BYTES].strip():
            raise _malformed(f"expected the end of the body at byte {self._position}")
        body = _decode(b"{" + b",".join(fields) + b"}", self._shape)
        self._check(body, "")
        return msgspec.structs.replace(body, **lists)

    async def _read_list(self, path: str, type_: Any) -> list[Any]:
        elements: list[Any] = []
        ended = self._skip(b"]")
        while not ended:
            start, first = self._position, len(elements)
            number = first
            while True:
                self._read_element(f"{path}[{number}]")
                number += 1
                end = self._position
                ended = self._skip(b"]")
                if ended or self._position - start >= _BATCH_BYTES:
                    break
                self._skip_comma()
            batch = _decode(b"[" + self._raw[start:end] + b"]", type_, path, first)
            for index, element in enumerate(batch, first):
                self._check(element, f"{path}[{index}]")
            elements += batch
            await asyncio.sleep(0)
            if not ended:
                self._skip_comma()
        return elements

    def _read_name(self) -> tuple[bytes, bytes]:
        """Consume a field's name and colon; return the name, and both as they are written."""
        match = _NAME.match(self._raw, self._position, self._position + _MAX_ELEMENT_BYTES)
        if match is None:
            raise _malformed(f"expected a field name at byte {self._position}")
        self._position = match.end()
        return match[1], match[0]

    def _read_element(self, path: str) -> bytes:
        """Consume a value of any type; return it undecoded."""
        limit = self._position + _MAX_ELEMENT_BYTES
        match = _ELEMENT.match(self._raw, self._position, limit)
        if match is not None and match.end() < limit:
            self._position = match.end()
            return match[0]
        if limit >= len(self._raw) and match is None:
            raise _malformed(f"expected a value at byte {self._position}")
        if match is not None:
            raise _malformed(f"expected less white space at byte {self._position}")
        open_object = _OPEN_OBJECT.match(self._raw, self._position, limit)
        if open_object is not None:
            path += f".{open_object[1].decode()}"
        raise InvalidMessage(
            f"{path}: expected JSON of less than {_MAX_ELEMENT_BYTES} bytes, nested at most "
            f"{_MAX_NESTING} levels deep",
            param=path,
        )

    def _skip(self, character: bytes) -> bool:
        """Consume a character and the white space around it, if it comes next."""
        match = re.compile(_SPACE + re.escape(character) + _SPACE).match(
            self._raw, self._position, self._position + _MAX_ELEMENT_BYTES
        )
        if match is not None:
            self._position = match.end()
        return match is not None

    def _skip_comma(self) -> None:
        if not self._skip(b","):
            raise _malformed(f"expected a comma or bracket at byte {self._position}")


def _is_struct(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)
