"""Decoding large bodies in batches gives the same as decoding them at once."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.api import json_bodies
from foremind.api.json_bodies import decode_json
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


async def decode_in_batches(raw: bytes, batch_bytes: int = 0, max_element: int = 1000) -> Any:
    """Decode with these limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies, "_BATCH_BYTES", batch_bytes)
        patch.setattr(json_bodies, "_MAX_ELEMENT_BYTES", max_element)
        return await decode_json(raw, Whole, check_storable)


@given(
    _WHOLE,
    st.integers(0, 500),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.sampled_from([(",", ":"), (" ,\n", "\t: ")]),
)
def test_decoding_in_batches_equals_decoding_at_once(
    body: Whole, batch_bytes: int, indent: int | None, ascii_only: bool, separators: tuple[str, str]
) -> None:
    """For all ways to write JSON, and all batch sizes."""
    written = json.dumps(
        msgspec.to_builtins(body), indent=indent, ensure_ascii=ascii_only, separators=separators
    ).encode()
    assert asyncio.run(decode_in_batches(written, batch_bytes, 10_000)) == body


@given(_WHOLE, st.data())
def test_a_damaged_body_is_refused_or_decoded_as_at_once(body: Whole, data: st.DataObject) -> None:
    """A byte that is lost, added or changed is never ignored."""
    written = bytearray(msgspec.json.encode(body))
    position = data.draw(st.integers(0, len(written) - 1))
    replacement = data.draw(
        st.sampled_from([b"", b"x", b'"', b"[", b"}", b",", b" ", b"\\", b"\xff"])
    )
    written[position : position + data.draw(st.integers(0, 1))] = replacement
    try:
        expected = msgspec.json.decode(written, type=Whole)
    except (msgspec.DecodeError, UnicodeError):
        with pytest.raises(InvalidMessage):
            asyncio.run(decode_in_batches(bytes(written), 0, 10_000))
    else:
        assert asyncio.run(decode_in_batches(bytes(written), 0, 10_000)) == expected


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
        (b'{"name":"a","parts":[' + _GOOD + b"{}]}", "parts[3].text"),
        (b'{"name":"a","parts":7}', "parts"),
        (b'{"parts":[{"text":"a"}]}', "name"),
        (b'{"name":"a"} x', "body"),
        (b'{"name":"a","parts":[' + _GOOD, "body"),
        (b'{"name":"a","parts":[' + _GOOD + b"]}", "body"),
        (b'{"name":"a"' + b" " * 2000 + b"}", "body"),
        (b"{" + b'"name":"a",' * 200 + b'"name":"b"}', "body"),
        (b"[]", "body"),
        (b"", "body"),
    ],
)
async def test_an_error_names_the_field(body: bytes, param: str) -> None:
    """With the index of the list element."""
    with pytest.raises(InvalidMessage) as caught:
        await decode_in_batches(body, 0 if body else -1)
    assert caught.value.param == param


async def test_decoding_yields_to_the_event_loop_between_batches() -> None:
    """A large body does not block other tasks."""
    iterations = 0

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_iterations())
    body = Whole("a", [Part("b" * 100)] * 5000)
    assert await decode_json(msgspec.json.encode(body), Whole, check_storable) == body
    task.cancel()
    assert iterations > 5000 * 100 / 20_000


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"name": "a\\ud800"}', "name"),
        (b'{"name": "a", "parts": [{"text": "b"}, {"text": "\\udfff"}]}', "parts[1].text"),
        (b'{"name": "a", "\\ud800": 1}', None),
    ],
)
async def test_half_a_character_is_named_by_its_field(raw: bytes, param: str | None) -> None:
    """The rest of the body is JSON."""
    with pytest.raises(InvalidMessage, match="half of one") as caught:
        await decode_json(raw, Whole, check_storable)
    assert caught.value.param == param
