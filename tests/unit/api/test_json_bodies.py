"""Decoding of large bodies: the same as in one go, in portions."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.api import json_bodies
from foremind.api.json_bodies import decoded
from foremind.domain.errors import InvalidMessage
from foremind.domain.storable_text import check_storable


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An element of a list."""

    text: str
    refs: list[str] = []
    more: dict[str, list[int]] = {}


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body."""

    name: str
    parts: list[Part] = []
    others: list[Part] = []
    numbers: list[float] = []


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_PART = st.builds(
    Part,
    _TEXT,
    st.lists(_TEXT, max_size=4),
    st.dictionaries(_TEXT, st.lists(st.integers(0, 9), max_size=3), max_size=3),
)
_WHOLE = st.builds(
    Whole,
    _TEXT,
    st.lists(_PART, max_size=30),
    st.lists(_PART, max_size=30),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5),
)


async def in_portions(raw: bytes, portion: int = 0, element: int = 1000) -> Any:
    """Decode as if bodies of more than `portion` bytes were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies, "_AT_ONCE", portion)
        patch.setattr(json_bodies, "_MOST_ELEMENT", element)
        return await decoded(raw, Whole, check_storable)


@given(
    _WHOLE,
    st.integers(0, 500),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.sampled_from([(",", ":"), (" ,\n", "\t: ")]),
)
def test_portions_give_what_one_go_gives(
    body: Whole, portion: int, indent: int | None, ascii_only: bool, separators: tuple[str, str]
) -> None:
    """However it is written, and whatever is a portion."""
    written = json.dumps(
        msgspec.to_builtins(body), indent=indent, ensure_ascii=ascii_only, separators=separators
    ).encode()
    assert asyncio.run(in_portions(written, portion, 10_000)) == body


@given(_WHOLE, st.data())
def test_whatever_is_damaged_is_told_or_read_as_in_one_go(body: Whole, data: st.DataObject) -> None:
    """A byte that is lost, added or changed is never passed over."""
    written = bytearray(msgspec.json.encode(body))
    at = data.draw(st.integers(0, len(written) - 1))
    new = data.draw(st.sampled_from([b"", b"x", b'"', b"[", b"}", b",", b" ", b"\\", b"\xff"]))
    written[at : at + data.draw(st.integers(0, 1))] = new
    try:
        expected = msgspec.json.decode(written, type=Whole)
    except (msgspec.DecodeError, UnicodeError):
        with pytest.raises(InvalidMessage):
            asyncio.run(in_portions(bytes(written), 0, 10_000))
    else:
        assert asyncio.run(in_portions(bytes(written), 0, 10_000)) == expected


_GOOD = b'{"text":"a"},' * 3


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"name":"a","parts":[' + _GOOD + b'{"text":1}]}', "parts[3].text"),
        (b'{"name":"a","parts":[' + _GOOD + b'{"text":"\\u0000"}]}', "parts[3].text"),
        (b'{"name":"a","parts":[' + _GOOD + b'{"text":"%s"}]}' % (b"a" * 2000), "parts[3].text"),
        (
            b'{"name":"a","parts":[{"text":"b\\"{","refs":["a"%s]}]}' % (b',"a"' * 2000),
            "parts[0].refs",
        ),
        (b'{"name":"a","parts":[%s' % (b"[" * 2000), "parts[0]"),
        (b'{"name":"%s"}' % (b"a" * 2000), "name"),
        (b'{"name":"a","parts":[' + _GOOD + b"{}]}", "parts[3]"),
        (b'{"name":"a","parts":7}', "parts"),
        (b'{"parts":[{"text":"a"}]}', "body"),
        (b'{"name":"a"} x', "body"),
        (b'{"name":"a","parts":[' + _GOOD, "body"),
        (b'{"name":"a","parts":[' + _GOOD + b"]}", "body"),
        (b'{"name":"a"' + b" " * 2000 + b"}", "body"),
        (b"{" + b'"name":"a",' * 200 + b'"name":"b"}', "body"),
        (b"[]", "body"),
        (b"", "body"),
    ],
)
async def test_what_is_wrong_is_named(body: bytes, param: str) -> None:
    """By the field, with the number of its element."""
    with pytest.raises(InvalidMessage) as caught:
        await in_portions(body, 0 if body else -1)
    assert caught.value.param == param


async def test_others_work_between_portions() -> None:
    """However large the body is."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    body = Whole("a", [Part("b" * 100)] * 5000)
    assert await decoded(msgspec.json.encode(body), Whole, check_storable) == body
    task.cancel()
    assert turns > 5000 * 100 / 20_000
