"""Operations on the notes: which are valid, and which follow from rules."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from foremind.background.extractive_summary import Utterance
from foremind.background.note_rules import entry_kind, note_rank, updates_by_rules
from foremind.background.notes import entries_for_prompt, notes_to_evict, valid_operations
from foremind.background.prompts import NoteOperation
from foremind.domain.companion_rules import KINDS
from foremind.domain.record import NO_DETAILS, Record
from foremind.text.statements.extraction import statements_in

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def entry(number: int, content: str) -> Record:
    """An entry of the notes."""
    return Record(
        number, "scratchpad", "identity", "", content, (), NO_DETAILS, None, "rules", None,
        NOW, NOW, 1,
    )  # fmt: skip


def test_invalid_operations_are_dropped() -> None:
    """Unknown ids and incomplete operations; kinds are matched case-insensitively."""
    valid = [
        NoteOperation("ADD", kind="Goal", entry="Run"),
        NoteOperation("ADD", kind="mood", entry="Glad to run"),
        NoteOperation("UPDATE", 1, entry="Run far"),
        NoteOperation("DELETE", 1),
    ]
    invalid = [
        NoteOperation("ADD", entry="Run"),
        NoteOperation("ADD", kind="goal"),
        NoteOperation("UPDATE", 2, entry="Run"),
        NoteOperation("UPDATE", 1),
        NoteOperation("DELETE"),
    ]
    accepted = valid_operations([*invalid, *valid], KINDS, {1})
    assert [operation.op for operation in accepted] == ["ADD", "ADD", "UPDATE", "DELETE"]
    assert [operation.kind for operation in accepted] == ["goal", "other", None, None]
    assert valid_operations(valid[1:2], {"goal"}, {1}) == []


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
def test_sentences_become_entries_of_their_kind(text: str, kind: str | None) -> None:
    """Or no entry."""
    assert entry_kind(text, statements_in(text)) == kind


@pytest.mark.parametrize(
    "text",
    [
        "my boss wrote me this: I hate working here and I live in Paris",
        "my friend texted me: I'm allergic to nuts. I live in Paris.",
        "She wrote:\nI hate everything.\nI live in Paris.",
        'He told me "I hate fish"',
        "call me a cab",
        "call me by the number I gave you",
        "Everyone calls me when they need something",
    ],
)
def test_what_others_said_and_errands_are_no_notes(text: str) -> None:
    """They say nothing about the player."""
    assert updates_by_rules([Utterance(1, "Ana", True, text, 0.5)], []) == []


def test_a_statement_on_the_same_fact_updates_its_entry() -> None:
    """One home, not two."""
    utterances = [Utterance(1, "Ana", True, "I moved to Porto. My goal is to sail.", 0.5)]
    updates = updates_by_rules(utterances, [entry(7, "I live in Lisbon")])
    assert [(update.operation, update.turns) for update in updates] == [
        (NoteOperation("UPDATE", 7, "identity", "I moved to Porto."), (1,)),
        (NoteOperation("ADD", None, "goal", "My goal is to sail."), (1,)),
    ]


@pytest.mark.parametrize(
    ("noted", "said", "operations"),
    [
        # What else is said of the same sister, dog, home leaves the first note as it is.
        ("My sister Lena is a nurse.", "My sister Lena lives in Rome.", ["ADD"]),
        ("My sister is called Lena.", "My sister Ana lives in Rome.", ["ADD"]),
        ("My dog is called Rex and he bites.", "My dog Rex is ill.", ["ADD"]),
        ("I live in Porto.", "I live in Porto, near the river.", ["ADD"]),
        # Another value of the same fact takes its place, if no other fact is lost with it.
        ("I live in Lisbon.", "I live in Porto.", ["UPDATE"]),
        ("My favourite tea is mint.", "My favourite tea is sage.", ["UPDATE"]),
        ("I love olives.", "I hate olives.", ["UPDATE"]),
        ("My name is Ana and I live in Braga.", "I live in Porto.", ["ADD"]),
        ("", "I live in Lisbon. I live in Porto.", ["ADD"]),
        ("", "My sister Lena is a nurse. My sister Lena lives in Rome.", ["ADD", "ADD"]),
    ],
)
def test_a_note_is_only_replaced_by_another_value(
    noted: str, said: str, operations: list[str]
) -> None:
    """Otherwise both are kept."""
    entries = [entry(7, noted)] if noted else []
    updates = updates_by_rules([Utterance(1, "Ana", True, said, 0.5)], entries)
    assert [update.operation.op for update in updates] == operations
    assert str(updates[-1].operation.entry) in said


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("preference", "I'm allergic to peanuts."), ("identity", "My name is Ana.")),
        (("other", "Is allergic to peanuts"), ("identity", "Lives in Porto")),
        (("food", "Ana is vegan"), ("relationship", "My sister is called Lena.")),
        (("identity", "My name is Ana."), ("event", "I promise to remember you forever!")),
        (("food", "Eats at noon"), ("goal", "My goal is to sail.")),
        (("event", "I promise to help and trust you, always"), ("event", "Saw a boat.")),
    ],
)
def test_notes_are_ranked_by_need_kind_and_significance(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    """Whether users or models put them into words; with kinds of a companion's own."""
    assert 0 < note_rank(*first, "Ana") < note_rank(*second, "Ana")


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ("Im vegan", "I'm not vegan anymore"),
        ("I'm allergic to nuts", "no longer allergic to nuts"),
        ("I'm allergic to nuts", "I outgrew my nut allergy"),
        ("I have a dog called Bello", "Bello died yesterday"),
        ("I live in Porto", "Forget that I live in Porto"),
    ],
)
def test_what_has_ended_is_no_note_any_more(noted: str, said: str) -> None:
    """Whether it was noted before or is of the same batch."""
    ended = Utterance(2, "Ana", True, said, 0.5)
    other = entry(2, "My dog is called Scout")
    (update,) = updates_by_rules([ended], [entry(1, noted), other])
    assert (update.operation.op, update.operation.id, update.turns) == ("DELETE", 1, (2,))
    assert updates_by_rules([Utterance(1, "Ana", True, noted, 0.5), ended], [other]) == []


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        (
            "my favourite band is Clã. no wait, its Ornatos Violeta",
            ["my favourite band is Clã. no wait, its Ornatos Violeta"],
        ),
        ("My favourite colour is blue. No wait, green.",
         ["My favourite colour is blue. No wait, green."]),
        ("I'm 30. I mean 31.", ["I'm 30. I mean 31."]),
        ("My name is Rita. I live in Porto.", ["My name is Rita.", "I live in Porto."]),
    ],
)  # fmt: skip
def test_what_is_corrected_in_a_message_is_noted_with_its_correction(
    said: str, noted: list[str]
) -> None:
    """Alone it would contradict the profile."""
    updates = updates_by_rules([Utterance(1, "Rita", True, said, 0.5)], [])
    assert [update.operation.entry for update in updates] == noted


@pytest.mark.parametrize(
    ("said", "noted"),
    [("im super allergic to peanuts, so no nuts ok?", 1), ("I'm allergic to peanuts, right?", 0)],
)
def test_what_asks_for_assent_only_is_noted(said: str, noted: int) -> None:
    """It is no question."""
    assert len(updates_by_rules([Utterance(1, "Rita", True, said, 0.5)], [])) == noted


def test_companion_utterances_become_no_entries() -> None:
    """The notes are about the user."""
    assert updates_by_rules([Utterance(1, "Wren", False, "My goal is to sail.", 0.5)], []) == []


def test_the_least_significant_entries_are_evicted_and_manual_ones_never() -> None:
    """Of equals the oldest; none while the limit is not reached."""
    entries = [entry(number, f"Saw boat number {number}") for number in range(500)]
    entries[0] = entry(0, "I promise to remember my sister, always")
    entries[1] = replace(entries[1], made_by="user")
    later = NOW + timedelta(days=1)
    entries[2] = replace(entries[2], updated_at=later)
    assert notes_to_evict(entries[:-3], 4) == []  # the one by hand does not count
    assert notes_to_evict(entries, 3) == [3, 4]
    by_hand = [replace(note, id=note.id + 1000, made_by="developer") for note in entries]
    assert notes_to_evict([*entries, *by_hand], 3) == [3, 4]


def test_a_model_is_shown_the_newest_and_the_nearest_entries() -> None:
    """In their original order."""
    query = np.array([1.0, 0.0], np.float32)
    orthogonal = np.array([0.0, 1.0], np.float32)
    entries = [
        replace(entry(number, "x"), updated_at=NOW + timedelta(days=number), vector=orthogonal)
        for number in range(200)
    ]
    entries[7] = replace(entries[7], vector=query)
    shown = [note.id for note in entries_for_prompt(entries, query)]
    assert len(shown) == 60
    assert shown == sorted(shown)
    assert {7, *range(170, 200)} <= set(shown)


@pytest.mark.parametrize("text", ["Can't you remember my dog", "don't I always hate olives"])
def test_a_question_is_no_note(text: str) -> None:
    """With or without a question mark."""
    assert entry_kind(text, statements_in(text)) is None
    assert entry_kind(f"{text}?", statements_in(f"{text}?")) is None
