"""Operations on the scratchpad: which are done, and which rules make."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from foremind.background.extractive_summary import Utterance
from foremind.background.notes import by_rules, checked, kind_of, to_be_shown, without_room
from foremind.background.prompts import NoteOperation
from foremind.domain.companion import KINDS
from foremind.domain.record import NOTHING_KNOWN, Record

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def entry(number: int, content: str) -> Record:
    """An entry of the scratchpad."""
    return Record(
        number, "scratchpad", "identity", "", content, (), NOTHING_KNOWN, None, "rules", None,
        NOW, NOW, 1,
    )  # fmt: skip


def test_only_what_can_be_done_is_done() -> None:
    """Ids that are unknown and what says too little fall out; a kind is known in any case."""
    good = [
        NoteOperation("ADD", kind="Goal", entry="Run"),
        NoteOperation("ADD", kind="mood", entry="Glad to run"),
        NoteOperation("UPDATE", 1, entry="Run far"),
        NoteOperation("DELETE", 1),
    ]
    bad = [
        NoteOperation("ADD", entry="Run"),
        NoteOperation("ADD", kind="goal"),
        NoteOperation("UPDATE", 2, entry="Run"),
        NoteOperation("UPDATE", 1),
        NoteOperation("DELETE"),
    ]
    kept = checked([*bad, *good], KINDS, {1})
    assert [each.op for each in kept] == ["ADD", "ADD", "UPDATE", "DELETE"]
    assert [each.kind for each in kept] == ["goal", "other", None, None]
    assert checked(good[1:2], {"goal"}, {1}) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("My name is Ana.", "identity"),
        ("I live in Porto.", "identity"),
        ("My favourite tea is mint.", "preference"),
        ("I'm allergic to nuts.", "preference"),
        ("Don't call me honey.", "preference"),
        ("Keep your answers short.", "preference"),
        ("I'm lactose intolerant.", "preference"),
        ("My dog is called Scout.", "relationship"),
        ("My goal is to run a marathon.", "goal"),
        ("I visited my sister in Braga.", "relationship"),
        ("I'm so scared, I promise I will help and trust you.", "event"),
        ("What is your favourite tea?", None),
        ("Nice weather.", None),
    ],
)
def test_sentences_make_entries_of_their_kind(text: str, kind: str | None) -> None:
    """Or none."""
    assert kind_of(text) == kind


def test_a_statement_about_the_same_updates_its_entry() -> None:
    """One home, not two."""
    talk = [Utterance(1, "Ana", True, "I moved to Porto. My goal is to sail.", 0.5)]
    notes = by_rules(talk, [entry(7, "I live in Lisbon")])
    assert [(note.operation, note.turns) for note in notes] == [
        (NoteOperation("UPDATE", 7, "identity", "I moved to Porto."), (1,)),
        (NoteOperation("ADD", None, "goal", "My goal is to sail."), (1,)),
    ]


def test_what_the_companion_says_makes_no_entry() -> None:
    """The scratchpad is about the user."""
    assert by_rules([Utterance(1, "Wren", False, "My goal is to sail.", 0.5)], []) == []


def test_what_matters_least_makes_room_and_never_what_was_written_by_hand() -> None:
    """Of equals the oldest; nothing goes while there is room."""
    entries = [entry(number, f"Saw boat number {number}") for number in range(500)]
    entries[0] = entry(0, "I promise to remember my sister, always")
    entries[1] = replace(entries[1], made_by="user")
    later = NOW + timedelta(days=1)
    entries[2] = replace(entries[2], updated_at=later)
    assert without_room(entries[:-3], 3) == []
    assert without_room(entries, 2) == [3, 4]


def test_a_model_is_shown_the_newest_entries_and_those_that_were_spoken_of() -> None:
    """Of many; each in its place."""
    towards = np.array([1.0, 0.0], np.float32)
    away = np.array([0.0, 1.0], np.float32)
    entries = [
        replace(entry(number, "x"), updated_at=NOW + timedelta(days=number), vector=away)
        for number in range(200)
    ]
    entries[7] = replace(entries[7], vector=towards)
    shown = [each.id for each in to_be_shown(entries, towards)]
    assert len(shown) == 60
    assert shown == sorted(shown)
    assert {7, *range(170, 200)} <= set(shown)
