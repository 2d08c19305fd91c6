"""Says in plain words which field of a JSON value is wrong, and what was expected there. Pure.

msgspec refuses a value with a message of its own, such as "Object contains unknown field `tekst`".
That is all it tells, so its messages are read here, and nowhere else.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from foremind.domain.errors import NOT_JSON
from foremind.domain.hints import HINTS
from foremind.domain.storable_text import LONE_SURROGATE

Raw = TypeVar("Raw", str, bytes)
Decoded = TypeVar("Decoded")

ANOTHER_VALUE = "expected another value"
MAX_NAME_CHARS = 64  # of a name or value that an error repeats
_MAX_SEARCHED_BYTES = 65_536  # of a value in which the wrong member of an object is looked for
_SIMILARITY = 0.6  # of a name that may have been meant, as difflib measures it
_MAX_SUGGESTIONS = 3

_MEMBER = "[...]"  # some member of an object: msgspec does not say which
_PLACE = re.compile(r" - at (`key` in )?`\$([^`]*)`$")
_STEP = re.compile(r"\.?([^.\[\]]+)|(\[\.\.\.\])|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_KIND = re.compile(r"Expected `([^`]+)`(?:, got `(\w+)`| (.+))?$", re.DOTALL)
_BOUND = re.compile(r"(?:of length )?(<=|>=|<|>)? ?(-?[\d.e+]+)$")
_PATTERN = re.compile(r"matching regex '(.*)'$", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value")
_KINDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "null": "null", "array": "a list", "object": "an object", "uuid": "a UUID",
    "datetime": "a date and time", "bytes": "text in base64",
}  # fmt: skip
_FORMATS = {
    "Invalid RFC3339": "a date and time as in 2026-03-01T10:00:00Z",
    "Invalid UUID": "a UUID",
    "Invalid base64": "text in base64",
}
_UNITS = {"str": "character", "array": "element", "object": "member"}
_BOUNDS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than", None: "exactly"}


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
        if "got `float`" in str(error):
            try:
                return decode(msgspec.json.encode(json.loads(raw, parse_float=whole_number)))
            except (OverflowError, *NOT_JSON):
                raise error from None
        if "out of range" not in str(error) or (repaired := _without_broken_hints(raw)) is None:
            raise
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


def field_problem(
    error: msgspec.ValidationError, shape: Any, raw: str | bytes = b""
) -> FieldProblem:
    """Return what is wrong with a value that could not be decoded as a shape.

    Args:
        raw: the value as JSON, which tells the wrong member of an object.
    """
    reason = str(error)
    place = _PLACE.search(reason)
    steps = _steps(place[2]) if place else []
    if place and place[1]:
        steps.append(_MEMBER)
    if _MEMBER in steps:
        steps = _with_members_named(steps, shape, raw, reason)
    reason = _PLACE.sub("", reason)
    if missing := _MISSING.match(reason):
        return FieldProblem(_path([*steps, missing[1]]), "expected a value, it is missing")
    kinds = _kinds_at(shape, steps)
    if unknown := _UNKNOWN.match(reason):
        name = printable(unknown[1])
        return FieldProblem(_path([*steps, name]), unknown_name(name, _field_names(kinds), "field"))
    if _VALUE.match(reason):
        accepted = _accepted_values(kinds)
        return FieldProblem(
            _path(steps), f"expected {listed(accepted)}" if accepted else ANOTHER_VALUE
        )
    return FieldProblem(_path(steps), _expected(reason, of_name=bool(place and place[1])))


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


def _expected(reason: str, *, of_name: bool) -> str:
    """Translate what msgspec expected; what it does not say in a known form is kept."""
    if reason.startswith(("Number out of range", "Integer value out of range")):
        return "expected a number of double precision"
    for beginning, format_ in _FORMATS.items():
        if reason.startswith(beginning):
            return f"expected {format_}"
    match = _KIND.match(reason)
    if match is None:
        return f"expected another value: {reason[:200]}"
    kinds, got, limit = match.groups()
    names = [_KINDS.get(kind, kind) for kind in kinds.split(" | ")]
    if got is not None:
        return f"expected {listed(names)}, got {_KINDS.get(got, got)}"
    noun = "a name" if of_name else listed(names)
    if pattern := _PATTERN.match(limit or ""):
        return f"expected {noun} that matches {pattern[1]}"
    bound = _BOUND.match(limit or "")
    if bound is None:
        return f"expected {noun}" + (f" {limit}" if limit else "")
    amount = f"{_BOUNDS[bound[1]]} {bound[2]}"
    unit = _UNITS.get(kinds)
    if unit is None:
        return f"expected {noun} of {amount}" if "at" in amount else f"expected {noun}, {amount}"
    return f"expected {noun} of {amount} {unit}{'' if bound[2] == '1' else 's'}"


def _steps(path: str) -> list[str | int]:
    return [
        name or (_MEMBER if member else int(index)) for name, member, index in _STEP.findall(path)
    ]


def _path(steps: Iterable[str | int]) -> str:
    parts = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    path = "".join(parts).replace(f".{_MEMBER}", _MEMBER)
    return path.removesuffix(_MEMBER).removeprefix(".")


def _with_members_named(
    steps: list[str | int], shape: Any, raw: str | bytes, reason: str
) -> list[str | int]:
    """Return a path whose members of objects are named, as far as they can be found."""
    if not 0 < len(raw) <= _MAX_SEARCHED_BYTES:
        return steps
    named = list(steps)
    try:
        document = json.loads(raw, parse_int=lambda digits: int(digits[:20]))  # beyond any limit
        while _MEMBER in named:
            position = named.index(_MEMBER)
            members = document
            for step in named[:position]:
                members = members[step]
            named[position] = printable(_wrong_member(members, document, shape, reason))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return steps
    return named


def _wrong_member(members: dict[str, Any], document: Any, shape: Any, reason: str) -> str:
    """Return the name of a member refused for this reason, by halving what the object holds."""
    for name, value in members.items():
        if isinstance(value, float) and math.isinf(value):
            return name
    rest = dict(members)
    while len(rest) > 1:
        names = list(rest)
        half = {name: rest[name] for name in names[: len(names) // 2]}
        members.clear()
        members.update(half)
        rest = half if _refusal(document, shape) == reason else _without(rest, half)
    members.clear()
    members.update(rest)
    return next(iter(rest))


def _without(members: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in others}


def _refusal(document: Any, shape: Any) -> str | None:
    try:
        msgspec.json.decode(json.dumps(document), type=shape)
    except msgspec.ValidationError as error:
        return str(error)
    return None


@cache
def _kind_of(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _kinds_at(shape: Any, steps: Iterable[str | int]) -> list[inspect.Type]:
    """Return the types that the value at a path may have."""
    kinds = _alternatives([_kind_of(shape)])
    for step in steps:
        kinds = _alternatives([inner for kind in kinds for inner in _inside(kind, step)])
    return kinds


def _inside(kind: inspect.Type, step: str | int) -> list[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields):
            return [field.type for field in fields if field.encode_name == step]
        case inspect.DictType(key_type=names, value_type=values):
            return [values, names]
        case inspect.TupleType(item_types=items) if isinstance(step, int):
            return list(items[step : step + 1])
        case (
            inspect.ListType(item_type=item)
            | inspect.VarTupleType(item_type=item)
            | inspect.SetType(item_type=item)
            | inspect.FrozenSetType(item_type=item)
        ):
            return [item]
    return []


def _alternatives(kinds: Iterable[inspect.Type]) -> list[inspect.Type]:
    found: list[inspect.Type] = []
    for kind in kinds:
        match kind:
            case inspect.UnionType(types=types):
                found += _alternatives(types)
            case inspect.Metadata(type=inner):
                found += _alternatives([inner])
            case _:
                found.append(kind)
    return found


def _field_names(kinds: Iterable[inspect.Type]) -> list[str]:
    return [
        field.encode_name
        for kind in kinds
        if isinstance(kind, inspect.StructType)
        for field in kind.fields
    ]


def _accepted_values(kinds: Iterable[inspect.Type]) -> list[str]:
    return [
        str(value)
        for kind in kinds
        if isinstance(kind, inspect.LiteralType)
        for value in kind.values
    ]
