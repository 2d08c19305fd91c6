"""Which entries a conversation activates, rule by rule of the specification."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.lore.activation import MAX_ROUNDS, ScannedMessage, activate
from tests.unit.lore.books import active, book, entry, ids, texts


@pytest.mark.parametrize(
    ("fields", "content", "conversation", "is_active"),
    [
        ({}, "Lore.", ["a dragon"], True),
        ({}, "Lore.", ["a wolf"], False),
        ({"enabled": False}, "Lore.", ["a dragon"], False),
        ({"enabled": False, "constant": True}, "@@activate\nLore.", ["a dragon"], False),
        ({"constant": True}, "Lore.", ["a wolf"], True),
        ({"constant": True, "use_regex": True}, "Lore.", ["a wolf"], False),
        ({}, "", ["a dragon"], False),
        ({}, "@@activate\n", ["a dragon"], False),
        # secondary keys
        ({"selective": True, "secondary_keys": ["cave"]}, "Lore.", ["a dragon"], False),
        ({"selective": True, "secondary_keys": ["cave"]}, "Lore.", ["dragon cave"], True),
        ({"selective": True, "secondary_keys": ["cave"]}, "Lore.", ["dragon", "cave"], True),
        ({"selective": False, "secondary_keys": ["cave"]}, "Lore.", ["a dragon"], True),
        ({"selective": True, "secondary_keys": []}, "Lore.", ["a dragon"], True),
        ({"selective": True, "secondary_keys": ["cave"], "use_regex": True},
         "Lore.", ["a dragon"], True),
        ({"keys": ["dragon", 1907]}, "Lore.", ["in 1907"], True),
        ({"keys": [1907, True, None]}, "Lore.", ["true or none of 190"], False),
        ({"selective": True, "secondary_keys": [1907]}, "Lore.", ["a dragon in 1907"], True),
        # decorators on keys
        ({}, "@@additional_keys cave,den\nLore.", ["a dragon"], False),
        ({}, "@@additional_keys cave,den\nLore.", ["a dragon's den"], True),
        ({}, "@@additional_keys cave\n@@additional_keys gold\nLore.", ["dragon cave"], False),
        ({}, "@@additional_keys cave\n@@additional_keys gold\nLore.", ["dragon cave gold"], True),
        ({"use_regex": True}, "@@additional_keys w.lf\nLore.", ["a wolf"], True),
        ({}, "@@exclude_keys toy\nLore.", ["a toy dragon"], False),
        ({}, "@@exclude_keys toy\nLore.", ["a dragon", "a toy"], False),
        ({"use_regex": True}, "@@exclude_keys toy\nLore.", ["a toy dragon"], True),
        # forced
        ({}, "@@activate\nLore.", ["a wolf"], True),
        ({}, "@@dont_activate\nLore.", ["a dragon"], False),
        ({}, "@@dont_activate\n@@activate\nLore.", ["a wolf"], True),
        # scan depth: four messages, the draft included
        ({}, "Lore.", ["x", "x", "x", "dragon"], True),
        ({}, "Lore.", ["x", "x", "x", "x", "dragon"], False),
        ({}, "@@scan_depth 1\nLore.", ["x", "dragon"], False),
        ({}, "@@scan_depth 6\nLore.", ["x", "x", "x", "x", "x", "dragon"], True),
        ({}, "@@scan_depth 1\n@@additional_keys gold\nLore.", ["dragon", "gold"], False),
        # the companion's turns: one in two
        ({}, "@@activate_only_after 1\nLore.", ["dragon"], False),
        ({}, "@@activate_only_after 1\nLore.", ["dragon", "x"], True),
        ({}, "@@activate_only_after 2\nLore.", ["dragon", "x", "x", "x"], True),
        ({"constant": True}, "@@activate_only_after 1\nLore.", ["x"], False),
        ({}, "@@activate_only_every 2\nLore.", ["dragon", "x"], False),
        ({}, "@@activate_only_every 2\nLore.", ["dragon", "x", "x", "x"], True),
        ({}, "@@activate\n@@activate_only_after 9\nLore.", ["x"], True),
        # earlier matches, in messages of the user
        ({}, "@@keep_activate_after_match\nLore.", ["x"] * 8 + ["dragon"], True),
        ({}, "@@keep_activate_after_match\nLore.", ["x"] * 8, False),
        ({}, "@@keep_activate_after_match\n@@activate_only_after 2\nLore.",
         ["x"] * 8 + ["dragon"], False),
        ({}, "@@dont_activate_after_match\nLore.", ["dragon"], True),
        ({}, "@@dont_activate_after_match\nLore.", ["dragon", "x", "dragon"], False),
        ({}, "@@dont_activate_after_match\nLore.", ["x", "x", "dragon"], False),
        # unsupported
        ({}, "@@is_greeting 3\n@@is_user_icon hat\n@@instruct_scan_depth 1\nLore.",
         ["x", "dragon"], True),
    ],
)  # fmt: skip
def test_an_entry_with_the_key_dragon(
    fields: dict[str, Any], content: str, conversation: list[str], is_active: bool
) -> None:
    """Is active in a conversation, newest message first, or not; its text has no decorators."""
    lore = active(book(entry(content, "dragon", **fields)), *conversation)
    assert texts(lore) == ["Lore."] * is_active


def test_the_books_scan_depth_is_that_of_its_entries() -> None:
    """Zero scans nothing, and leaves what needs no key."""
    deep = book(entry("Deep.", "dragon"), scan_depth=6)
    assert texts(active(deep, *["x"] * 5, "dragon")) == ["Deep."]
    shallow = book(entry("Key.", "dragon"), entry("Constant.", constant=True), scan_depth=0)
    assert texts(active(shallow, "dragon")) == ["Constant."]


def test_entries_are_ordered_by_insertion_order_then_as_in_the_book() -> None:
    """Whatever matched first."""
    orders = {"c": 5, "a": -1, "d": 5, "b": 0.5}
    entries = [
        entry("Lore.", "x", id=name, insertion_order=order) for name, order in orders.items()
    ]
    assert ids(active(book(*entries), "x")) == ["a", "b", "c", "d"]


def test_content_adds_entries_only_where_the_book_scans_it() -> None:
    """Whatever the scan depth; comments do not count, and hidden keys do."""
    entries = [
        entry("The dragon sleeps.", "cave", id="cave"),
        entry("It guards gold. {{// wolf}}{{comment: hart}}{{hidden_key:crown}}", "dragon",
              id="dragon"),
        entry("Gold is heavy.", "gold", id="gold"),
        entry("@@scan_depth 1\nA crown.", "crown", id="crown"),
        entry("Both.", "gold", selective=True, secondary_keys=["cave"], id="both"),
        entry("A wolf.", "wolf", "hart", id="wolf"),
    ]  # fmt: skip
    assert ids(active(book(*entries), "the cave")) == ["cave"]
    recursive = book(*entries, recursive_scanning=True)
    assert ids(active(recursive, "the cave")) == ["cave", "dragon", "gold", "crown", "both"]


def test_recursion_ends_after_some_rounds() -> None:
    """A chain of entries, each of which mentions the next, is cut off; a circle ends."""
    chain = [entry(f"key{number + 1}", f"key{number}") for number in range(3 * MAX_ROUNDS)]
    assert len(active(book(*chain, recursive_scanning=True), "key0").entries) == MAX_ROUNDS
    circle = [entry("b", "a"), entry("a", "b")]
    assert texts(active(book(*circle, recursive_scanning=True), "a")) == ["b", "a"]


@pytest.mark.parametrize(
    ("entries", "budget", "kept", "left_out"),
    [
        ([("a", 3, 1, 0), ("b", 3, 2, 0)], 6, "ab", ""),
        ([("a", 3, 1, 0), ("b", 3, 2, 0)], 5, "b", "a"),
        ([("a", 3, None, 5), ("b", 3, None, 4)], 5, "a", "b"),
        ([("a", 3, 1, 4), ("b", 3, 1, 5)], 5, "b", "a"),
        ([("a", 3, 1, 0), ("b", 3, 1, 0)], 5, "a", "b"),
        ([("a", 9, 9, 0), ("b", 3, 1, 0)], 5, "b", "a"),
        ([("a", 1, 1, 0), ("b", 4, 2, 0), ("c", 3, 3, 0)], 5, "c", "ab"),
    ],
)
def test_the_lowest_priority_is_left_out_first(
    entries: list[tuple[str, int, int | None, int]], budget: int, kept: str, left_out: str
) -> None:
    """Then the lowest order, then the last; what exceeds the budget alone, in any case.

    Entries are ids, tokens, priorities and insertion orders.
    """
    listed = [
        entry("word " * tokens, "x", id=name, priority=priority, insertion_order=order)
        for name, tokens, priority, order in entries
    ]
    for lore in (
        active(book(*listed, token_budget=budget), "x"),
        active(book(*listed, token_budget=1000), "x", max_tokens=budget),
        active(book(*listed), "x").within(budget),
    ):
        assert sorted(ids(lore)) == list(kept)
        assert sorted(lore.left_out) == list(left_out)


def test_what_ignores_a_full_context_is_left_out_first_when_it_is_full() -> None:
    """Not when only the book's budget is spent."""
    lorebook = book(
        entry("@@ignore_on_max_context\none two", "x", id="first to go", priority=9),
        entry("three four", "x", id="other", priority=1),
    )
    lore = active(lorebook, "x")
    assert ids(lore.within(2)) == ["first to go"]
    assert ids(lore.within(2, context_is_full=True)) == ["other"]


def test_macros_are_replaced_before_tokens_are_counted() -> None:
    """And what becomes empty is not in the prompt."""
    lorebook = book(entry("{{long}}", "x"), entry("{{nothing}}", "x", insertion_order=1))
    lore = activate(
        lorebook,
        [ScannedMessage(True, lorebook.matcher.found_in("x"))],
        lambda text: len(text.split()),
        100,
        lambda text: text.replace("{{long}}", "one two three").replace("{{nothing}}", " "),
    )
    assert [(active_entry.text, active_entry.tokens) for active_entry in lore.entries] == [
        ("one two three", 3)
    ]


_WORDS = st.sampled_from(["ant", "bee", "cat", "dog", "eel"])
_DECORATORS = st.sampled_from(
    ["", "@@keep_activate_after_match\n", "@@dont_activate_after_match\n", "@@activate\n",
     "@@activate_only_every 2\n", "@@exclude_keys dog\n", "@@ignore_on_max_context\n"]
)  # fmt: skip
_ENTRIES = st.builds(
    lambda head, words, key, priority, order: entry(
        head + " ".join(words), key, priority=priority, insertion_order=order
    ),
    _DECORATORS, st.lists(_WORDS, max_size=6), _WORDS,
    st.none() | st.integers(-3, 3), st.integers(-3, 3),
)  # fmt: skip


@given(
    st.lists(_ENTRIES, max_size=12),
    st.lists(st.lists(_WORDS, max_size=3), min_size=1, max_size=6),
    st.integers(0, 12),
    st.none() | st.integers(0, 12),
    st.booleans(),
)
def test_no_budget_is_exceeded_and_no_entry_is_added_twice(
    entries: list[dict[str, Any]],
    conversation: list[list[str]],
    limit: int,
    budget: int | None,
    recursive: bool,
) -> None:
    """Whatever the book and the conversation; the same input gives the same lore."""
    lorebook = book(*entries, token_budget=budget, recursive_scanning=recursive)
    said = [" ".join(words) for words in conversation]
    lore = active(lorebook, *said, max_tokens=limit)
    numbers = [active_entry.number for active_entry in lore.entries]
    assert lore.tokens <= min(limit, limit if budget is None else budget)
    assert len(numbers) == len(set(numbers))
    assert all(texts(lore))
    assert lore == active(lorebook, *said, max_tokens=limit)
    assert lore.within(limit // 2).tokens <= limit // 2


@pytest.mark.parametrize("budget", [0, -3])
def test_a_book_without_a_budget_says_nothing(budget: int) -> None:
    """However short its entries are."""
    lorebook = book({"keys": ["dragon"], "content": "A"}, token_budget=budget)
    assert texts(active(lorebook, "A dragon!")) == []
