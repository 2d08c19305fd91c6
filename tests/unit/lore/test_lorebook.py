"""Lorebooks are read tolerantly, within bounds that errors name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.errors import InvalidMessage
from foremind.lore.lorebook import (
    MAX_BOOK_CHARS,
    MAX_CONTENT_CHARS,
    MAX_ENTRIES,
    MAX_KEY_CHARS,
    MAX_KEYS,
    MAX_REMEMBERING,
    Lorebook,
    Placement,
)
from tests.unit.lore.books import active, book, entry, ids, texts


def test_a_lorebook_exported_alone_is_read_too() -> None:
    """And entries that are listed by number."""
    alone = {"spec": "lorebook_v3", "data": {"entries": {"7": entry("Lore.", "a", id=7)}}}
    assert ids(active(Lorebook.parse(alone), "a")) == ["7"]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"entries": None},
        {"entries": "none"},
        {"entries": [None, 3, "text", []]},
        {"entries": [{}]},
        {"entries": [entry(content=None)], "scan_depth": "4", "token_budget": []},  # type: ignore[arg-type]
        {"entries": [entry("Lore.", keys="a, b")]},
        {"entries": [entry("Lore.", keys=[None, 3, "", "  "], insertion_order=None)]},
        {"entries": [entry("Lore.", id={}, name=[], priority=float("inf"), position=4)]},
        {"entries": [entry("Lore.", "a", extensions="x", insertion_order=10**400)]},
    ],
)
def test_what_is_not_as_expected_counts_as_absent(odd: dict[str, Any]) -> None:
    """No field of a wrong type is an error."""
    assert len(active(Lorebook.parse(odd), "nothing of it").entries) == 0


def test_what_is_no_entry_is_reported_by_its_place() -> None:
    """The others are read."""
    parsed = Lorebook.parse(
        {"entries": [entry("Lore.", "a"), "text", {"keys": ["a"], "lore": "?"}]}
    )
    assert [(problem.id, problem.code) for problem in parsed.problems] == [
        ("1", "not_an_entry"),
        ("2", "not_an_entry"),
    ]
    assert ids(active(parsed, "a")) == ["0"]


#: Lorebooks as Agnai (`common/memory.ts`), NovelAI and RisuAI (`process/lorebook.svelte.ts`) write
#: them, with an entry that is always there, or off.
AGNAI = {
    "kind": "memory", "_id": "x", "name": "Coast", "description": "",
    "entries": [
        {"name": "Cape", "entry": "The cape is steep.", "keywords": ["cape", "cliff"],
         "priority": 5, "weight": 1, "enabled": True},
        {"name": "Gone", "entry": "Gone.", "keywords": ["cape"], "priority": 5, "weight": 1,
         "enabled": False},
        {"name": "Bay", "entry": "The bay is wide.", "keywords": ["cape"], "secondaryKeys": ["bay"],
         "selective": True, "priority": 5, "weight": 0, "enabled": True},
    ],
}  # fmt: skip
NOVELAI = {
    "lorebookVersion": 6, "settings": {"orderByKeyLocations": False}, "categories": [],
    "entries": [
        {"text": "The cape is steep.", "displayName": "Cape", "id": "1", "searchRange": 1000,
         "keys": ["/c(ape|liff)s?/i"], "enabled": True, "forceActivation": False, "category": "",
         "contextConfig": {"prefix": "", "suffix": "\n", "budgetPriority": 400}},
        {"text": "Gone.", "displayName": "Gone", "id": "2", "keys": ["cape"], "enabled": False,
         "forceActivation": True, "contextConfig": {"budgetPriority": 400}},
        {"text": "The bay is wide.", "displayName": "Bay", "id": "3", "keys": [], "enabled": True,
         "forceActivation": True, "contextConfig": {"budgetPriority": 100}},
    ],
}  # fmt: skip
RISU_ENTRY = {
    "key": "", "comment": "", "content": "", "mode": "normal", "insertorder": 100,
    "alwaysActive": False, "secondkey": "", "selective": False,
}  # fmt: skip
RISU = {
    "type": "risu", "ver": 1,
    "data": [
        RISU_ENTRY | {"key": "\uf000folder:1", "comment": "Places", "mode": "folder"},
        RISU_ENTRY | {"key": "cape, cliff", "comment": "Cape", "content": "The cape is steep."},
        RISU_ENTRY | {"key": "cape", "comment": "Gone", "content": "Gone.", "activationPercent": 0},
        RISU_ENTRY | {"comment": "Bay", "content": "The bay is wide.", "alwaysActive": True,
                      "insertorder": 10},
        RISU_ENTRY | {"key": "cape", "secondkey": "sea", "selective": True, "content": "The sea."},
    ],
}  # fmt: skip


@pytest.mark.parametrize("file", [AGNAI, NOVELAI, RISU], ids=["Agnai", "NovelAI", "RisuAI"])
@pytest.mark.parametrize("key", ["cape", "cliff"])
def test_lorebooks_of_other_programs_are_read(file: dict[str, Any], key: str) -> None:
    """With their keys, orders and names, what is always there, and without what is off."""
    read = Lorebook.parse(file)
    assert texts(active(read, f"the {key} by the bay, a cape")) == [
        "The bay is wide.",
        "The cape is steep.",
    ]
    assert "Cape" in {listed.name for listed in read.entries}
    assert read.notices() == []


def test_what_risu_says_in_a_card_is_read() -> None:
    """How likely an entry is, and whether its keys are found within words."""
    never = entry("Never.", "cape", extensions={"risu_activationPercent": 0})
    risu = book(entry("Lore.", "cape"), never, extensions={"risu_fullWordMatching": False})
    assert texts(active(risu, "landscapes and a cape")) == ["Lore."]
    assert texts(active(risu, "landscapes")) == ["Lore."]


@pytest.mark.parametrize(
    ("entries", "param"),
    [
        ([entry()] * (MAX_ENTRIES + 1), "character_book.entries"),
        ([entry(), entry("x" * (MAX_CONTENT_CHARS + 1))], "character_book.entries[1].content"),
        ([entry("Lore.", *"ab" * MAX_KEYS)], "character_book.entries[0].keys"),
        ([entry("Lore.", "x" * (MAX_KEY_CHARS + 1))], "character_book.entries[0].keys"),
        ([entry("x" * MAX_CONTENT_CHARS)] * (MAX_BOOK_CHARS // MAX_CONTENT_CHARS + 1),
         "character_book"),
    ],
)  # fmt: skip
def test_what_exceeds_a_bound_is_refused_by_name(entries: list[dict[str, Any]], param: str) -> None:
    """The error says what was expected."""
    with pytest.raises(InvalidMessage, match="expected at most") as refused:
        book(*entries)
    assert refused.value.param == param


def test_a_pattern_that_cannot_run_is_reported_by_its_entry() -> None:
    """The specification has such an entry match nothing, not even by its other keys."""
    parsed = book(
        entry("Lore.", "drag.n", "(?=x)", id="bad", use_regex=True),
        entry("Lore.", "drag.n", id="good", use_regex=True),
    )
    assert [(problem.id, problem.code) for problem in parsed.problems] == [("bad", "pattern")]
    assert ids(active(parsed, "dragon")) == ["good"]


@pytest.mark.parametrize(
    ("fields", "content", "placement"),
    [
        ({"position": "before_char"}, "Lore.", Placement("before_char")),
        ({"position": "after_char"}, "Lore.", Placement("after_char")),
        ({}, "Lore.", Placement("recalled")),
        ({"position": "elsewhere"}, "Lore.", Placement("recalled")),
        ({"constant": True}, "Lore.", Placement("after_char")),
        ({}, "@@activate\nLore.", Placement("after_char")),
        ({"position": "before_char"}, "@@depth 3\nLore.", Placement("depth", 3, "system")),
        ({}, "@@depth -1\n@@role user\nLore.", Placement("depth", 0, "user")),
        ({}, "@@depth 3\n@@position before_desc\nLore.", Placement("before_char")),
        ({"position": "before_char"}, "@@position after_desc\nLore.", Placement("after_char")),
        ({"position": "before_char"}, "@@position scenario\nLore.", Placement("before_char")),
    ],
)
def test_an_entry_has_one_place(fields: dict[str, Any], content: str, placement: Placement) -> None:
    """`@@position` counts more than `@@depth`, and that more than the field `position`."""
    (parsed,) = book(entry(content, "a", **fields)).entries
    assert parsed.placement == placement


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"name": "The ring", "comment": "x"}, "The ring"),
        ({"comment": "Of\nold"}, "Of old"),
        ({"id": 3}, "3"),
        ({}, "0"),
    ],
)
def test_an_entry_is_called_by_its_name_else_by_its_comment_or_id(
    fields: dict[str, Any], name: str
) -> None:
    """On one line."""
    assert book(entry("Lore.", "a", **fields)).entries[0].name == name


def test_only_some_entries_look_up_their_earlier_matches() -> None:
    """The further ones match as if they did not ask for it."""
    entries = [entry("@@keep_activate_after_match\nLore.", "a")] * (MAX_REMEMBERING + 1)
    assert len(active(book(*entries), "a", "", "a").entries) == MAX_REMEMBERING + 1
    assert len(active(book(*entries), "", "", "", "", "a").entries) == MAX_REMEMBERING


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(max_size=8), parts),
    max_leaves=8,
)
_FIELDS = ("keys", "content", "enabled", "use_regex", "constant", "position", "priority",
           "insertion_order", "selective", "secondary_keys", "id", "extensions")  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(_FIELDS), _JSON) | _JSON, max_size=5), st.text())
def test_any_json_is_read_or_refused(entries: list[Any], text: str) -> None:
    """Nothing but an error that names a field is raised."""
    assert all(texts(active(Lorebook.parse({"entries": entries}), text)))
