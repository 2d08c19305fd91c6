"""Actions in replies: how a model is told of them, and how what it writes is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.actions import Action, ActionCall, Offer
from foremind.llm.acting import (
    MAX_CALLS,
    ActionMarks,
    checked,
    mark_of,
    offered,
    problem_of_schema,
    tools_of,
    without_actions,
)
from foremind.llm.completion_parser import StreamEnding, StreamParser

ITEM: dict[str, Any] = {"properties": {"item": {"type": "string"}}, "required": ["item"]}
GIVE = Action("give", "hand something over", ITEM)
WALK = Action(
    "walk",
    schema={"properties": {"steps": {"type": "integer"}, "fast": {"type": "boolean"}}},
)
WAVE, BOW = Action("wave"), Action("bow")
ALL = [GIVE, WALK, WAVE, BOW]


def read(text: str, pieces: int = 1) -> tuple[str, list[tuple[str, dict[str, Any]] | None]]:
    """Return what a player sees of a reply, and the actions that it asks for."""
    marks, shown = ActionMarks(), ""
    for start in range(0, len(text), pieces):
        shown += marks.feed(text[start : start + pieces])
    shown += marks.end()
    found = [checked(call, ALL) for call in marks.calls]
    return shown, [None if known is None else (known[0].name, known[1]) for known in found]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ('[[give {"item": "rope"}]]', ("give", {"item": "rope"})),
        ('[[give({"item": "rope"})]]', ("give", {"item": "rope"})),
        ('[[give: {"item": "rope"}]]', ("give", {"item": "rope"})),
        ("[[give {'item': 'rope'}]]", ("give", {"item": "rope"})),
        ('[[give(item="rope")]]', ("give", {"item": "rope"})),
        ("[[give item=rope]]", ("give", {"item": "rope"})),
        ("[[give rope]]", ("give", {"item": "rope"})),
        ('[[give {"item": "a [[knot]] of {rope}"}]]', ("give", {"item": "a [[knot]] of {rope}"})),
        ('[[walk {"steps": "3", "fast": "true"}]]', ("walk", {"steps": 3, "fast": True})),
        ("[[walk steps=3, fast=true]]", ("walk", {"steps": 3, "fast": True})),
        ('[[give {"item": 12}]]', ("give", {"item": "12"})),
        ("[[wave]]", ("wave", {})),
        ("[[wave()]]", ("wave", {})),
        ('[[wave_or_bow {"do": "bow"}]]', ("bow", {})),
        (
            '<tool_call>\n{"name": "give", "arguments": {"item": "rope"}}\n</tool_call>',
            ("give", {"item": "rope"}),
        ),
        ('[[{"name": "give", "arguments": {"item": "rope"}}]]', ("give", {"item": "rope"})),
        (mark_of("give", '{"item": "rope"}'), ("give", {"item": "rope"})),
    ],
)
@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_forms_of_marks_are_read(mark: str, expected: object, pieces: int) -> None:
    """However they arrive; they are no part of the text, and one white space remains."""
    assert read(f"Here you are. {mark} Take care!", pieces) == (
        "Here you are. Take care!",
        [expected],
    )
    assert read(f"{mark}\n\nTake care!", pieces) == ("Take care!", [expected])


@pytest.mark.parametrize(
    "mark",
    [
        "[[fly]]",
        "[[give]]",
        '[[give {"item": ["rope"]}]]',
        '[[walk {"steps": "many"}]]',
        '[[give {"item": "\\u0000"}]]',
        '[[{"name": 3}]]',
    ],
)
def test_what_is_no_action_or_has_other_arguments_is_not_asked_for(mark: str) -> None:
    """It is no part of the text either: the model meant it as an action."""
    shown, found = read(f"Well. {mark}")
    assert (shown, found) in (("Well.", [None]), ("Well.", []))


@pytest.mark.parametrize(
    "text",
    ["a[0] and [1]", "[[", "He said [[ and left", "x < y <tool", "[[1, 2], [3]]", "[[" * 3000],
)
def test_other_brackets_are_text(text: str) -> None:
    """A list in lists, a mark that is never closed."""
    assert read(text, 7) == (text, [])


@given(st.text('ab[]{} <tol_ca>:"\n', max_size=60), st.integers(1, 9))
def test_pieces_make_no_difference(text: str, pieces: int) -> None:
    """What is shown and asked for is the same, whatever arrives together."""
    assert read(text, pieces) == read(text, 1000)
    assert without_actions(text) == read(text)[0]


def test_a_reply_asks_for_a_few_actions_at_most_and_each_once() -> None:
    """Models that loop repeat themselves."""
    marks = ActionMarks()
    marks.feed("[[wave]] [[wave]]" + "".join(f"[[give item{n}]]" for n in range(20)))
    assert marks.calls[:2] == [ActionCall("wave", ""), ActionCall("give", "item0")]
    assert len(marks.calls) == MAX_CALLS


def test_actions_with_the_same_arguments_are_shown_as_one() -> None:
    """In the prompt on one line, as tools one function that says which."""
    lines = "\n".join(offered(Offer(ALL)))
    assert 'give (hand something over) {"item": string}' in lines
    assert 'walk {"steps"?: integer, "fast"?: boolean}' in lines
    assert "  - wave, bow\n" in f"{lines}\n"
    tools = [tool["function"] for tool in tools_of(Offer(ALL, as_tools=True))]
    assert [tool["name"] for tool in tools] == ["give", "walk", "wave_or_bow"]
    assert tools[-1]["parameters"]["properties"]["do"]["enum"] == ["wave", "bow"]
    many = [Action(f"emote{number}") for number in range(31)]
    assert len(tools_of(Offer([*many, GIVE], as_tools=True))) == 2
    for offer in (None, Offer(), Offer(ALL, as_tools=True)):
        assert offered(offer) == []
    assert tools_of(Offer(ALL)) == tools_of(None) == []


def _parsed(*calls: dict[str, Any], has_tools: bool = True) -> str:
    """Return the text of a reply with parts of calls of tools, one part in each event."""
    parser = StreamParser(StreamEnding(), has_tools=has_tools)
    deltas = [{"content": "Here."}, *({"tool_calls": [call]} for call in calls)]
    events = [{"choices": [{"delta": delta}]} for delta in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return "".join([*parser.feed(lines.encode()), *parser.end()])


def _part(index: int, arguments: object, name: str | None = None) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    return {"index": index, "function": named | {"arguments": arguments}}


def test_calls_of_tools_are_read_as_marks() -> None:
    """In parts that arrive in any order, or whole; only if tools were offered."""
    parts = [
        _part(0, '{"item"', "give"), _part(1, {"steps": 3}, "walk"), _part(0, ': "rope"}'),
    ]  # fmt: skip
    assert _parsed(*parts) == 'Here.[[give {"item": "rope"}]][[walk {"steps":3}]]'
    assert _parsed(*parts, has_tools=False) == "Here."
    many = [_part(number, '{"a"', f"t{number}") for number in range(30)]
    assert _parsed(*many, _part(15, ": 1}")).count("[[") == 16
    assert '[[t15 {"a": 1}]]' in _parsed(*many, _part(15, ": 1}"))


@pytest.mark.parametrize(
    "schema",
    [{"type": "array"}, {"properties": {"a": {"type": "strin"}}}, {"required": "a"}],
)
def test_a_schema_that_is_none_is_told(schema: dict[str, Any]) -> None:
    """With where in it the problem is."""
    assert problem_of_schema(schema).startswith("$")
    assert problem_of_schema(ITEM) == ""


def test_a_schema_elsewhere_is_not_fetched() -> None:
    """What refers to it cannot be asked for."""
    action = Action("spy", schema={"properties": {"a": {"$ref": "http://127.0.0.1:1/a"}}})
    assert checked(ActionCall("spy", '{"a": 1}'), [action]) is None
