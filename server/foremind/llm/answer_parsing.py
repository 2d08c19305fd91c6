"""Reads what a model wrote as an answer of a given shape, and keeps all that can be used. Pure.

Models wrap JSON in prose, think before it, forget a comma, write `null` for an empty list or "4"
for 4. None of that makes an answer worthless. What had to be mended is told by codes, never by
text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from foremind.domain.errors import NOT_JSON
from foremind.llm.thinking_filter import without_thinking

Answer = TypeVar("Answer", bound=msgspec.Struct)

_MOST_CANDIDATES = 32  # places in a text that are tried
# What is no JSON is mended only where that takes little time: so many places, so long, so deep.
_MOST_REPAIRED, _MOST_REPAIRED_CHARS, _MOST_DEPTH = 4, 8_000, 12
_LEAST_PROSE = 20  # characters that stand for a text where there is no JSON
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]]')
_DEEPER = {"{": 1, "[": 1, "}": -1, "]": -1}
_OPENING = re.compile(r"[{\[]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(?=\s|$)")
_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s+")
_FENCE = re.compile(r"^\s*```\w*\s*|\s*```\s*$")


class UnparsableAnswer(Exception):
    """Nothing of a text can be used; the message tells the model what was wrong, no quotation."""


@dataclass(slots=True)
class ParsedAnswer(Generic[Answer]):
    """An answer, and how often what had to be mended in it.

    `mended` counts by code: `repaired` JSON that was none, `prose` in place of JSON, `dropped`
    values that could not be read, `too_many` and `too_long` what was cut, `out_of_range` numbers.
    """

    value: Answer
    mended: Counter[str] = field(default_factory=Counter)


def read(text: str, shape: type[Answer], *, prose: bool = False) -> ParsedAnswer[Answer]:
    """Return the answer in a text.

    Args:
        prose: take the text itself where it holds no JSON and the shape holds one text or lines.

    Raises:
        Unusable: there is none.
    """
    try:
        return _fitted(msgspec.json.decode(text.strip()), shape)
    except (*NOT_JSON, UnparsableAnswer):
        spoken = without_thinking(text)
    problem = "there was no JSON in it" if spoken.strip() else "nothing came after the thinking"
    found: list[ParsedAnswer[Answer]] = []
    candidates = list(_candidates(spoken))
    broken = []
    for candidate, whole in candidates:
        try:
            found.append(_fitted(msgspec.json.decode(candidate), shape))
        except NOT_JSON:
            broken.append((candidate, whole))
        except UnparsableAnswer as error:
            problem = str(error)
    # What was cut off holds more than what is whole within it.
    to_mend = (each for each, whole in broken if not (whole and found) and not _is_deep(each))
    for candidate in islice(to_mend, _MOST_REPAIRED):
        try:
            found.append(_fitted(_repaired(candidate), shape, repaired=True))
        except UnparsableAnswer as error:
            problem = str(error)
    if found:
        return max(reversed(found), key=_worth)
    if prose and (written := _as_prose(spoken, shape)) is not None:
        return written
    raise UnparsableAnswer(problem)


def cut_at_sentence(text: str, most: int) -> str:
    """Return a text of at most `most` characters: whole sentences, or whole words, of it."""
    if len(text) <= most:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text[:most])]
    if ends and ends[-1] >= most // 3:
        return text[: ends[-1]]
    return text[:most].rpartition(" ")[0].rstrip(" ,;:-") or text[:most]


def _fitted(value: Any, shape: type[Answer], *, repaired: bool = False) -> ParsedAnswer[Answer]:
    mended: Counter[str] = Counter(repaired=1) if repaired else Counter()
    try:
        fitted = _fit(value, _type_of(shape), "the answer", mended)
    except RecursionError:
        raise UnparsableAnswer("it is nested too deeply") from None
    if mended["dropped"] and not any(msgspec.structs.astuple(fitted)):
        raise UnparsableAnswer("no part of it has the form that was asked for")
    return ParsedAnswer(fitted, mended)


def _worth(read_: ParsedAnswer[Any]) -> int:
    """Return how much an answer tells, so that an example in the prose before it does not win."""
    return len(msgspec.json.encode(read_.value)) - 50 * read_.mended["dropped"]


def _candidates(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the places in a text where JSON may stand, and whether their brackets are closed."""
    position = 0
    for _ in range(_MOST_CANDIDATES):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        depth = 0
        end = None
        for token in _TOKEN.finditer(text, opening.start()):
            depth += _DEEPER.get(token[0], 0)
            if depth == 0:
                end = token.end()
                break
        yield text[opening.start() : end], end is not None
        position = opening.start() + 1 if end is None else end


def _is_deep(text: str) -> bool:
    depth = deepest = 0
    for token in _TOKEN.finditer(text[:_MOST_REPAIRED_CHARS]):
        depth += _DEEPER.get(token[0], 0)
        deepest = max(deepest, depth)
    return deepest > _MOST_DEPTH


def _repaired(text: str) -> Any:
    # It is needed for few answers only.
    import json_repair  # noqa: PLC0415

    try:
        return json_repair.loads(text[:_MOST_REPAIRED_CHARS], skip_json_loads=True)
    except (ValueError, RecursionError, IndexError):
        raise UnparsableAnswer("it is no JSON") from None


def _as_prose(text: str, shape: type[Answer]) -> ParsedAnswer[Answer] | None:
    """Take a text for the one text, or the lines, that a shape asks for."""
    plain = _FENCE.sub("", text).strip()
    fields = _type_of(shape).fields
    if len(plain) < _LEAST_PROSE or len(fields) != 1 or _OPENING.search(plain):
        return None
    asked_for = fields[0].type
    if isinstance(asked_for, inspect.ListType):
        asked_for = asked_for.item_type
    if not isinstance(asked_for, inspect.StrType):
        return None
    try:
        answer = _fitted({fields[0].name: plain}, shape)
    except UnparsableAnswer:
        return None
    answer.mended["prose"] += 1
    return answer


@cache
def _type_of(shape: type[msgspec.Struct]) -> inspect.StructType:
    described = inspect.type_info(shape)
    assert isinstance(described, inspect.StructType)
    return described


def _fit(value: Any, type_: inspect.Type, where: str, mended: Counter[str]) -> Any:
    fit = _FITS.get(type(type_))
    return value if fit is None else fit(value, type_, where, mended)


def _fit_struct(value: Any, type_: inspect.StructType, where: str, mended: Counter[str]) -> Any:
    given = _given(value, type_)
    if given is None:
        names = ", ".join(f"`{member.name}`" for member in type_.fields)
        raise UnparsableAnswer(f"{where} has to be an object with {names}")
    fitted = {}
    for member in type_.fields:
        present = given.get(_folded(member.name))
        if present is None and not isinstance(member.type, inspect.ListType):
            if member.required:
                raise UnparsableAnswer(f"`{member.name}` is missing")
            continue
        try:
            fitted[member.name] = _fit(present, member.type, f"`{member.name}`", mended)
        except UnparsableAnswer:
            if member.required:
                raise
            mended["dropped"] += 1
    return type_.cls(**fitted)


def _given(value: Any, type_: inspect.StructType) -> dict[str, Any] | None:
    """Return the fields that a value gives, however it is wrapped; None where it gives none."""
    names = {_folded(field.name) for field in type_.fields}
    only = type_.fields[0] if len(type_.fields) == 1 else None
    for _ in range(3):
        if isinstance(value, dict):
            folded = {_folded(str(name)): each for name, each in value.items()}
            if not folded or names & folded.keys():
                return folded
            if only is not None and isinstance(only.type, inspect.ListType):
                item = only.type.item_type
                if isinstance(item, inspect.StructType) and _gives(folded, item):
                    return {_folded(only.name): [value]}
            if len(value) != 1:
                return None
            (value,) = value.values()
        elif isinstance(value, list):
            lists = [field for field in type_.fields if isinstance(field.type, inspect.ListType)]
            if lists and lists[0] is type_.fields[0]:
                return {_folded(lists[0].name): value}
            if len(value) != 1:
                return None
            value = value[0]
        else:
            return None if only is None or not isinstance(value, str) else {
                _folded(only.name): value
            }  # fmt: skip
    return None


def _gives(folded: dict[str, Any], type_: inspect.StructType) -> bool:
    required = {_folded(field.name) for field in type_.fields if field.required}
    return required <= folded.keys()


def _fit_list(value: Any, type_: inspect.ListType, where: str, mended: Counter[str]) -> list[Any]:
    fitted = []
    problem = f"{where} is empty"
    for element in _elements(value, type_.item_type):
        try:
            fitted.append(_fit(element, type_.item_type, f"an element of {where}", mended))
        except UnparsableAnswer as error:
            mended["dropped"] += 1
            problem = str(error)
    if len(fitted) < (type_.min_length or 0):
        raise UnparsableAnswer(problem)
    if type_.max_length is not None and len(fitted) > type_.max_length:
        mended["too_many"] += len(fitted) - type_.max_length
        del fitted[type_.max_length :]
    return fitted


def _elements(value: Any, item: inspect.Type) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list):
        return [each for each in value if each is not None and each != ""]
    if isinstance(value, str):
        if not isinstance(item, inspect.StrType):
            return [value] if value.strip() else []
        lines = (_BULLET.sub("", line).strip() for line in value.splitlines())
        return [line for line in lines if line]
    if isinstance(value, dict) and value and isinstance(item, inspect.StructType):
        folded = {_folded(str(name)): each for name, each in value.items()}
        return [value] if _gives(folded, item) else list(value.values())
    return [value]


def _fit_str(value: Any, type_: inspect.StrType, where: str, mended: Counter[str]) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = "\n".join(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnparsableAnswer(f"{where} has to be a text")
    text = str(value).strip()
    if type_.min_length and not any(each.isalnum() for each in text):
        raise UnparsableAnswer(f"{where} is empty")
    if type_.max_length is not None and len(text) > type_.max_length:
        mended["too_long"] += 1
        text = cut_at_sentence(text, type_.max_length)
    return text


def _fit_int(value: Any, type_: inspect.IntType, where: str, mended: Counter[str]) -> int:
    if isinstance(value, str) and (match := _NUMBER.search(value)) is not None:
        value = float(match[0])
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 2**53:
        raise UnparsableAnswer(f"{where} has to be a number")
    number = int(value)
    least = number if type_.ge is None else max(number, type_.ge)
    bounded = least if type_.le is None else min(least, type_.le)
    mended["out_of_range"] += bounded != number
    return bounded


def _fit_literal(value: Any, type_: inspect.LiteralType, where: str, _: Counter[str]) -> Any:
    wanted = _folded(str(value))
    for each in type_.values:
        if _folded(str(each)) == wanted:
            return each
    raise UnparsableAnswer(f"{where} has to be one of {', '.join(map(str, type_.values))}")


def _fit_union(value: Any, type_: inspect.UnionType, where: str, mended: Counter[str]) -> Any:
    others = [each for each in type_.types if not isinstance(each, inspect.NoneType)]
    optional = len(others) < len(type_.types)
    if optional and (value is None or (isinstance(value, str) and not _meant(value))):
        return None
    for other in others:
        try:
            return _fit(value, other, where, mended)
        except UnparsableAnswer:
            continue
    if optional:
        mended["dropped"] += 1
        return None
    raise UnparsableAnswer(f"{where} cannot be read")


def _fit_bool(value: Any, _: inspect.BoolType, where: str, __: Counter[str]) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    meant = known.get(str(value).strip().lower())
    if meant is None:
        raise UnparsableAnswer(f"{where} has to be true or false")
    return meant


def _meant(text: str) -> bool:
    return text.strip().lower() not in ("", "null", "none", "n/a")


def _folded(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


_FITS: dict[type[inspect.Type], Callable[..., Any]] = {
    inspect.StructType: _fit_struct,
    inspect.ListType: _fit_list,
    inspect.StrType: _fit_str,
    inspect.IntType: _fit_int,
    inspect.LiteralType: _fit_literal,
    inspect.UnionType: _fit_union,
    inspect.BoolType: _fit_bool,
}
