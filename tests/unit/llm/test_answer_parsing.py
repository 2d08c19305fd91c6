"""Answers of models are parsed leniently, and corrections are counted by code."""

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from foremind.background.prompts import EpisodesAnswer, NotesAnswer, SummaryAnswer, TopicAnswer
from foremind.llm.answer_parsing import UnparsableAnswer, cut_at_sentence, read
from foremind.memory.importance_rating import Rating

ADD = {"op": "ADD", "kind": "goal", "entry": "Wants to sail"}
NOTES = json.dumps({"operations": [ADD]})
EPISODE = {"topic": "boats", "summary": "They spoke of boats."}


def operations(text: str) -> list[Any]:
    """The operations parsed from a text, without empty fields."""
    value = msgspec.to_builtins(read(text, NotesAnswer).value)
    return [
        {name: field for name, field in operation.items() if field is not None}
        for operation in value["operations"]
    ]


@pytest.mark.parametrize(
    "text",
    [
        NOTES,
        f"Here you are:\n```json\n{NOTES}\n```\nAnything else?",
        f"I put it in {{curly}} braces, as you asked: {NOTES} (see {{above}})",
        f"A brace {{ that never closes. {NOTES}",
        f"<think>Shall I answer {{}} or []? No.</think>{NOTES}",
        f"<think>\nPerhaps {NOTES[:20]}\n</think>\n{NOTES}",
        f"She wants something. </think>\n{NOTES}",
        '{"operations": [{"op": "ADD", "kind": "goal", "entry": "Wants to sail",},],}',
        '{"operations": [{"op": "add", "Kind": "goal", "entry": " Wants to sail "}]}',
        "{'operations': [{'op': 'ADD', 'kind': 'goal', 'entry': 'Wants to sail'}]}",
        '{"operations": [{"op": "ADD", "kind": "goal", "entry": "Wants to sail", "id": null}',
        json.dumps([ADD]),
        json.dumps(ADD),
        json.dumps({"answer": {"operations": [ADD]}}),
        json.dumps({"Operations": {"1": ADD}}),
        json.dumps({"operations": [ADD, None, "ADD something", {"op": "SING"}]}),
        f'For example {{"operations": [{{"op": "ADD", "kind": "x", "entry": "…"}}]}}. {NOTES}',
    ],
)
def test_notes_are_parsed_in_any_form(text: str) -> None:
    """In prose, after thinking, in any case, malformed, bare, wrapped, or partly invalid."""
    assert operations(text) == [ADD]


def test_an_empty_answer_is_valid() -> None:
    """Most turns need no note."""
    for text in ("{}", '{"operations": null}', '{"operations": []}', "[]", '{"operations": ""}'):
        assert operations(text) == []


def test_numbers_are_parsed_in_any_form() -> None:
    """As text, as a fraction, out of range."""
    for written, rating in (("9", 9), ('"9"', 9), ('"9/10"', 9), ("9.0", 9), ("12", 10), ("0", 1)):
        assert read(f'{{"rating": {written}}}', Rating).value.rating == rating
    assert operations('{"operations": [{"op": "Delete", "id": "4"}]}') == [
        {"op": "DELETE", "id": 4}
    ]
    assert read('{"rating": "7", "no_longer": "2"}', Rating).value.no_longer == [2]


def test_excess_is_truncated() -> None:
    """Six lines become five, a long line ends with a sentence; truncations are counted."""
    long = "She has a boat. " * 30
    lines = [f"Line {number}." for number in range(5)]
    answer = read(json.dumps({"lines": [long, *lines]}), SummaryAnswer)
    assert [len(line) <= 300 for line in answer.value.lines] == [True] * 5
    assert answer.value.lines[0].endswith("boat.")
    assert answer.mended == {"too_long": 1, "too_many": 1}
    assert read('{"lines": "- One day.\\n- Two days."}', SummaryAnswer).value.lines == [
        "One day.", "Two days.",
    ]  # fmt: skip


def test_optional_parts_of_episodes_may_be_missing() -> None:
    """No `left_at`, `null` for lists, no episodes; an invalid one does not affect the others."""
    answer = read(json.dumps({"episodes": [{**EPISODE, "references": None}]}), EpisodesAnswer).value
    assert answer.left_at == "" and answer.episodes[0].references == []
    assert read('{"episodes": [], "left_at": "At the quay."}', EpisodesAnswer).value.episodes == []
    broken = read(json.dumps({"episodes": [{"topic": "boats"}, EPISODE]}), EpisodesAnswer)
    assert len(broken.value.episodes) == 1 and broken.mended["dropped"] == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nothing came"),
        ("I would rather not.", "no JSON"),
        ("<think>and so on and on", "nothing came"),
        ('{"weather": "fine", "mood": "good"}', "`lines`"),
        ('{"lines": []}', "empty"),
        ('{"lines": ["…", "..."]}', "empty"),
        ('{"lines": {}}', "has to be a text"),
    ],
)
def test_an_unusable_answer_says_why(text: str, problem: str) -> None:
    """So that the model can correct it."""
    with pytest.raises(UnparsableAnswer, match=problem):
        read(text, SummaryAnswer)


def test_an_answer_of_invalid_operations_is_unusable() -> None:
    """It is not mistaken for an empty answer."""
    for text in ('{"operations": ["sing"]}', '{"operations": [{"op": "SING"}]}'):
        with pytest.raises(UnparsableAnswer):
            read(text, NotesAnswer)


def test_prose_is_accepted_as_text_where_allowed() -> None:
    """Some models cannot write JSON at all; notes are never parsed from prose."""
    prose = "She sails every summer.\nShe is afraid of storms."
    assert read(prose, SummaryAnswer, prose=True).value.lines == prose.splitlines()
    assert read(prose, TopicAnswer, prose=True).value.text == prose
    assert read(prose, SummaryAnswer, prose=True).mended == {"prose": 1}
    for shape in (NotesAnswer, EpisodesAnswer, Rating):
        with pytest.raises(UnparsableAnswer):
            read(prose, shape, prose=True)


def test_text_is_truncated_at_a_sentence_end() -> None:
    """Or, if that would lose too much, at a word."""
    assert cut_at_sentence("One two. Three four.", 12) == "One two."
    assert cut_at_sentence("One two three, four five six.", 16) == "One two three"
    assert cut_at_sentence("Pi is 3.14159", 9) == "Pi is"
    assert cut_at_sentence("x" * 50, 10) == "x" * 10


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(["operations", "op", "id", "kind", "entry", "lines", "rating", "x"]),
            values,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.text(alphabet='{}[]"\\,:abn1 \n<think>/', max_size=80) | _JSON.map(json.dumps))
def test_any_text_is_valid_or_unusable(text: str) -> None:
    """Parsed answers are within the limits of the shape."""
    for shape in (NotesAnswer, SummaryAnswer, EpisodesAnswer, Rating, TopicAnswer):
        try:
            answer = read(text, shape, prose=True).value
        except UnparsableAnswer:
            continue
        assert msgspec.json.decode(msgspec.json.encode(answer), type=shape) == answer


class _Flags(msgspec.Struct):
    flags: Annotated[list[bool], Meta(max_length=2)]


@pytest.mark.parametrize(
    "text", ["{" * 20_000, "[" * 20_000, '{"a":' * 5_000, '{"lines": ["' * 2_000, "{[" * 9_999]
)
def test_hostile_answers_are_rejected_quickly(text: str) -> None:
    """Attempts at unclosed brackets are limited, and deep nesting is not repaired at all."""
    with pytest.raises(UnparsableAnswer):
        read(text, SummaryAnswer)


def test_booleans_are_parsed_in_any_form() -> None:
    """`yes`, 0 and true; excess elements are truncated."""
    assert read('{"flags": ["yes", 0, true]}', _Flags).value.flags == [True, False]
