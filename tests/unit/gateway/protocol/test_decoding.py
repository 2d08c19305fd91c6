"""Strict decoding names the field and what was expected."""

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foremind.domain.errors import (
    Conflict,
    Draining,
    ForemindError,
    Interrupted,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
    StorageFull,
    StorageUnavailable,
)
from foremind.gateway.protocol.client_messages import (
    MAX_ESCAPED_BYTES,
    MAX_FRAME_BYTES,
    ClientMessage,
    DraftUpdate,
    MessageSend,
)
from foremind.gateway.protocol.decoding import (
    ErrorCause,
    cause_in,
    decode,
    error_body,
    error_of,
    too_large,
)


@pytest.mark.parametrize(
    ("frame", "param", "expectation"),
    [
        ({"type": "draft.update"}, "text", "missing"),
        ({"type": "draft.update", "text": 7}, "text", "text, got a whole number"),
        ({"type": "message.send", "text": "hi"}, "id", "missing"),
        ({"type": "message.send", "id": "", "text": "hi"}, "id", "at least 1 character"),
        ({"type": "message.send", "id": "x" * 129, "text": "hi"}, "id", "at most 128 characters"),
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
        ({"type": "draft.update", "text": "x", "event_id": 5}, "event_id", "text or null"),
        ({"type": "nonsense"}, "type", "version 1"),
        ({"text": "x"}, "type", "missing"),
        ({"type": 3}, "type", "text"),
    ],
)
def test_an_error_names_the_field(frame: dict[str, object], param: str, expectation: str) -> None:
    """And says what was expected there."""
    with pytest.raises(InvalidMessage) as caught:
        decode(json.dumps(frame), 100)
    assert caught.value.param == param
    assert expectation in caught.value.message


@pytest.mark.parametrize("frame", ["", "{", "hello", '{"type": "draft.update", "text": NaN}'])
def test_what_is_not_json_is_said_to_be_so(frame: str) -> None:
    """With a code of its own."""
    with pytest.raises(InvalidMessage) as caught:
        decode(frame, 100)
    assert caught.value.code == "malformed_json"


# One frame of each type, with all of its fields.
_FRAMES: list[dict[str, Any]] = [
    {
        "type": "session.open", "companion": "wren", "token": "t",
        "user": {"id": "ana", "name": "Ana"}, "time_zone": "Europe/Lisbon", "language": "pt",
        "consent": True, "resume": {"session_id": "s", "seq": 1}, "follow": True,
        "redirected": False, "greeting": 1, "contexts": False, "sentences": True,
        "world": "vale", "scene": "tavern", "event_id": "e1",
    },
    {
        "type": "session.update", "token": "t",
        "state": {"task": "sailing", "flags": {"storm": True, "knots": 9}}, "contexts": False,
        "sentences": True, "event_id": "e1",
    },
    {
        "type": "draft.update",
        "text": "Hello",
        "to": "jon",
        "volume": "whisper",
        "event_id": "e1",
    },
    {"type": "draft.clear", "event_id": "e1"},
    {
        "type": "message.send", "id": "m1", "text": "Hello", "settings": {"max_tokens": 9},
        "remember": False, "to": "mara", "volume": "say", "event_id": "e1",
    },
    {
        "type": "message.edit", "id": "m2", "message_id": "m1", "text": "Hi",
        "settings": {"max_tokens": 9}, "remember": False, "event_id": "e1",
    },
    {
        "type": "response.regenerate", "id": "g1", "message_id": "m2",
        "settings": {"max_tokens": 9}, "event_id": "e1",
    },
    {"type": "response.choose", "message_id": "m2", "index": 1, "event_id": "e1"},
    {"type": "response.cancel", "response_id": "r1", "event_id": "e1"},
    {"type": "action.result", "id": "m1>mara#0", "result": "taken", "event_id": "e1"},
]  # fmt: skip
_HUGE = "1" + 400 * "0"
_WRONG = ["7", "true", "{}", "[]", '"\\ud800"', '"a\\u0000b"', '{"\\udc00": 1}', _HUGE, "-1e999"]
# Values of a setting are checked with all settings, where a turn's are known.
_CHECKED_LATER = ("settings.max_tokens",)


def _fields(frame: dict[str, Any], path: str = "") -> list[tuple[str, object]]:
    fields: list[tuple[str, object]] = []
    for name, value in frame.items():
        fields.append((f"{path}{name}", value))
        fields += _fields(value, f"{path}{name}.") if isinstance(value, dict) else []
    return fields


def _accepts(path: str, wrong: str) -> bool:
    """Whether a value that is wrong nearly everywhere is right in this field."""
    if path in _CHECKED_LATER:
        return "ud" not in wrong
    if path in ("state", "state.flags", "settings") and wrong == "{}":
        return True
    if path == "result":  # of any shape
        return not any(bad in wrong for bad in ("ud", "u0000", "1e999"))
    if path == "to" and wrong == "[]":
        return True
    if path.startswith("state.flags."):
        return wrong in ("7", "true")
    if path in ("greeting", "index"):
        return wrong == "7"
    if path.startswith(("time_zone", "language", "resume")):  # hints, which are read later
        return True
    booleans = ("consent", "contexts", "follow", "redirected", "remember", "sentences")
    return path in booleans and wrong == "true"


def test_the_frames_have_every_field() -> None:
    """So that the next test leaves none out."""
    for message, frame in zip(get_args(ClientMessage), _FRAMES, strict=True):
        assert {*message.__struct_fields__, "type"} == set(frame)
        decode(json.dumps(frame), 100)


@pytest.mark.parametrize("wrong", _WRONG, ids=lambda wrong: wrong[:12])
@pytest.mark.parametrize(
    ("frame", "path"), [(frame, path) for frame in _FRAMES for path, _ in _fields(frame)]
)
def test_every_field_of_every_frame_refuses_what_is_wrong(
    frame: dict[str, Any], path: str, wrong: str
) -> None:
    """By its name, and with what was expected."""
    changed = json.loads(json.dumps(frame))
    *parents, name = path.split(".")
    part = changed
    for parent in parents:
        part = part[parent]
    part[name] = "HERE"
    raw = json.dumps(changed).replace('"HERE"', wrong)
    if _accepts(path, wrong):
        decode(raw, 100)
        return
    with pytest.raises(InvalidMessage) as caught:
        decode(raw, 100)
    if path == "user" and wrong == "{}":  # what is missing there is named
        path += ".id"
    assert caught.value.param == path
    assert re.match(rf"{re.escape(path)}: .*[Ee]xpected ", caught.value.message)
    assert len(caught.value.message) < 300
    assert caught.value.code == ("unknown_type" if path == "type" else "invalid_message") or (
        path == "type" and "half" in caught.value.message
    )


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ('{"type": "draft.update", "text": "x", "\\ud800": 1}', None),
        ('{"type": "draft.update", "text": "x", "mood": ["y", "\\ud800"]}', "mood[1]"),
        ('{"a": ' * 900 + '"\\ud800"' + "}" * 900, ("a." * 100)),
    ],
)
def test_half_a_character_is_found_anywhere(frame: str, param: str | None) -> None:
    """In the name of a field, in a field that is not known, and however deep."""
    with pytest.raises(InvalidMessage, match="half of one") as caught:
        decode(frame, 100)
    assert caught.value.param == param


def test_an_unknown_type_is_not_sent_back_whole() -> None:
    """An error is short, however long what it is about."""
    with pytest.raises(InvalidMessage) as caught:
        decode(json.dumps({"type": "x" * 60_000}), 100)
    assert len(caught.value.message) < 300


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
    assert cause_in('{"type": "nonsense", "event_id": "e1"}') == ErrorCause("e1")
    assert cause_in('{"event_id": 4}') == ErrorCause()
    assert cause_in("not json") == ErrorCause()


@pytest.mark.parametrize(
    "text", ['"text": 5', '"text": "\\ud800"', '"text": "a\\u0000b"', '"settings": 1', '"id": "m1"']
)
def test_an_error_about_a_message_names_it(text: str) -> None:
    """Whatever is wrong with it, half a character and what is missing included."""
    frame = f'{{"type": "message.send", "id": "m1", {text}}}'
    with pytest.raises(InvalidMessage):
        decode(frame, 100)
    assert cause_in(frame) == ErrorCause(None, "m1")


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


@pytest.mark.parametrize(
    "kind",
    [
        Conflict,
        Draining,
        Interrupted,
        InvalidMessage,
        NotAllowed,
        NotAuthenticated,
        NotFound,
        Overloaded,
        StorageFull,
        StorageUnavailable,
    ],
)
def test_an_error_of_a_session_is_the_same_over_http(kind: type[ForemindError]) -> None:
    """Its status depends on its class."""
    error = error_of(error_body(kind("text: expected room", param="text"), ErrorCause()))
    assert (type(error), error.message, error.param) == (kind, "text: expected room", "text")
