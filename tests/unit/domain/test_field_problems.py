"""Whatever is wrong in a JSON value is named, and what was expected there is said in our words."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta, inspect

from foremind.api.json_bodies import decode_json
from foremind.api.mcp_tools import TOOLS
from foremind.api.openapi import OPERATIONS
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import InvalidMessage
from foremind.domain.field_problems import json_problem, unknown_name
from foremind.domain.storable_text import check_storable


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the shape below."""

    recall_limit: int = 1


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    """A field for everything that can be wrong."""

    text: Annotated[str, Meta(min_length=1, max_length=3)]
    age: Annotated[int, Meta(ge=0, le=5)] | None = None
    mood: Literal["sunny", "grey"] = "sunny"
    flags: dict[Annotated[str, Meta(pattern="^[a-z]+$")], float] = {}
    refs: Annotated[list[int], Meta(max_length=2)] = []
    inner: dict[str, Inner] = {}
    pair: tuple[int, int] = (1, 2)
    open: bool = False
    own: Any = None


@pytest.mark.parametrize(
    ("raw", "path", "expected"),
    [
        ("{}", "text", "expected a value, it is missing"),
        ('{"text": null}', "text", "expected text, got null"),
        ('{"text": 7}', "text", "expected text, got a whole number"),
        ('{"text": ""}', "text", "expected text of at least 1 character"),
        ('{"text": "long"}', "text", "expected text of at most 3 characters"),
        ('{"text": "a", "age": "x"}', "age", "expected a whole number or null, got text"),
        ('{"text": "a", "age": 7}', "age", "expected a whole number of at most 5"),
        ('{"text": "a", "mood": "red"}', "mood", "expected grey or sunny"),
        ('{"text": "a", "flags": {"a": 1, "B": 2, "c": 3}}', "flags.B",
         "expected a name that matches ^[a-z]+$"),
        ('{"text": "a", "flags": {"a": 1, "b": 2, "c": "x"}}', "flags.c",
         "expected a number, got text"),
        ('{"text": "a", "flags": {"a": 1, "b": 1e999}}', "flags.b",
         "expected a number of double precision"),
        ('{"text": "a", "flags": {"a\\u0000": 1}}', "flags.a\ufffd",
         "expected a name that matches ^[a-z]+$"),
        ('{"text": "a", "own": {"a": [1, -1e999]}}', "own.a[1]",
         "expected a number of double precision"),
        ('{"text": "a", "refs": [1, 2, 3]}', "refs", "expected a list of at most 2 elements"),
        ('{"text": "a", "refs": [1, "x"]}', "refs[1]", "expected a whole number, got text"),
        ('{"text": "a", "pair": [1]}', "pair", "expected a list of exactly 2 elements"),
        ('{"text": "a", "open": 1}', "open", "expected true or false, got a whole number"),
        ('{"text": "a", "inner": {"x": {}, "y": {"limit": 1}}}', "inner.y.limit",
         "expected a known field; did you mean `recall_limit`?"),
        ('{"text": "a", "tekst": 1}', "tekst",
         "expected a known field; did you mean `text`?"),
        ('{"text": "a", "zzz": 1}', "zzz", "expected a known field, one of age, flags, inner, "
         "mood, open, own, pair, refs, text"),
        ("[]", "", "expected an object, got a list"),
    ],
)  # fmt: skip
def test_the_field_and_what_was_expected_are_said(raw: str, path: str, expected: str) -> None:
    """Also the member of an object, of which msgspec says only that there is one."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Shape)
    assert json_problem(raw, Shape) == (path, expected)


@pytest.mark.parametrize("wrong", range(40))
def test_the_wrong_member_is_found_among_many(wrong: int) -> None:
    """Wherever it stands."""
    flags = {chr(97 + index % 26) * (index // 26 + 1): 1.0 for index in range(40)}
    name = list(flags)[wrong]
    raw = json.dumps({"text": "a", "flags": flags | {name: []}})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Shape)
    assert json_problem(raw, Shape).path == f"flags.{name}"


def test_a_member_is_not_blamed_for_what_else_is_wrong() -> None:
    """The one that the refusal is about is named, whatever follows it."""
    raw = '{"text": "a", "flags": {"a": 1, "b": 2, "c": []}, "age": 9}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Shape)
    assert json_problem(raw, Shape).path == "flags.c"


def test_control_characters_of_a_name_are_not_repeated() -> None:
    """A terminal would obey them."""
    raw = json.dumps({"text": "a", "\x1b[2Jx": 1})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Shape)
    assert json_problem(raw, Shape).path == "\ufffd[2Jx"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temperature", "llm_temperature"), ("temprature", "llm_temperature"),
        ("max_tokens", "llm_max_tokens"), ("limit", "recall_limit"),
        ("recall_limits", "recall_limit"), ("recallLimit", "recall_limit"),
    ],
)  # fmt: skip
def test_a_name_that_may_have_been_meant_is_suggested(name: str, meant: str) -> None:
    """Whether misspelt or a part of it."""
    accepted = ["llm_temperature", "llm_max_tokens", "recall_limit", "pause_ms"]
    assert unknown_name(name, accepted, "setting") == (
        f"expected a known setting; did you mean `{meant}`?"
    )


def test_a_long_name_is_not_repeated_whole() -> None:
    raw = json.dumps({"text": "a", "x" * 50_000: 1})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Shape)
    problem = json_problem(raw, Shape)
    assert len(problem.path) + len(problem.expected) < 300


_BODIES = {
    *(operation.body for operation in OPERATIONS if hasattr(operation.body, "__struct_fields__")),
    *(tool.arguments for tool in TOOLS),
    CompanionFile,
}
_WRONG = [None, 7, -1, True, 1e300, "", "x" * 5000, [], [7], {}, {"Bad name!": 7}]
_LIBRARY_WORDS = re.compile(
    r"`\$|`(?:str|int|float|bool|array|object|uuid|datetime)\b|Object |Invalid |got `"
)
_TEXTS = ("abc", "1", "FOREMIND_LLM_KEY_A", "")


def _sample(kind: inspect.Type) -> Any:
    """Return a value of a type that has something in everything that can hold something."""
    match kind:
        case inspect.StructType(fields=fields):
            return {field.encode_name: _sample(field.type) for field in fields}
        case inspect.UnionType(types=types):
            return _sample(
                next(type_ for type_ in types if not isinstance(type_, inspect.NoneType))
            )
        case inspect.Metadata(type=inner):
            return _sample(inner)
        case inspect.DictType(key_type=names, value_type=values):
            return {_sample(names): _sample(values)}
        case (
            inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item)
            | inspect.SetType(item_type=item) | inspect.FrozenSetType(item_type=item)
        ):  # fmt: skip
            return [_sample(item)] * (getattr(kind, "min_length", None) or 1)
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.IntType(ge=least) | inspect.FloatType(ge=least):
            return least or 0
        case inspect.BoolType():
            return True
        case inspect.DateTimeType():
            return "2026-03-01T10:00:00Z"
        case inspect.UUIDType():
            return str(UUID(int=7))
        case inspect.StrType(pattern=pattern):
            return next(text for text in _TEXTS if re.search(pattern or "", text))
        case inspect.RawType():
            return None
    return {}


def _places(value: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Yield each object or list, a key or index of it, and the path of what is there."""
    steps = value.items() if isinstance(value, dict) else enumerate(value)
    for step, part in steps:
        inner = f"{path}[{step}]" if isinstance(value, list) else f"{path}.{step}".lstrip(".")
        yield value, step, inner
        if isinstance(part, dict | list):
            yield from _places(part, inner)


def _refusal(document: Any, shape: type) -> InvalidMessage | None:
    try:
        asyncio.run(decode_json(json.dumps(document).encode(), shape, check_storable))
    except InvalidMessage as error:
        return error
    return None


def _assert_says(error: InvalidMessage, path: str) -> None:
    assert error.param is not None
    assert error.param == path or error.param.startswith((f"{path}.", f"{path}[")), error.message
    assert error.message.startswith(f"{error.param}: expected "), error.message
    assert not _LIBRARY_WORDS.search(error.message), error.message


@pytest.mark.parametrize("shape", sorted(_BODIES, key=str), ids=lambda shape: shape.__name__)
def test_every_field_of_every_body_is_named_if_it_is_wrong(shape: type) -> None:
    """By HTTP and as arguments of MCP: a wrong value, a missing one, and one too many."""
    document = _sample(inspect.type_info(shape))
    assert _refusal(document, shape) is None
    for holder, step, path in list(_places(document)):
        right = holder[step]
        for wrong in _WRONG:
            holder[step] = wrong
            if error := _refusal(document, shape):
                _assert_says(error, path)
        holder[step] = right
        if isinstance(holder, dict):
            del holder[step]
            error = _refusal(document, shape)
            if error and "missing" in error.message:
                assert error.message == f"{path}: expected a value, it is missing"
            elif error:  # an object that must not be empty
                _assert_says(error, path.rpartition(".")[0])
            holder[f"{step}x"] = right
            error = _refusal(document, shape)
            if error and "missing" not in error.message:
                _assert_says(error, f"{path}x")
            del holder[f"{step}x"]
            holder[step] = right
