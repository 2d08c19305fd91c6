"""Strict decoding names the field and what was expected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.errors import InvalidMessage
from foremind.gateway.decode import decode, event_id_of
from foremind.gateway.messages import DraftUpdate, MessageSend


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
    assert event_id_of('{"type": "nonsense", "event_id": "e1"}') == "e1"
    assert event_id_of('{"event_id": 4}') is None
    assert event_id_of("not json") is None


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_anything_else_is_a_typed_error(frame: str) -> None:
    """No other exception comes out of a frame."""
    with pytest.raises(InvalidMessage):
        decode(frame, 100)
