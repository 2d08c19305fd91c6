"""Fits what a model wrote as JSON to the types that were asked for. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from foremind.domain.storable_text import storable

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SENTENCE_END = re.compile(r"[.!?…؟۔][\"'”’)\]]*(?=\s|$)|[。！？]")
_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s+")


class UnparsableAnswer(Exception):
    """Nothing of a text is usable; the message tells the model why, without quoting the text."""


def cut_at_sentence(text: str, max_chars: int) -> str:
    """Return a text truncated to `max_chars` at the end of a sentence, or else of a word."""
    if len(text) <= max_chars:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text[:max_chars])]
    if ends and ends[-1] >= max_chars // 3:
        return text[: ends[-1]]
    return text[:max_chars].rpartition(" ")[0].rstrip(" ,;:-") or text[:max_chars]


@cache
def structure_of(shape: type[msgspec.Struct]) -> inspect.StructType:
    """Return the fields of a shape and their types."""
    struct_type = inspect.type_info(shape)
    assert isinstance(struct_type, inspect.StructType)
    return struct_type


def fit_type(value: Any, type_: inspect.Type, where: str, corrections: Counter[str]) -> Any:
    """Return a value as one of a type.

    Args:
        where: the value's name in messages to the model.
        corrections: counted by code, as in `ParsedAnswer`.

    Raises:
        UnparsableAnswer: it is not one, and what is required depends on it.
    """
    fit = _FITS.get(type(type_))
    return value if fit is None else fit(value, type_, where, corrections)


def _fit_struct(
    value: Any, type_: inspect.StructType, where: str, corrections: Counter[str]
) -> Any:
    given = _given_fields(value, type_)
    if given is None:
        names = ", ".join(f"`{member.name}`" for member in type_.fields)
        raise UnparsableAnswer(f"{where} has to be an object with {names}")
    fitted = {}
    for member in type_.fields:
        raw = given.get(folded(member.name))
        if raw is None and not isinstance(member.type, inspect.ListType):
            if member.required:
                raise UnparsableAnswer(f"`{member.name}` is missing")
            continue
        try:
            fitted[member.name] = fit_type(raw, member.type, f"`{member.name}`", corrections)
        except UnparsableAnswer:
            if member.required:
                raise
            corrections["dropped"] += 1
    return type_.cls(**fitted)


def _given_fields(value: Any, type_: inspect.StructType) -> dict[str, Any] | None:
    """Return the fields in a value by folded name, unwrapping it; None if there are none."""
    names = {folded(field.name) for field in type_.fields}
    only = type_.fields[0] if len(type_.fields) == 1 else None
    lists = {
        folded(field.name): field.type.item_type
        for field in type_.fields
        if isinstance(field.type, inspect.ListType)
    }
    for _ in range(3):
        if isinstance(value, dict):
            given = _folded(value)
            if not given or names & given.keys():
                return given
            if (name := _list_of(given, lists)) is not None:
                return {name: [value]}
            if len(value) != 1:
                return None
            (value,) = value.values()
        elif isinstance(value, list):
            first = folded(type_.fields[0].name)
            if first in lists:
                by_list = defaultdict[str, list[Any]](list)
                for element in value:
                    by_list[_list_of(_folded(element), lists) or first].append(element)
                return by_list
            if len(value) != 1:
                return None
            value = value[0]
        else:
            return None if only is None or not isinstance(value, str) else {
                folded(only.name): value
            }  # fmt: skip
    return None


def _folded(value: Any) -> dict[str, Any]:
    """Return the fields of an object by folded name; none of anything else."""
    fields = value.items() if isinstance(value, dict) else ()
    return {folded(str(name)): member for name, member in fields}


def _list_of(given: dict[str, Any], lists: dict[str, inspect.Type]) -> str | None:
    """Return the name of the list that an object by itself is an element of."""
    return next(
        (
            name
            for name, item in lists.items()
            if isinstance(item, inspect.StructType) and _has_required(given, item)
        ),
        None,
    )


def _has_required(given: dict[str, Any], type_: inspect.StructType) -> bool:
    required = {folded(field.name) for field in type_.fields if field.required}
    return required <= given.keys()


def _fit_list(
    value: Any, type_: inspect.ListType, where: str, corrections: Counter[str]
) -> list[Any]:
    fitted = []
    problem = f"{where} is empty"
    for element in _elements(value, type_.item_type):
        try:
            fitted.append(fit_type(element, type_.item_type, f"an element of {where}", corrections))
        except UnparsableAnswer as error:
            corrections["dropped"] += 1
            problem = str(error)
    if len(fitted) < (type_.min_length or 0):
        raise UnparsableAnswer(problem)
    if type_.max_length is not None and len(fitted) > type_.max_length:
        corrections["too_many"] += len(fitted) - type_.max_length
        del fitted[type_.max_length :]
    return fitted


def _elements(value: Any, item: inspect.Type) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list):
        return [element for element in value if element is not None and element != ""]
    if isinstance(value, str):
        if not isinstance(item, inspect.StrType):
            return [value] if value.strip() else []
        lines = (_BULLET.sub("", line).strip() for line in value.splitlines())
        return [line for line in lines if line]
    if isinstance(value, dict) and value and isinstance(item, inspect.StructType):
        given = _folded(value)
        return [value] if _has_required(given, item) else list(value.values())
    return [value]


def _fit_str(value: Any, type_: inspect.StrType, where: str, corrections: Counter[str]) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnparsableAnswer(f"{where} has to be a text")
    text = storable(str(value)).strip()  # an escape in a text may stand for what the door removes
    if not any(char.isalnum() for char in text):  # also the "…" of the form that was shown
        if type_.min_length:
            raise UnparsableAnswer(f"{where} is empty")
        return ""
    if type_.max_length is not None and len(text) > type_.max_length:
        corrections["too_long"] += 1
        text = cut_at_sentence(text, type_.max_length)
    return text


def _fit_int(value: Any, type_: inspect.IntType, where: str, corrections: Counter[str]) -> int:
    if isinstance(value, str) and (match := _NUMBER.search(value)) is not None:
        value = float(match[0])
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 2**53:
        raise UnparsableAnswer(f"{where} has to be a number")
    number = int(value)
    clamped = number if type_.ge is None else max(number, type_.ge)
    clamped = clamped if type_.le is None else min(clamped, type_.le)
    corrections["out_of_range"] += clamped != number
    return clamped


def _fit_literal(value: Any, type_: inspect.LiteralType, where: str, _: Counter[str]) -> Any:
    wanted = folded(str(value))
    for choice in type_.values:
        if folded(str(choice)) == wanted:
            return choice
    raise UnparsableAnswer(f"{where} has to be one of {', '.join(map(str, type_.values))}")


def _fit_union(value: Any, type_: inspect.UnionType, where: str, corrections: Counter[str]) -> Any:
    choices = [choice for choice in type_.types if not isinstance(choice, inspect.NoneType)]
    optional = len(choices) < len(type_.types)
    if optional and (value is None or (isinstance(value, str) and _is_null(value))):
        return None
    for choice in choices:
        try:
            return fit_type(value, choice, where, corrections)
        except UnparsableAnswer:
            continue
    if optional:
        corrections["dropped"] += 1
        return None
    raise UnparsableAnswer(f"{where} cannot be read")


def _fit_bool(value: Any, _: inspect.BoolType, where: str, __: Counter[str]) -> bool:
    spellings = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    parsed = spellings.get(str(value).strip().lower())
    if parsed is None:
        raise UnparsableAnswer(f"{where} has to be true or false")
    return parsed


def _is_null(text: str) -> bool:
    return text.strip().lower() in ("", "null", "none", "n/a")


def folded(name: str) -> str:
    """Return a name in the form in which names are compared."""
    return "".join(char for char in name.lower() if char.isalnum())


_FITS: dict[type[inspect.Type], Callable[..., Any]] = {
    inspect.StructType: _fit_struct,
    inspect.ListType: _fit_list,
    inspect.StrType: _fit_str,
    inspect.IntType: _fit_int,
    inspect.LiteralType: _fit_literal,
    inspect.UnionType: _fit_union,
    inspect.BoolType: _fit_bool,
}
