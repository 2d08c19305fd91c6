"""Strict decoding names the field and what was expected."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foremind.domain.errors import InvalidMessage
from foremind.gateway.protocol.decoding import DecodingProblem, cause_in, decode, too_large
from foremind.gateway.protocol.messages import (
    MAX_ESCAPED_BYTES,
    MAX_FRAME_BYTES,
    DraftUpdate,
    MessageSend,
)


@pytest.mark.parametrize(
    ("frame", "param", "expectation"),
    [
        ({"type": "draft.update"}, "text", "missing"),
        ({"type": "draft.update", "text": 7}, "text", "str"),
        ({"type": "message.send", "text": "hi"}, "id", "missing"),
        ({"type": "message.send", "id": "", "text": "hi"}, "id", "length >= 1"),
        ({"type": "message.send", "id": "x" * 129, "text": "hi"}, "id", "length <= 128"),
        ({"type": "message.send", "id": "a\0b", "text": "hi"}, "id", "NUL"),
        ({"type": "message.send", "id": "a", "text": "x" * 101}, "text", "at most 100"),
        (
            {"type": "session.open", "companion": "wren", "user": {"id": "a"}},
            "user.name",
            "missing",
        ),
        ({"type": "session.open", "companion": "wren", "user": "ana"}, "user", "object"),
        (
            {"type": "session.open", "companion": "wren", "user": {"id": "a\0", "name": "A"}},
            "user.id",
            "NUL",
        ),
        ({"type": "draft.update", "text": "x", "event_id": 5}, "event_id", "str"),
        ({"type": "nonsense"}, "type", "version 1"),
        ({"text": "x"}, "type", "missing"),
        ({"type": 3}, "type", "str"),
    ],
)
def test_an_error_names_the_field(frame: dict[str, object], param: str, expectation: str) -> None:
    """And says what was expected there."""
    with pytest.raises(InvalidMessage) as caught:
        decode(json.dumps(frame), 100)
    assert caught.value.param == param
    assert expectation in caught.value.message


@pytest.mark.parametrize("frame", ["", "{", "hello", '{"type": "draft.update", "text": "\\ud800"}'])
def test_what_is_not_json_is_said_to_be_so(frame: str) -> None:
    """With a code of its own."""
    with pytest.raises(InvalidMessage) as caught:
        decode(frame, 100)
    assert caught.value.code == "malformed_json"


@pytest.mark.parametrize("frame", ["[]", "7", "null", '"text"'])
def test_json_that_is_no_object_is_refused(frame: str) -> None:
    """Every message is an object."""
    with pytest.raises(InvalidMessage):
        decode(frame, 100)


def test_unknown_fields_are_ignored() -> None:
    """Newer clients may send more."""
    assert decode('{"type": "draft.update", "text": "x", "mood": "sunny"}', 10) == DraftUpdate("x")
    assert decode('{"type": "message.send", "id": "a", "text": "b", "n": [1]}', 10) == MessageSend(
        "a", "b"
    )


def test_the_event_id_survives_an_error() -> None:
    """A client can tell which of its messages failed."""
    assert cause_in('{"type": "nonsense", "event_id": "e1"}') == DecodingProblem("e1")
    assert cause_in('{"event_id": 4}') == DecodingProblem()
    assert cause_in("not json") == DecodingProblem()


@pytest.mark.parametrize(
    "text", ['"text": 5', '"text": "\\ud800"', '"text": "a\\u0000b"', '"settings": 1', '"id": "m1"']
)
def test_an_error_about_a_message_names_it(text: str) -> None:
    """Whatever is wrong with it, half a character and what is missing included."""
    frame = f'{{"type": "message.send", "id": "m1", {text}}}'
    with pytest.raises(InvalidMessage):
        decode(frame, 100)
    assert cause_in(frame) == DecodingProblem(None, "m1")


@given(st.text(st.characters()) | st.text(st.characters(categories=["Cs"])) | st.integers())
def test_only_what_can_be_an_identifier_is_sent_back(value: object) -> None:
    """So that the error itself can be written, and is no larger than it must be."""
    cause = cause_in(json.dumps({"type": "message.send", "id": value, "event_id": value}))
    assert cause.event_id == cause.message_id
    assert len((cause.event_id or "").encode()) <= 4 * 128


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_anything_else_is_a_typed_error(frame: str) -> None:
    """No other exception comes out of a frame."""
    with pytest.raises(InvalidMessage):
        decode(frame, 100)


# Those that every writer of JSON may leave unescaped; backslashes are among them.
_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"])


@example("\\u", 1, False)
@given(st.text(_CHARACTERS, min_size=1, max_size=8), st.integers(-40, 40), st.booleans())
def test_a_frame_is_as_large_as_what_it_writes(piece: str, beside: int, escaped: bool) -> None:
    """Escaped or not, the limit is that of the bytes that the characters take."""
    text = piece * ((MAX_FRAME_BYTES + beside) // len(piece.encode()) + 1)
    plain = len(json.dumps(text, ensure_ascii=False).encode())
    written = json.dumps(text, ensure_ascii=escaped)
    if too_large(written):
        assert plain > MAX_FRAME_BYTES
    assert too_large(json.dumps(text, ensure_ascii=False)) == (plain > MAX_FRAME_BYTES)
    assert too_large(written) or len(written) <= MAX_ESCAPED_BYTES


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1])
@pytest.mark.parametrize("character", [" ", "x", "\\n", "\xe9"])
def test_a_frame_over_the_limit_is_too_large(character: str, size: int) -> None:
    """By a byte, whatever fills it."""
    raw = character * (size // len(character.encode()))
    raw += "x" * (size - len(raw.encode()))
    assert too_large(raw) == (size > MAX_FRAME_BYTES)
