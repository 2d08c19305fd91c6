"""Parses and fits a language model's answer to the shape that was asked for. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from foremind.domain.errors import NOT_JSON
from foremind.domain.storable_text import storable
from foremind.llm.thinking_filter import without_thinking

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


Answer = TypeVar("Answer", bound=msgspec.Struct)

_MAX_CANDIDATES = 32  # positions in a text where JSON is looked for
# Limits of repairing malformed JSON, which is slow: candidates, characters and depth of nesting.
_MAX_REPAIRED, _MAX_REPAIRED_CHARS, _MAX_DEPTH = 4, 8_000, 12
_MIN_PROSE_CHARS = 20  # that are accepted as a text where there is no JSON
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]]')
_DEPTH_CHANGE = {"{": 1, "[": 1, "}": -1, "]": -1}
_OPENING = re.compile(r"[{\[]")
_KEY = re.compile(r"(\w[\w \-]{0,40})[\"'”]?\s*:")
_FENCE = re.compile(r"^\s*```\w*\s*|\s*```\s*$")


@dataclass(slots=True)
class ParsedAnswer(Generic[Answer]):
    """An answer, and the corrections that it needed.

    `corrections` counts by code: `repaired` malformed JSON, `prose` in place of JSON, `dropped`
    unparsable values, `too_many` and `too_long` what was truncated, `out_of_range` numbers.
    """

    value: Answer
    corrections: Counter[str] = field(default_factory=Counter)


def parse_answer(text: str, shape: type[Answer], *, prose: bool = False) -> ParsedAnswer[Answer]:
    """Return the answer in a text.

    Args:
        prose: accept the text itself if it contains no JSON and the shape has one field, a text or
            lines.

    Raises:
        UnparsableAnswer: there is none.
    """
    try:
        return _fitted(msgspec.json.decode(text.strip()), shape)
    except (*NOT_JSON, UnparsableAnswer):
        reply = without_thinking(text)
    problem = "there was no JSON in it" if reply.strip() else "nothing came after the thinking"
    answers: list[ParsedAnswer[Answer]] = []
    malformed = []
    for candidate in _candidates(reply):
        if not _may_be_answer(candidate, reply, shape):
            continue
        try:
            answers.append(_fitted(msgspec.json.decode(candidate), shape))
        except NOT_JSON:
            malformed.append(candidate)
        except UnparsableAnswer as error:
            problem = str(error)
    # Also next to well-formed ones, which may be examples or parts of a truncated one.
    repairable = (candidate for candidate in malformed if not _is_deep(candidate))
    for candidate in islice(repairable, _MAX_REPAIRED):
        try:
            answers.append(_fitted(_repaired(candidate), shape, repaired=True))
        except UnparsableAnswer as error:
            problem = str(error)
    if answers:
        return _joined(sorted(answers, key=_information)[::-1])
    if (number := _as_number(reply, shape)) is not None:
        return number
    if prose and (answer := _as_prose(reply, shape)) is not None:
        return answer
    raise UnparsableAnswer(problem)


def _fitted(value: Any, shape: type[Answer], *, repaired: bool = False) -> ParsedAnswer[Answer]:
    corrections: Counter[str] = Counter(repaired=1) if repaired else Counter()
    try:
        fitted = fit_type(value, structure_of(shape), "the answer", corrections)
    except RecursionError:
        raise UnparsableAnswer("it is nested too deeply") from None
    if corrections["dropped"] and not any(msgspec.structs.astuple(fitted)):
        raise UnparsableAnswer("no part of it has the form that was asked for")
    return ParsedAnswer(fitted, corrections)


def _joined(answers: Sequence[ParsedAnswer[Answer]]) -> ParsedAnswer[Answer]:
    """Return the first answer; what it has nothing of is that of the first other that has some."""
    best = answers[0]
    for other in answers[1:]:
        given = msgspec.structs.asdict(other.value).items()
        missing = {name: part for name, part in given if part and not getattr(best.value, name)}
        best.value = msgspec.structs.replace(best.value, **missing)
    return best


def _information(answer: ParsedAnswer[Any]) -> int:
    """Score how much an answer contains, so that an example in the prose before it does not win."""
    return len(msgspec.json.encode(answer.value)) - 50 * answer.corrections["dropped"]


def _candidates(text: str) -> Iterator[str]:
    """Yield the substrings that may be JSON, to the end of the text if brackets stay open."""
    position = 0
    for _ in range(_MAX_CANDIDATES):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        depth = 0
        end = None
        for token in _TOKEN.finditer(text, opening.start()):
            depth += _DEPTH_CHANGE.get(token[0], 0)
            if depth == 0:
                end = token.end()
                break
        yield text[opening.start() : end]
        position = opening.start() + 1 if end is None else end


def _may_be_answer(candidate: str, reply: str, shape: type[msgspec.Struct]) -> bool:
    """Return whether brackets enclose an answer rather than a remark, such as "[1]" or "{sic}".

    An answer names a field, or is empty, or is most of the reply.
    """
    if _names_field(candidate, shape) or not any(map(str.isalnum, candidate)):
        return True
    return len(candidate) >= max(_MIN_PROSE_CHARS, len(reply) / 2)


def _names_field(text: str, shape: type[msgspec.Struct]) -> bool:
    names = _field_names(shape)
    return any(folded(match[1]) in names for match in _KEY.finditer(text))


@cache
def _field_names(shape: type[msgspec.Struct]) -> frozenset[str]:
    """Return the folded names of a shape's fields and of those of its elements."""
    names: set[str] = set()
    for member in structure_of(shape).fields:
        names.add(folded(member.name))
        item = member.type.item_type if isinstance(member.type, inspect.ListType) else member.type
        if isinstance(item, inspect.StructType):
            names |= _field_names(item.cls)
    return frozenset(names)


def mended_json(text: str) -> Any:
    """Return the value of JSON as models write it, mended where needed.

    Raises:
        UnparsableAnswer: it cannot be mended.
    """
    try:
        return msgspec.json.decode(text)
    except NOT_JSON:
        if _is_deep(text):
            raise UnparsableAnswer("it is nested too deeply") from None
        return _repaired(text)


def _is_deep(text: str) -> bool:
    depth = deepest = 0
    for token in _TOKEN.finditer(text[:_MAX_REPAIRED_CHARS]):
        depth += _DEPTH_CHANGE.get(token[0], 0)
        deepest = max(deepest, depth)
    return deepest > _MAX_DEPTH


def _repaired(text: str) -> Any:
    # Imported here because few answers need it.
    import json_repair  # noqa: PLC0415

    try:
        return json_repair.loads(text[:_MAX_REPAIRED_CHARS], skip_json_loads=True)
    except (ValueError, RecursionError, IndexError):
        raise UnparsableAnswer("it is no JSON") from None


def _as_number(text: str, shape: type[Answer]) -> ParsedAnswer[Answer] | None:
    """Accept "8" or "Rating: 8/10" as a shape's only required field, if that is a number."""
    required = [field for field in structure_of(shape).fields if field.required]
    if len(required) != 1 or not isinstance(required[0].type, inspect.IntType):
        return None
    match = re.fullmatch(
        rf"\W*(?:{required[0].name}\W+)?(\d{{1,3}})(?:\s*(?:/|out of)\s*\d{{1,3}})?\W*",
        _FENCE.sub("", text),
        re.IGNORECASE,
    )
    if match is None:
        return None
    return _fitted({required[0].name: int(match[1])}, shape, repaired=True)


def _as_prose(text: str, shape: type[Answer]) -> ParsedAnswer[Answer] | None:
    """Accept a text as the value of a shape's only field, if that is a text or lines."""
    plain = _FENCE.sub("", text).strip()
    fields = structure_of(shape).fields
    if len(plain) < _MIN_PROSE_CHARS or len(fields) != 1 or plain[0] in "{[":
        return None
    if _names_field(plain, shape):  # it was meant as JSON
        return None
    field_type = fields[0].type
    if isinstance(field_type, inspect.ListType):
        field_type = field_type.item_type
    if not isinstance(field_type, inspect.StrType):
        return None
    try:
        answer = _fitted({fields[0].name: plain}, shape)
    except UnparsableAnswer:
        return None
    answer.corrections["prose"] += 1
    return answer
