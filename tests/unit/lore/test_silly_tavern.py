"""Lorebooks of SillyTavern 1.19 do what they do there, or say what they do not.

The files are written after its source: `src/endpoints/characters.js` writes a world as the book of
a card, and `public/scripts/world-info.js` what a world of its own has.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from foremind.lore.activation import ScannedMessage, activate
from foremind.lore.lorebook import Lorebook, Placement
from tests.unit.lore.books import active, entry, ids, texts

#: An entry of a world as it is when somebody has just made it.
NEW = {
    "key": [], "keysecondary": [], "comment": "", "content": "", "constant": False,
    "vectorized": False, "selective": True, "selectiveLogic": 0, "addMemo": False, "order": 100,
    "position": 0, "disable": False, "ignoreBudget": False, "excludeRecursion": False,
    "preventRecursion": False, "matchPersonaDescription": False,
    "matchCharacterDescription": False, "matchCharacterPersonality": False,
    "matchCharacterDepthPrompt": False, "matchScenario": False, "matchCreatorNotes": False,
    "delayUntilRecursion": 0, "probability": 100, "useProbability": True, "depth": 4,
    "outletName": "", "group": "", "groupOverride": False, "groupWeight": 100, "scanDepth": None,
    "caseSensitive": None, "matchWholeWords": None, "useGroupScoring": None, "automationId": "",
    "role": 0, "sticky": None, "cooldown": None, "delay": None, "triggers": [], "displayIndex": 0,
}  # fmt: skip


def world(*entries: dict[str, Any]) -> dict[str, Any]:
    """A world file of entries, each given by what differs from a new one."""
    made = [NEW | {"uid": uid, "content": f"Lore {uid}."} | of for uid, of in enumerate(entries)]
    return {"entries": {str(of["uid"]): of for of in made}}


def exported(*entries: dict[str, Any]) -> dict[str, Any]:
    """The same world as the book of a card that SillyTavern exports."""
    return {
        "name": "World",
        "entries": [_exported(of) for of in world(*entries)["entries"].values()],
    }


def _exported(of: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": of["uid"], "keys": of["key"], "secondary_keys": of["keysecondary"],
        "comment": of["comment"], "content": of["content"], "constant": of["constant"],
        "selective": of["selective"], "insertion_order": of["order"],
        "enabled": not of["disable"],
        "position": "before_char" if of["position"] == 0 else "after_char", "use_regex": True,
        "extensions": {
            "position": of["position"], "exclude_recursion": of["excludeRecursion"],
            "display_index": of["displayIndex"], "probability": of["probability"],
            "useProbability": of["useProbability"], "depth": of["depth"],
            "selectiveLogic": of["selectiveLogic"], "outlet_name": of["outletName"],
            "group": of["group"], "group_override": of["groupOverride"],
            "group_weight": of["groupWeight"], "prevent_recursion": of["preventRecursion"],
            "delay_until_recursion": of["delayUntilRecursion"], "scan_depth": of["scanDepth"],
            "match_whole_words": of["matchWholeWords"],
            "use_group_scoring": of["useGroupScoring"] or False,
            "case_sensitive": of["caseSensitive"], "automation_id": of["automationId"],
            "role": of["role"], "vectorized": of["vectorized"], "sticky": of["sticky"],
            "cooldown": of["cooldown"], "delay": of["delay"],
            "match_persona_description": of["matchPersonaDescription"],
            "match_character_description": of["matchCharacterDescription"],
            "match_character_personality": of["matchCharacterPersonality"],
            "match_character_depth_prompt": of["matchCharacterDepthPrompt"],
            "match_scenario": of["matchScenario"], "match_creator_notes": of["matchCreatorNotes"],
            "triggers": of["triggers"], "ignore_budget": of["ignoreBudget"],
        },
    }  # fmt: skip


DIALECTS = pytest.mark.parametrize("written", [world, exported])
TWO = {"keysecondary": ["cave", "gold"]}


@DIALECTS
@pytest.mark.parametrize(
    ("fields", "conversation", "is_active"),
    [
        # keys are text, unless they are written as patterns
        ({"key": ["ring"]}, ["bring it"], False),
        ({"key": ["ring"]}, ["the ring"], True),
        ({"key": ["ring"], "matchWholeWords": False}, ["bring it"], True),
        ({"key": ["C++"]}, ["I write C++ all day"], True),
        ({"key": ["C++"]}, ["I write C"], False),
        ({"key": ["Mr. Fox (baker)"]}, ["is Mr. Fox (baker) in?"], True),
        ({"key": ["(", "[", "*", "?", "dragon"]}, ["a dragon"], True),
        ({"key": ["[Guild]"]}, ["Hello, lad"], False),
        ({"key": ["[Guild]"]}, ["the [Guild] hall"], True),
        ({"key": ["a.b"]}, ["axb"], False),
        ({"key": ["/drag(on|oness)/i"]}, ["A DRAGONESS"], True),
        ({"key": ["/dragon/"]}, ["A Dragon"], False),
        ({"key": ["/(?<=a )dragon/", "wyrm"]}, ["a wyrm"], True),
        ({"key": ["/a/b/"]}, ["see /a/b/ there"], True),
        ({"key": "ring, /a{1,2}b/ , gem"}, ["aab"], True),
        ({"key": "ring, gem"}, ["a gem"], True),
        ({"key": "ring、宝石"}, ["宝石だ"], True),
        ({"key": ["Ring"], "caseSensitive": True}, ["ring"], False),
        ({"key": ["Ring"], "caseSensitive": False}, ["ring"], True),
        # keys that are none
        ({"constant": True}, ["x"], True),
        ({"constant": "true"}, ["x"], True),
        ({"constant": True, "key": ["dragon"], **TWO}, ["x"], True),
        ({"key": ["dragon"], "disable": True}, ["dragon"], False),
        ({"key": ["dragon"], "disable": "true"}, ["dragon"], False),
        ({"key": ["dragon"], "disable": "false"}, ["dragon"], True),
        # secondary keys: any, not all, not any, all
        ({"key": ["dragon"], "selectiveLogic": 0, **TWO}, ["dragon"], False),
        ({"key": ["dragon"], "selectiveLogic": 0, **TWO}, ["dragon gold"], True),
        ({"key": ["dragon"], "selectiveLogic": 1, **TWO}, ["dragon gold"], True),
        ({"key": ["dragon"], "selectiveLogic": 1, **TWO}, ["dragon gold cave"], False),
        ({"key": ["dragon"], "selectiveLogic": 2, **TWO}, ["dragon"], True),
        ({"key": ["dragon"], "selectiveLogic": 2, **TWO}, ["dragon gold"], False),
        ({"key": ["dragon"], "selectiveLogic": 3, **TWO}, ["dragon gold"], False),
        ({"key": ["dragon"], "selectiveLogic": "3", **TWO}, ["dragon gold cave"], True),
        ({"key": ["dragon"], "selectiveLogic": 2, **TWO}, ["x"], False),
        ({"key": ["dragon"], "selective": False, **TWO}, ["dragon"], True),
        # how far back
        ({"key": ["dragon"], "scanDepth": 1}, ["x", "dragon"], False),
        ({"key": ["dragon"], "scanDepth": "6"}, ["x", "x", "x", "x", "x", "dragon"], True),
        # when: message by message, the draft included
        ({"key": ["dragon"], "probability": 0}, ["dragon"], False),
        ({"constant": True, "probability": 0}, ["dragon"], False),
        ({"key": ["dragon"], "probability": 0, "useProbability": False}, ["dragon"], True),
        ({"key": ["dragon"], "probability": "0"}, ["dragon"], False),
        ({"key": ["dragon"], "delay": 3}, ["dragon", "x"], False),
        ({"key": ["dragon"], "delay": 3}, ["dragon", "x", "x"], True),
        ({"constant": True, "delay": 3}, ["x", "x"], False),
        ({"key": ["dragon"], "scanDepth": 1, "sticky": 3}, ["x", "x", "dragon"], True),
        ({"key": ["dragon"], "scanDepth": 1, "sticky": 2}, ["x", "x", "dragon"], False),
        ({"key": ["dragon"], "cooldown": 3}, ["dragon", "x", "dragon"], False),
        ({"key": ["dragon"], "scanDepth": 1, "cooldown": 2}, ["dragon", "x", "dragon"], True),
        ({"key": ["dragon"], "scanDepth": 1, "sticky": 2, "cooldown": 4},
         ["dragon", "x", "x", "x", "dragon"], False),
        ({"key": ["dragon"], "scanDepth": 1, "sticky": 2, "cooldown": 2},
         ["dragon", "x", "x", "x", "dragon"], True),
        ({"key": ["dragon"], "triggers": ["normal", "swipe"]}, ["dragon"], True),
        ({"key": ["dragon"], "triggers": ["quiet"]}, ["dragon"], False),
        ({"key": ["dragon"], "position": 7, "outletName": "x"}, ["dragon"], False),
        ({"key": ["dragon"], "delayUntilRecursion": True}, ["dragon"], False),
    ],
)  # fmt: skip
def test_an_entry_fires(
    written: Any, fields: dict[str, Any], conversation: Sequence[str], is_active: bool
) -> None:
    """In a conversation, newest message first."""
    if written is exported and isinstance(fields.get("disable"), str):
        book = exported(fields | {"disable": False})
        book["entries"][0]["enabled"] = "false" if fields["disable"] == "true" else "true"
    else:
        book = written(fields)
    assert texts(active(Lorebook.parse(book), *conversation)) == ["Lore 0."] * is_active


CHAIN = {"key": ["cave"], "content": "A dragon."}
BEHIND = {"key": ["dragon"], "content": "Gold."}
LAST = {"key": ["gold"], "content": "End."}


@DIALECTS
@pytest.mark.parametrize(
    ("entries", "fired"),
    [
        ([CHAIN, BEHIND, LAST], "012"),
        ([CHAIN, BEHIND | {"excludeRecursion": True}, LAST], "0"),
        ([CHAIN, BEHIND | {"preventRecursion": True}, LAST], "01"),
        ([CHAIN | {"preventRecursion": True}, BEHIND], "0"),
        ([CHAIN, BEHIND | {"delayUntilRecursion": True}], "01"),
        ([CHAIN, {"key": ["cave"], "delayUntilRecursion": 1}], "01"),
        ([CHAIN, {"key": ["cave"], "delayUntilRecursion": 1, "content": "Gold."},
          LAST | {"delayUntilRecursion": 2}], "012"),
        # one of a group
        ([{"key": ["cave"], "group": "a"}, {"key": ["cave"], "group": "a"}], "0"),
        ([{"key": ["cave"], "group": "a", "groupWeight": 0}, {"key": ["cave"], "group": "a"}], "1"),
        ([{"key": ["cave"], "group": "a"},
          {"key": ["cave"], "group": "a, b", "groupOverride": True}], "1"),
        ([{"key": ["cave"], "group": "a"}, {"key": ["cave"], "group": "b"}], "01"),
        ([CHAIN | {"group": "a"}, BEHIND | {"group": "a"}], "0"),
    ],
)  # fmt: skip
def test_entries_fire_others(written: Any, entries: list[dict[str, Any]], fired: str) -> None:
    """Recursion is on, as in its settings unless it is turned off; a book may turn it off."""
    book = written(*entries)
    assert sorted(ids(active(Lorebook.parse(book), "the cave"))) == list(fired)
    alone = Lorebook.parse(book | {"recursive_scanning": False})
    assert "2" not in ids(active(alone, "the cave")) or not any(
        "delayUntilRecursion" not in of for of in entries[2:]
    )


@DIALECTS
@pytest.mark.parametrize(
    ("fields", "placement"),
    [
        ({"position": 0}, Placement("before_char")),
        ({"position": 1}, Placement("after_char")),
        ({"position": 4, "depth": 2, "role": 1}, Placement("depth", 2, "user")),
        ({"position": 4, "depth": 0, "role": 2}, Placement("depth", 0, "assistant")),
        ({"position": "4", "depth": "6", "role": "0"}, Placement("depth", 6, "system")),
        ({"position": 4, "depth": None, "role": None}, Placement("depth", 4, "system")),
        ({"position": 2}, Placement("depth", 4, "system")),
        ({"position": 5}, Placement("after_char")),
    ],
)
def test_an_entry_stands(written: Any, fields: dict[str, Any], placement: Placement) -> None:
    """Where its number says, whatever the word beside it."""
    lore = active(Lorebook.parse(written({"constant": True} | fields)), "x")
    assert [of.placement for of in lore.entries] == [placement]


@DIALECTS
def test_order_is_a_number_also_as_text_and_says_what_is_left_out(written: Any) -> None:
    """The lowest stands first, and is left out first, unless it ignores the budget."""
    book = written(
        {"constant": True, "order": "20"},
        {"constant": True, "order": 3},
        {"constant": True, "order": "1", "ignoreBudget": True},
    )
    assert ids(active(Lorebook.parse(book), "x")) == ["2", "1", "0"]
    assert ids(active(Lorebook.parse(book), "x", max_tokens=4)) == ["2", "0"]


@DIALECTS
def test_chance_is_drawn_once_a_turn(written: Any) -> None:
    """The same while a message is typed, and about as often as the entry says."""
    lorebook = Lorebook.parse(written({"key": ["cave"], "probability": 30}))

    def fires(draft: str, before: str, drawn: float) -> bool:
        scanned = [
            ScannedMessage(True, lorebook.matcher.found_in(draft), draft),
            ScannedMessage(False, frozenset(), before),
        ]
        moments: list[str] = []

        def draw(moment: str) -> float:
            moments.append(moment)
            return drawn

        lore = activate(lorebook, scanned, len, 100, draw=draw)
        assert len(moments) == 1
        assert before in moments[0] and draft not in moments[0]
        return bool(lore.entries)

    assert fires("the cave", "Well?", 0.29)
    assert not fires("the cave", "Well?", 0.3)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"vectorized": True}, "vectorized"),
        ({"useGroupScoring": True}, "use_group_scoring"),
        ({"automationId": "script"}, "automation_id"),
        ({"matchPersonaDescription": True}, "match_persona_description"),
        ({"matchCharacterDescription": True}, "match_character_description"),
        ({"matchCharacterPersonality": True}, "match_character_personality"),
        ({"matchCharacterDepthPrompt": True}, "match_character_depth_prompt"),
        ({"matchScenario": True}, "match_scenario"),
        ({"matchCreatorNotes": True}, "match_creator_notes"),
        ({"position": 2}, "position"),
        ({"position": 3}, "position"),
        ({"position": 5}, "position"),
        ({"position": 6}, "position"),
        ({"position": 7, "outletName": "x"}, "outlet_name"),
        ({"triggers": ["quiet"]}, "triggers"),
    ],
)
@DIALECTS
def test_what_is_not_supported_is_named(written: Any, fields: dict[str, Any], field: str) -> None:
    """By its field and the entries that ask for it."""
    notices = Lorebook.parse(written({}, {"key": ["a"]} | fields)).notices()
    assert [notice.field for notice in notices] == [f"character_book.entries.extensions.{field}"]
    assert notices[0].text.startswith("not supported: ")
    assert notices[0].text.endswith("; entries 1")


@DIALECTS
def test_what_is_supported_is_not_remarked_on(written: Any) -> None:
    """Nor what a new entry has, whatever else it is called."""
    book = written(
        {"key": ["a"], "sticky": 2, "cooldown": 3, "delay": 1, "group": "g", "probability": 50},
        {"key": ["/b/i"], "position": 4, "selectiveLogic": 3, "triggers": ["normal"]},
    )
    assert Lorebook.parse(book).notices() == []
    filtered = world({"characterFilter": {"isExclude": False, "names": ["Mara"], "tags": []}})
    fields = [notice.field for notice in Lorebook.parse(filtered).notices()]
    assert fields == ["character_book.entries.extensions.character_filter"]


def test_many_entries_are_named_by_the_first_of_them() -> None:
    """And a pattern that cannot run is named as what it is."""
    book = world(*[{"key": ["/(?=x)/"]} for _ in range(12)])
    (notice,) = Lorebook.parse(book).notices()
    assert notice.field == "character_book.entries"
    assert notice.text.endswith("; entries 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more")


def test_only_the_extensions_of_silly_tavern_make_a_key_plain() -> None:
    """Chub writes them with capitals; in other books of V3 `use_regex` is what it is there."""
    regex = {"keys": ["r.ng"], "use_regex": True, "constant": True}
    plain = Lorebook.parse({"entries": [entry("Lore.", **regex)]})
    assert ids(active(plain, "a rung")) == ["0"]
    assert ids(active(plain, "x")) == []
    for extensions in (
        {"selectiveLogic": 0, "useProbability": True, "excludeRecursion": True},
        {"display_index": 3},
    ):
        of_it = entry("Lore.", **regex | {"constant": False}, extensions=extensions)
        assert ids(active(Lorebook.parse({"entries": [of_it]}), "a rung")) == []
        assert ids(active(Lorebook.parse({"entries": [of_it]}), "a r.ng")) == ["0"]


@pytest.mark.parametrize(
    "key", ["{{char}}", "{{ CHAR }}", "<BOT>", "old {{char}}", "/{{char}}\\?/"]
)
def test_keys_name_the_companion(key: str) -> None:
    """As text even in a pattern."""
    book = exported({"key": [key]})
    assert ids(active(Lorebook.parse(book, "Mara (the elder)"), "old Mara (the elder)?")) == ["0"]
    assert ids(active(Lorebook.parse(book, "Mara"), "old {{char}}? the elder")) == []
    assert ids(active(Lorebook.parse(book), "old {{char}}?")) == []


def test_a_key_that_names_a_player_who_is_not_known_matches_nothing() -> None:
    """Also as a secondary one."""
    book = exported({"key": ["{{user}}"]}, {"key": ["cave"], "keysecondary": ["{{user}}"]})
    known = Lorebook.parse(book, "Mara", "Ana")
    assert known.names_user
    assert ids(active(known, "Ana is in the cave")) == ["0", "1"]
    assert ids(active(Lorebook.parse(book, "Mara"), "you are in the cave")) == []
