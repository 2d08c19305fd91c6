"""Answers of models are parsed leniently, and corrections are counted by code."""

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from foremind.background.prompts import (
    EpisodesAnswer,
    NotesAndProfileAnswer,
    NotesAnswer,
    SummaryAnswer,
    TopicAnswer,
)
from foremind.llm.answer_parsing import UnparsableAnswer, cut_at_sentence, parse_answer
from foremind.memory.importance_rating import Rating

ADD = {"op": "ADD", "kind": "goal", "entry": "Wants to sail"}
NOTES = json.dumps({"operations": [ADD]})
HOME = {"slot": "home", "value": "Porto", "holds": True}
ENTRIES = json.dumps({"entries": [HOME]})
EPISODE = {"topic": "boats", "summary": "They spoke of boats."}


def operations(text: str, shape: type[msgspec.Struct] = NotesAnswer) -> list[Any]:
    """The operations parsed from a text, without empty fields."""
    value = msgspec.to_builtins(parse_answer(text, shape).value)
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
    assert operations(text) == operations(text, NotesAndProfileAnswer) == [ADD]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"operations": [ADD], "entries": [HOME]}),
        json.dumps({"Entries": HOME, "Operations": ADD}),
        json.dumps({"answer": {"entries": {"1": HOME}, "operations": {"1": ADD}}}),
        json.dumps([ADD, HOME]),
        json.dumps([HOME, ADD, "Nothing else."]),
        f"<think>{{}}</think>Notes: {NOTES}\nProfile: {ENTRIES}",
        f"```json\n{ENTRIES}\n```\nand\n```json\n{NOTES}\n```",
        f'{{"operations": [{json.dumps(ADD)},], "entries": [{json.dumps(HOME)}',
    ],
)
def test_two_things_are_parsed_in_any_form(text: str) -> None:
    """In one object or two, in any order, bare, or cut off."""
    answer = parse_answer(text, NotesAndProfileAnswer).value
    assert operations(text, NotesAndProfileAnswer) == [ADD]
    assert msgspec.to_builtins(answer.entries) == [HOME]


@pytest.mark.parametrize(
    ("text", "notes", "values"),
    [
        (NOTES, 1, 0), (ENTRIES, 0, 1), ("{}", 0, 0),
        (json.dumps({"operations": "none", "entries": [HOME]}), 0, 1),
        (json.dumps({"operations": [ADD], "entries": [{"slot": "home"}]}), 1, 0),
        (json.dumps({"operations": [{"op": "SING"}], "entries": [HOME]}), 0, 1),
    ],
)  # fmt: skip
def test_one_thing_is_taken_without_the_other(text: str, notes: int, values: int) -> None:
    """A small model answers one well and the other badly."""
    answer = parse_answer(text, NotesAndProfileAnswer).value
    assert (len(answer.operations), len(answer.entries)) == (notes, values)


@pytest.mark.parametrize("remark", ["{as asked}", "[1]", "[see note]", "{{x}}", "{lines}", "[]"])
@pytest.mark.parametrize("shape", [SummaryAnswer, TopicAnswer, NotesAnswer])
@pytest.mark.parametrize("ending", ["}", ",}", "", ",\n}"])
def test_a_remark_in_brackets_is_not_the_answer(
    remark: str, shape: type[msgspec.Struct], ending: str
) -> None:
    """Neither next to an answer, whether or not that is well-formed, nor alone."""
    contents = {
        SummaryAnswer: {"lines": ["Lives in Porto.", "Sails."]},
        TopicAnswer: {"text": "Lives in Porto and sails."},
        NotesAnswer: {"operations": [ADD]},
    }
    written = json.dumps(contents[shape])
    expected = parse_answer(written, shape).value
    written = written[:-1] + ending
    for text in (f"Here it is {remark}:\n{written}", f"{written}\nThat is it {remark}."):
        if ending == "" and text.startswith("{"):
            continue  # what follows would be part of it
        assert parse_answer(text, shape).value == expected
    if shape is not NotesAnswer and remark != "[]":
        with pytest.raises(UnparsableAnswer):
            parse_answer(f"I cannot do that {remark}", shape)


def test_an_example_next_to_a_malformed_answer_is_not_the_answer() -> None:
    """Well-formed as it is, it says less."""
    text = 'In the form {"lines": ["…", "x"]}: {"lines": ["Lives in Porto.", "Sails.",]}'
    assert parse_answer(text, SummaryAnswer).value.lines == ["Lives in Porto.", "Sails."]


def test_an_empty_answer_is_valid() -> None:
    """Most turns need no note."""
    for text in ("{}", '{"operations": null}', '{"operations": []}', "[]", '{"operations": ""}'):
        assert operations(text) == []


def test_numbers_are_parsed_in_any_form() -> None:
    """As text, as a fraction, out of range."""
    for written, rating in (("9", 9), ('"9"', 9), ('"9/10"', 9), ("9.0", 9), ("12", 10), ("0", 1)):
        assert parse_answer(f'{{"rating": {written}}}', Rating).value.rating == rating
    assert operations('{"operations": [{"op": "Delete", "id": "4"}]}') == [
        {"op": "DELETE", "id": 4}
    ]
    assert parse_answer('{"rating": "7", "no_longer": "2"}', Rating).value.no_longer == [2]


def test_excess_is_truncated() -> None:
    """Six lines become five, a long line ends with a sentence; truncations are counted."""
    long = "She has a boat. " * 30
    lines = [f"Line {number}." for number in range(5)]
    answer = parse_answer(json.dumps({"lines": [long, *lines]}), SummaryAnswer)
    assert [len(line) <= 300 for line in answer.value.lines] == [True] * 5
    assert answer.value.lines[0].endswith("boat.")
    assert answer.corrections == {"too_long": 1, "too_many": 1}
    assert parse_answer('{"lines": "- One day.\\n- Two days."}', SummaryAnswer).value.lines == [
        "One day.", "Two days.",
    ]  # fmt: skip


def test_optional_parts_of_episodes_may_be_missing() -> None:
    """No `left_at`, `null` for lists, no episodes; an invalid one does not affect the others."""
    answer = parse_answer(
        json.dumps({"episodes": [{**EPISODE, "references": None}]}), EpisodesAnswer
    ).value
    assert answer.left_at == "" and answer.episodes[0].references == []
    assert (
        parse_answer('{"episodes": [], "left_at": "At the quay."}', EpisodesAnswer).value.episodes
        == []
    )
    broken = parse_answer(json.dumps({"episodes": [{"topic": "boats"}, EPISODE]}), EpisodesAnswer)
    assert len(broken.value.episodes) == 1 and broken.corrections["dropped"] == 1


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
        parse_answer(text, SummaryAnswer)


def test_an_answer_of_invalid_operations_is_unusable() -> None:
    """It is not mistaken for an empty answer."""
    for text in ('{"operations": ["sing"]}', '{"operations": [{"op": "SING"}]}'):
        with pytest.raises(UnparsableAnswer):
            parse_answer(text, NotesAnswer)


@pytest.mark.parametrize(
    "written",
    ["8", "8/10", "Rating: 8", "**rating:** 8 / 10.", "8 out of 10", "<think>9?</think>8"],
)
def test_a_bare_number_is_a_rating(written: str) -> None:
    """Where a number is the only field that is required, and nothing else is written."""
    assert parse_answer(written, Rating).value.rating == 8
    for shape in (NotesAnswer, SummaryAnswer):
        with pytest.raises(UnparsableAnswer):
            parse_answer(written, shape)


@pytest.mark.parametrize("written", ["8 or 9", "It is an 8, I think", "-", "1234"])
def test_other_numbers_are_no_rating(written: str) -> None:
    with pytest.raises(UnparsableAnswer):
        parse_answer(written, Rating)


def test_prose_is_accepted_as_text_where_allowed() -> None:
    """Some models cannot write JSON at all; notes are never parsed from prose."""
    prose = "She sails every summer.\nShe is afraid of storms."
    assert parse_answer(prose, SummaryAnswer, prose=True).value.lines == prose.splitlines()
    assert parse_answer(prose, TopicAnswer, prose=True).value.text == prose
    assert parse_answer(prose, SummaryAnswer, prose=True).corrections == {"prose": 1}
    for shape in (NotesAnswer, EpisodesAnswer, Rating):
        with pytest.raises(UnparsableAnswer):
            parse_answer(prose, shape, prose=True)


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
            answer = parse_answer(text, shape, prose=True).value
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
        parse_answer(text, SummaryAnswer)


def test_booleans_are_parsed_in_any_form() -> None:
    """`yes`, 0 and true; excess elements are truncated."""
    assert parse_answer('{"flags": ["yes", 0, true]}', _Flags).value.flags == [True, False]
