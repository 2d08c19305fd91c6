"""Whatever honest answer a model gives is read, and what was mended is counted by code."""

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
    """The operations that are read from a text, without what is empty in them."""
    value = msgspec.to_builtins(read(text, NotesAnswer).value)
    return [{k: v for k, v in each.items() if v is not None} for each in value["operations"]]


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
def test_notes_are_read_from_what_models_make_of_them(text: str) -> None:
    """In prose, after thinking, in any case, not quite JSON, bare, wrapped, beside nonsense."""
    assert operations(text) == [ADD]


def test_an_empty_answer_is_an_answer() -> None:
    """Most talk needs no note."""
    for text in ("{}", '{"operations": null}', '{"operations": []}', "[]", '{"operations": ""}'):
        assert operations(text) == []


def test_numbers_are_read_however_they_are_written() -> None:
    """As a text, as a fraction, out of range."""
    for written, rating in (("9", 9), ('"9"', 9), ('"9/10"', 9), ("9.0", 9), ("12", 10), ("0", 1)):
        assert read(f'{{"rating": {written}}}', Rating).value.rating == rating
    assert operations('{"operations": [{"op": "Delete", "id": "4"}]}') == [
        {"op": "DELETE", "id": 4}
    ]
    assert read('{"rating": "7", "no_longer": "2"}', Rating).value.no_longer == [2]


def test_what_is_too_much_is_cut_and_the_rest_kept() -> None:
    """Six lines are five, a long line ends with a sentence; each cut is counted."""
    long = "She has a boat. " * 30
    lines = [f"Line {number}." for number in range(5)]
    answer = read(json.dumps({"lines": [long, *lines]}), SummaryAnswer)
    assert [len(line) <= 300 for line in answer.value.lines] == [True] * 5
    assert answer.value.lines[0].endswith("boat.")
    assert answer.mended == {"too_long": 1, "too_many": 1}
    assert read('{"lines": "- One day.\\n- Two days."}', SummaryAnswer).value.lines == [
        "One day.", "Two days.",
    ]  # fmt: skip


def test_an_episode_needs_no_more_than_it_has() -> None:
    """No `left_at`, `null` for lists, no episodes at all; one that is broken spoils no other."""
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
def test_what_cannot_be_used_says_why(text: str, problem: str) -> None:
    """So that the model can do better."""
    with pytest.raises(UnparsableAnswer, match=problem):
        read(text, SummaryAnswer)


def test_an_answer_of_nothing_but_nonsense_is_none() -> None:
    """It is not taken for one that says that there is nothing to do."""
    for text in ('{"operations": ["sing"]}', '{"operations": [{"op": "SING"}]}'):
        with pytest.raises(UnparsableAnswer):
            read(text, NotesAnswer)


def test_prose_stands_for_a_text_where_it_may() -> None:
    """Some models cannot do JSON at all; notes are not made of prose."""
    prose = "She sails every summer.\nShe is afraid of storms."
    assert read(prose, SummaryAnswer, prose=True).value.lines == prose.splitlines()
    assert read(prose, TopicAnswer, prose=True).value.text == prose
    assert read(prose, SummaryAnswer, prose=True).mended == {"prose": 1}
    for shape in (NotesAnswer, EpisodesAnswer, Rating):
        with pytest.raises(UnparsableAnswer):
            read(prose, shape, prose=True)


def test_a_text_is_cut_where_a_sentence_ends() -> None:
    """Or, where that is far away, a word."""
    assert cut_at_sentence("One two. Three four.", 12) == "One two."
    assert cut_at_sentence("One two three, four five six.", 16) == "One two three"
    assert cut_at_sentence("Pi is 3.14159", 9) == "Pi is"
    assert cut_at_sentence("x" * 50, 10) == "x" * 10


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(["operations", "op", "id", "kind", "entry", "lines", "rating", "x"]),
            each,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.text(alphabet='{}[]"\\,:abn1 \n<think>/', max_size=80) | _JSON.map(json.dumps))
def test_no_answer_breaks_the_reader(text: str) -> None:
    """Whatever comes is read within the limits of the shape, or unusable."""
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
def test_hostile_answers_end(text: str) -> None:
    """Brackets without end are tried only so often, and what is nested without end not at all."""
    with pytest.raises(UnparsableAnswer):
        read(text, SummaryAnswer)


def test_yes_is_true() -> None:
    """Models write it in several ways; what comes on top is cut."""
    assert read('{"flags": ["yes", 0, true]}', _Flags).value.flags == [True, False]
