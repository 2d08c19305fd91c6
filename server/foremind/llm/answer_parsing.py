"""Parses what a model wrote into an answer of a given shape, leniently. Pure.

Models wrap JSON in prose, think before it, forget a comma, write `null` for an empty list or "4"
for 4. None of that makes an answer worthless. Corrections are reported by code, never by text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from foremind.domain.errors import NOT_JSON
from foremind.llm.answer_fitting import UnparsableAnswer, fit_type, folded, structure_of
from foremind.llm.thinking_filter import without_thinking

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
