"""Core memory and usage patterns, as rules write them."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from foremind.background.core_memory import (
    core_memory_by_rules,
    core_memory_sources,
    with_manual_lines,
)
from foremind.background.profile_extraction import usage_patterns_of
from foremind.domain.record import Details, Record
from foremind.domain.relationship import SessionUsage
from foremind.llm.prompt.sections import note_line
from foremind.text.sentences import sentence_keys, sentences_in

NOW = datetime(2026, 5, 20, 19, tzinfo=UTC)


def test_manual_lines_come_first_and_nothing_is_repeated() -> None:
    """The sources follow."""
    text = core_memory_by_rules(
        "Ana is in mourning.", ["goal: Sail to Madeira", "note: ana is in mourning."]
    )
    assert text.splitlines() == ["Ana is in mourning.", "goal: Sail to Madeira"]


def test_the_lines_of_a_topic_stay_apart() -> None:
    """On one line, each a sentence, so that none appears twice in a prompt."""
    topic = "boat (3 May): On 1 May 2026:\nI keep bees\nHow are they?\nSettled: We sail in June"
    (line,) = core_memory_by_rules("", [topic]).splitlines()
    assert line == (
        "boat (3 May): On 1 May 2026: I keep bees; How are they? Settled: We sail in June"
    )
    keys = sentence_keys(sentences_in(line))
    assert {*sentence_keys(["I keep bees"]), *sentence_keys(["We sail in June"])} <= {*keys}


def test_manual_lines_that_a_model_omits_come_first() -> None:
    """Lines that it paraphrases are not repeated."""
    manual_text = "Ana is in mourning for her brother.\n\nCall her captain.\n★"
    text = "Ana mourns; since May she is in mourning for a brother.\nShe sails."
    assert with_manual_lines(manual_text, text) == f"Call her captain.\n★\n{text}"
    assert with_manual_lines("", text) == text


def note(number: int, content: str, kind: str = "event", rank: int = 3000) -> Record:
    """A note, of a later moment than those with lower numbers."""
    at = NOW + timedelta(minutes=number)
    return Record(
        number, "scratchpad", kind, "", content, (), Details(rank=rank), None, "rules", None,
        at, at, 1,
    )  # fmt: skip


def test_core_memory_is_made_of_all_notes_by_rank() -> None:
    """A need noted before thirty trifles is first; the trifles that have no room are left out."""
    trifles = [
        note(number, f"Saw boat number {number} at the pier today") for number in range(2, 90)
    ]
    allergy = note(1, "I'm allergic to peanuts.", "preference", 1)
    lines = core_memory_sources([allergy, *trifles], UTC, "en")
    assert lines[0] == "preference (20 May 2026): I'm allergic to peanuts."
    assert lines[1].endswith("boat number 89 at the pier today")  # of equal rank, the newest
    assert 20 < len(lines) < 40
    assert len(core_memory_sources([allergy, *trifles], UTC, "en", 4000)) == 89


def test_recap_and_open_questions_stay_in_their_own_layers() -> None:
    """Core memory is in every prompt, where they would stand long after they matter."""
    recap = replace(note(1, "Ana: I must go."), layer="opening", kind="")
    asked = replace(
        note(2, "Who has the key?"), layer="questions", kind="", details=Details(status="open")
    )
    topic = replace(
        note(3, "The boat is old.\nSettled: Sell it.\nLeft open: Who buys it?"),
        layer="topics", title="boat", kind="",
    )  # fmt: skip
    (line,) = core_memory_sources([recap, asked, topic], UTC, "en")
    assert line == "boat (20 May 2026): The boat is old.\nSettled: Sell it."
    in_german = replace(topic, content="Das Boot ist alt.\nOffen geblieben: Wer kauft es?")
    assert core_memory_sources([in_german], UTC, "en") == ["boat (20 May 2026): Das Boot ist alt."]


def test_a_note_by_hand_without_a_kind_has_no_label() -> None:
    """Neither there nor among the notes: a colon after nothing would be noise to a model."""
    written = replace(note(1, "I sail on Sundays."), kind="", made_by="user")
    assert core_memory_sources([written], UTC, "en") == ["I sail on Sundays."]
    assert note_line(written, "Ana").text() == '- "I sail on Sundays."'


def usage(day: int, said: int, length: int) -> SessionUsage:
    """A session of messages of one length."""
    return SessionUsage(uuid.UUID(int=day), said, said * length)


@pytest.mark.parametrize(
    ("sessions", "patterns"),
    [
        ([usage(day, 8, 12) for day in range(9)], {}),  # too few to tell
        ([usage(day, 8, 12) for day in range(10)], {"answers": "prefers short answers"}),
        ([usage(day, 8, 100) for day in range(10)], {}),
        ([usage(day, 3, 400) for day in range(12)], {"answers": "prefers detailed answers"}),
        (
            [*(usage(day, 8, 12) for day in range(10)), usage(11, 1, 9000)],
            {"answers": "prefers short answers"},
        ),
    ],
)
def test_usage_patterns_are_instructions(
    sessions: list[SessionUsage], patterns: dict[str, str]
) -> None:
    """From ten sessions on, by the length of messages; no statistics."""
    assert usage_patterns_of(sessions, "en") == patterns


def test_usage_patterns_are_in_the_players_language() -> None:
    """Their titles are labels, which a prompt translates."""
    sessions = [usage(day, 8, 12) for day in range(10)]
    assert usage_patterns_of(sessions, "de") == {"answers": "bevorzugt kurze Antworten"}
