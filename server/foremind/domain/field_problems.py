"""Says in plain words which field of a JSON value is wrong, and what was expected there. Pure.

msgspec tells what is wrong in an English sentence only. So a value that it has refused is compared
with its shape once more, here and nowhere else.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import inspect

from foremind.domain.errors import NOT_JSON
from foremind.domain.storable_text import LONE_SURROGATE
from foremind.domain.user import HINTS

Raw = TypeVar("Raw", str, bytes)
Decoded = TypeVar("Decoded")

ANOTHER_VALUE = "expected another value"
MAX_NAME_CHARS = 64  # of a name or value that an error repeats
_MAX_SEARCHED_BYTES = 65_536  # of a value in which broken hints are looked for
_MAX_DIGITS = 400  # of a whole number; with more it is beyond double precision
_SIMILARITY = 0.6  # of a name that may have been meant, as difflib measures it
_MAX_SUGGESTIONS = 3

_NAMES: dict[type, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false",
    type(None): "null", list: "a list", tuple: "a list", dict: "an object",
}  # fmt: skip
_DOUBLE_PRECISION = "expected a number of double precision"


class FieldProblem(NamedTuple):
    """A wrong field by its path, which is empty for the whole value; and what was expected."""

    path: str
    expected: str


def decode_leniently(raw: Raw, decode: Callable[[Raw | bytes], Decoded]) -> Decoded:
    """Decode JSON. Whole numbers may be written as 9.0: some runtimes have no others.

    A hint with half a character (a lone surrogate) or an infinite number counts as an empty one.

    Raises:
        msgspec.DecodeError: as `decode` raises it.
    """
    try:
        return decode(raw)
    except msgspec.ValidationError as error:
        try:
            lenient = msgspec.json.encode(json.loads(raw, parse_float=whole_number))
        except OverflowError:
            if (repaired := _without_broken_hints(raw)) is None:
                raise error from None
            return decode_leniently(repaired, decode)
        except (ValueError, *NOT_JSON):
            raise error from None
        return decode(lenient)
    except msgspec.DecodeError:
        if (repaired := _without_broken_hints(raw)) is None:
            raise
    return decode_leniently(repaired, decode)


def _without_broken_hints(raw: str | bytes) -> bytes | None:
    """Return an object with empty text in place of each hint that is no JSON; None without one.

    None, too, if anything else is wrong with it.
    """
    if len(raw) > _MAX_SEARCHED_BYTES:
        return None
    try:
        members = json.loads(raw)  # unlike msgspec, accepts lone surrogates and infinite numbers
        broken = [name for name in HINTS & members.keys() if _is_broken(members[name])]
        return msgspec.json.encode(members | dict.fromkeys(broken, "")) if broken else None
    except (AttributeError, ValueError, RecursionError):
        return None


def _is_broken(value: object) -> bool:
    try:
        return bool(LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False, allow_nan=False)))
    except ValueError:
        return True


def whole_number(digits: str) -> int | float:
    """Return a number, as a whole one if it is one.

    Raises:
        OverflowError: it is infinite.
    """
    number = float(digits)
    whole = int(number)
    return whole if whole == number else number


def json_problem(raw: str | bytes, shape: Any) -> FieldProblem:
    """Return what is wrong with JSON that could not be decoded as a shape."""
    try:
        document = json.loads(raw, parse_float=_number, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        return FieldProblem("", f"expected JSON: {error}")
    return field_problem(document, shape)


def field_problem(value: Any, shape: Any) -> FieldProblem:
    """Return the first thing that is wrong with a value that was refused as a shape."""
    return find_problem(value, shape) or FieldProblem("", ANOTHER_VALUE)


def find_problem(value: Any, shape: Any) -> FieldProblem | None:
    """Return the first thing that is wrong with a value of a shape; None if it fits."""
    problem = next(_problems(value, _kind_of(shape), ()), None)
    if problem is None:
        return None
    steps, expected = problem
    parts = (f"[{step}]" if isinstance(step, int) else f".{printable(step)}" for step in steps)
    return FieldProblem("".join(parts).removeprefix("."), expected)


def unknown_name(name: str, accepted: Iterable[str], noun: str) -> str:
    """Say that a name is unknown: which one may have been meant, or else which are accepted."""
    names = sorted(accepted)
    close = get_close_matches(name, names, _MAX_SUGGESTIONS, _SIMILARITY)
    longer = [known for known in names if name in known.split("_") or f"_{name}" in known]
    if meant := list(dict.fromkeys([*close, *longer]))[:_MAX_SUGGESTIONS]:
        return f"expected a known {noun}; did you mean {listed([f'`{known}`' for known in meant])}?"
    return f"expected a known {noun}, one of {', '.join(names)}" if names else "expected no fields"


def printable(name: str) -> str:
    """Return a name that somebody sent, fit for an error: short, without control characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in name[:MAX_NAME_CHARS])


def listed(alternatives: Iterable[str]) -> str:
    """Join alternatives: "a, b or c"."""
    *others, last = alternatives
    return f"{', '.join(others)} or {last}" if others else last


Steps = tuple[str | int, ...]
_Problem = tuple[Steps, str]


def _number(digits: str) -> float:
    try:
        return whole_number(digits)
    except OverflowError:
        return math.inf


def _whole(digits: str) -> float:
    return int(digits) if len(digits) < _MAX_DIGITS else math.inf


@cache
def _kind_of(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _problems(  # noqa: PLR0912 one case for each kind
    value: Any, kind: inspect.Type, at: Steps, noun: str | None = None
) -> Iterator[_Problem]:
    """Yield what is wrong with a value and everything in it, in order.

    Args:
        noun: what to call the value, if not by its type.
    """
    kinds = list(alternatives(kind))
    if any(isinstance(kind, inspect.AnyType | inspect.RawType) for kind in kinds):
        if not any(isinstance(kind, inspect.RawType) for kind in kinds):
            yield from _infinite_numbers(value, at)
        return
    if isinstance(value, float) and not math.isfinite(value):
        yield at, _DOUBLE_PRECISION
        return
    fitting = [option for option in kinds if _may_be(value, option)]
    if not fitting:
        names = dict.fromkeys(_NAMES[type_] for kind in kinds for type_ in _types(kind)[:1])
        got = _NAMES.get(type(value), "another value")
        yield at, f"expected {noun or listed(names)}, got {got}"
        return
    match fitting[0]:
        case inspect.LiteralType():
            choices = [choice for kind in fitting for choice in _choices(kind)]
            if value not in choices:
                yield at, f"expected {listed(str(choice) for choice in sorted(choices))}"
        case inspect.StrType() | inspect.IntType() | inspect.FloatType() as scalar:
            if wrong := _wrong_scalar(value, scalar, noun or _NAMES[_types(scalar)[0]]):
                yield at, f"expected {_own_words(kind) or wrong}"
        case inspect.DateTimeType() | inspect.UUIDType() as special:
            if wrong := _wrong_special(value, special):
                yield at, f"expected {wrong}"
        case inspect.StructType():
            yield from _problems_of_struct(value, fitting, at)
        case inspect.DictType(key_type=key, value_type=of_member) as mapping:
            if wrong := _wrong_length(value, mapping, "an object", "member"):
                yield at, f"expected {wrong}"
            for name, member in value.items():
                inner = (*at, name)
                yield from _problems(name, key, inner, "a name")
                yield from _problems(member, of_member, inner)
        case inspect.TupleType(item_types=items):
            if len(value) != len(items):
                yield at, f"expected a list of exactly {_counted(len(items), 'element')}"
            for index, item in enumerate(items[: len(value)]):
                yield from _problems(value[index], item, (*at, index))
        case inspect.CollectionType(item_type=item) as collection:
            if wrong := _wrong_length(value, collection, "a list", "element"):
                yield at, f"expected {wrong}"
            for index, element in enumerate(value):
                yield from _problems(element, item, (*at, index))


def _infinite_numbers(value: Any, at: Steps) -> Iterator[_Problem]:
    """Yield the numbers in a value of any shape that are too large."""
    if isinstance(value, float) and not math.isfinite(value):
        yield at, _DOUBLE_PRECISION
    members = value.items() if isinstance(value, dict) else ()
    elements = enumerate(value) if isinstance(value, list) else ()
    for name, inner in (*members, *elements):
        yield from _infinite_numbers(inner, (*at, name))


def _problems_of_struct(
    value: Mapping[str, Any], kinds: list[Any], at: Steps
) -> Iterator[_Problem]:
    """Yield what is wrong with an object, which is one of several if a tag says which."""
    (struct, *others) = kinds
    if others:
        tag = value.get(struct.tag_field)
        tagged = [kind for kind in kinds if kind.tag == tag]
        if not tagged:
            missing = struct.tag_field not in value
            wrong = "expected a value, it is missing" if missing else ANOTHER_VALUE
            if not missing and not isinstance(tag, str):
                wrong = f"expected text, got {_NAMES[type(tag)]}"
            yield (*at, struct.tag_field), wrong
            return
        struct = tagged[0]
    fields = {field.encode_name: field for field in struct.fields}
    for name, member in value.items():
        inner = (*at, name)
        if name in fields:
            yield from _problems(member, fields[name].type, inner)
        elif struct.forbid_unknown_fields and name != struct.tag_field:
            yield inner, unknown_name(printable(name), fields, "field")
    for name, field in fields.items():
        if field.required and name not in value:
            yield (*at, name), "expected a value, it is missing"


def _wrong_scalar(value: Any, kind: Any, noun: str) -> str | None:
    """Say what a text or number should have been, if it is out of bounds."""
    if isinstance(kind, inspect.StrType):
        if too_long := _wrong_length(value, kind, noun, "character"):
            return too_long
        if kind.pattern is not None and not re.search(kind.pattern, value):
            return f"{noun} that matches {kind.pattern}"
        return None
    if kind.ge is not None and value < kind.ge:
        return f"{noun} of at least {kind.ge}"
    if kind.le is not None and value > kind.le:
        return f"{noun} of at most {kind.le}"
    if kind.gt is not None and value <= kind.gt:
        return f"{noun}, more than {kind.gt}"
    if kind.lt is not None and value >= kind.lt:
        return f"{noun}, less than {kind.lt}"
    return None if -(2**63) <= value < 2**64 or isinstance(value, float) else _DOUBLE_PRECISION


def _own_words(kind: inspect.Type) -> str | None:
    """Return what the shape itself says was expected, in its `Meta(extra={"expected": ...})`."""
    match kind:
        case inspect.Metadata(extra={"expected": str(words)}):
            return words
        case inspect.Metadata(type=inner):
            return _own_words(inner)
        case inspect.UnionType(types=types):
            return next(filter(None, map(_own_words, types)), None)
    return None


def _wrong_special(value: str, kind: inspect.Type) -> str | None:
    is_time = isinstance(kind, inspect.DateTimeType)
    try:
        msgspec.convert(value, datetime if is_time else UUID)
    except msgspec.ValidationError:
        return "a date and time as in 2026-03-01T10:00:00Z" if is_time else "a UUID"
    return None


def _wrong_length(value: Any, kind: Any, noun: str, unit: str) -> str | None:
    if kind.min_length is not None and len(value) < kind.min_length:
        return f"{noun} of at least {_counted(kind.min_length, unit)}"
    if kind.max_length is not None and len(value) > kind.max_length:
        return f"{noun} of at most {_counted(kind.max_length, unit)}"
    return None


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    match kind:
        case inspect.UnionType(types=types):
            for inner in types:
                yield from alternatives(inner)
        case inspect.Metadata(type=inner):
            yield from alternatives(inner)
        case _:
            yield kind


def _may_be(value: object, kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.CustomType) and isinstance(value, kind.cls):
        return True
    return type(value) in _types(kind)


def _types(kind: inspect.Type) -> tuple[type, ...]:
    """Return the types that a parsed value of a kind may have; the first names it."""
    match kind:
        case inspect.LiteralType(values=values):
            return tuple({type(value) for value in values})
        case inspect.IntType():
            return (int,)
        case inspect.FloatType():
            return (float, int)
        case inspect.BoolType():
            return (bool,)
        case inspect.NoneType():
            return (type(None),)
        case inspect.StructType() | inspect.DictType():
            return (dict,)
        case inspect.CollectionType() | inspect.TupleType():
            return (list, tuple, set, frozenset)
    return (str,)  # of the rest: dates, UUIDs, paths and secrets, too


def _choices(kind: inspect.Type) -> tuple[Any, ...]:
    return kind.values if isinstance(kind, inspect.LiteralType) else ()
