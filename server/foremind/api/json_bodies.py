"""Decodes JSON bodies: small ones at once, large ones in portions with others' work between."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from foremind.domain.errors import NOT_JSON, InvalidMessage

Shape = TypeVar("Shape")
#: Checks something decoded, given the name of the field that it comes from: empty for a whole body.
Check = Callable[[object, str], None]

_AT_ONCE = 16_384  # bytes that are decoded in one go: a millisecond or two
_MOST_ELEMENT = 524_288  # bytes of an element of a list: 20 ms at worst
_MOST_MEMBERS = 100  # of the object itself
_NESTED = 7  # levels below an element, which is more than any shape has

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rb'[\[{](?:[^\[\]{}"]++|' + _STRING + rb"%s)*+[\]}]"
_NEST = _FLAT % b""
for _ in range(_NESTED):
    _NEST = _FLAT % (b"|" + _NEST)
_VALUE = rb"(?:" + _STRING + rb"|[-+.\w]++|" + _NEST + rb")"
_MEMBER = re.compile(_SPACE + rb'"(\w{1,64})"' + _SPACE + b":" + _SPACE, re.DOTALL)
_ELEMENT = re.compile(_SPACE + _VALUE + _SPACE, re.DOTALL)
_UNFINISHED = re.compile(
    _SPACE + rb"\{(?:" + _SPACE + _STRING + _SPACE + b":" + _SPACE + _VALUE + _SPACE + b",)*+"
    + _SPACE + rb'"(\w{1,64})"' + _SPACE + b":",
    re.DOTALL,
)  # fmt: skip


async def decoded(raw: bytes, shape: type[Shape], check: Check) -> Shape:
    """Decode a JSON body and check everything in it.

    Of a large one the lists are read a few elements at a time; no element may have more than half
    a mebibyte. What is wrong with an element is told before the next ones are read.

    Raises:
        InvalidMessage: it is no JSON, or naming the field that is wrong.
    """
    if len(raw) > _AT_ONCE:
        whole: Shape = await _Body(raw, shape, check).read()
        return whole
    body: Shape = _decode(raw, shape)
    check(body, "")
    return body


def _decode(raw: bytes, shape: Any, path: str = "", first: int = 0) -> Any:
    """Decode bytes; of a list at `path` that begins with element `first`, or of a whole body."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        message = str(error)
        if path:
            message = re.sub(
                r"\$\[(\d+)\]", lambda found: f"$.{path}[{first + int(found[1])}]", message, count=1
            )
        param = message.rpartition("$.")[2].rstrip("`") if "$." in message else path or "body"
        raise InvalidMessage(f"{param}: {message}", param=param) from None
    except NOT_JSON as error:
        raise _no_json(str(error)) from None


def _no_json(reason: str) -> InvalidMessage:
    return InvalidMessage(f"body: expected JSON: {reason}", param="body")


class _Body:
    """Reads one large body from its beginning to its end."""

    def __init__(self, raw: bytes, shape: type[Any], check: Check) -> None:
        self._raw = raw
        self._at = 0
        self._shape = shape
        self._check = check
        self._lists = {
            field.encode_name.encode(): (field.name, field.type)
            for field in msgspec.structs.fields(shape)
            if get_origin(field.type) is list and _is_struct(get_args(field.type)[0])
        }

    async def read(self) -> Any:
        """Return the whole."""
        members: list[bytes] = []
        lists: dict[str, list[Any]] = {}
        more = self._takes(b"{") and not self._takes(b"}")
        if not more and self._at == 0:
            raise _no_json("an object is expected")
        while more:
            name, written = self._member()
            if name in self._lists and self._takes(b"["):
                field, type_ = self._lists[name]
                lists[field] = await self._list(field, type_)
                members.append(written + b"[]")
            else:
                members.append(written + self._element(name.decode()))
            if len(members) > _MOST_MEMBERS:
                raise InvalidMessage(f"body: expected at most {_MOST_MEMBERS} fields", param="body")
            more = self._takes(b",")
            if not more and not self._takes(b"}"):
                raise _no_json(f"a comma or brace is expected at byte {self._at}")
        if self._raw[self._at : self._at + _MOST_ELEMENT].strip():
            raise _no_json(f"its end is expected at byte {self._at}")
        body = _decode(b"{" + b",".join(members) + b"}", self._shape)
        self._check(body, "")
        return msgspec.structs.replace(body, **lists)

    async def _list(self, path: str, type_: Any) -> list[Any]:
        elements: list[Any] = []
        ended = self._takes(b"]")
        while not ended:
            start, first = self._at, len(elements)
            number = first
            while True:
                self._element(f"{path}[{number}]")
                number += 1
                end = self._at
                ended = self._takes(b"]")
                if ended or self._at - start >= _AT_ONCE:
                    break
                self._comma()
            portion = _decode(b"[" + self._raw[start:end] + b"]", type_, path, first)
            for position, each in enumerate(portion, first):
                self._check(each, f"{path}[{position}]")
            elements += portion
            await asyncio.sleep(0)
            if not ended:
                self._comma()
        return elements

    def _member(self) -> tuple[bytes, bytes]:
        """Take the name of a member; return it, and how it is written, with its colon."""
        found = _MEMBER.match(self._raw, self._at, self._at + _MOST_ELEMENT)
        if found is None:
            raise _no_json(f"the name of a field is expected at byte {self._at}")
        self._at = found.end()
        return found[1], found[0]

    def _element(self, path: str) -> bytes:
        """Take a value of any kind; return it."""
        last = self._at + _MOST_ELEMENT
        found = _ELEMENT.match(self._raw, self._at, last)
        if found is not None and found.end() < last:
            self._at = found.end()
            return found[0]
        if last >= len(self._raw) and found is None:
            raise _no_json(f"a value is expected at byte {self._at}")
        if found is not None:
            raise _no_json(f"less white space is expected at byte {self._at}")
        unfinished = _UNFINISHED.match(self._raw, self._at, last)
        if unfinished is not None:
            path += f".{unfinished[1].decode()}"
        raise InvalidMessage(
            f"{path}: expected JSON of less than {_MOST_ELEMENT} bytes, with at most {_NESTED} "
            "levels below it",
            param=path,
        )

    def _takes(self, character: bytes) -> bool:
        """Pass a character if it is the next, with the white space around it."""
        found = re.compile(_SPACE + re.escape(character) + _SPACE).match(
            self._raw, self._at, self._at + _MOST_ELEMENT
        )
        if found is not None:
            self._at = found.end()
        return found is not None

    def _comma(self) -> None:
        if not self._takes(b","):
            raise _no_json(f"a comma or bracket is expected at byte {self._at}")


def _is_struct(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)
