"""What stands around quotations in a prompt is in the prompt's language."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from foremind.domain.memory import Recalled
from foremind.domain.record import Details, MadeBy, Record, RecordLayer
from foremind.domain.session_state import SessionState
from foremind.llm.prompt.sections import (
    episode_line,
    memory_lines,
    note_line,
    question_line,
    standing_sections,
    state_section,
    topic_line,
    vault_line,
    weak_match_preface,
)
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.text.languages.language_files import LANGUAGES
from foremind.text.languages.prompt_words import day_in

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
THEN = NOW - timedelta(days=21)
SAID = "Ich wohne in Porto."


def _memory(speaker: str = "user", *, superseded: bool = False) -> Recalled:
    return Recalled(
        1, SAID, speaker, "conversation", 0.5, THEN, superseded, 0.1, 0.1, 0.1, 0.1  # type: ignore[arg-type]
    )  # fmt: skip


def _record(layer: RecordLayer, made_by: MadeBy = "rules", **details: object) -> Record:
    """A record of three weeks ago."""
    values = Details(**details)  # type: ignore[arg-type]
    kind = "stated" if layer == "profile" else "ort"
    return Record(
        1, layer, kind, "Porto", SAID, (), values, None, made_by, None, THEN, THEN, 1
    )  # fmt: skip


def test_lines_of_what_was_recalled_are_in_german() -> None:
    """Every kind of line, whatever it quotes."""
    memories = [_memory(), _memory("companion"), _memory(superseded=True)]
    recalled = [line.text() for line in memory_lines(memories, "Ana", NOW, "de")]
    then = "vor 3 Wochen, am 29. April 2026"
    assert recalled == [
        f'- {then}, sagte "Ana": "{SAID}"',
        f'- {then}, sagtest du: "{SAID}"',
        f'- {then}, sagte "Ana" (gilt nicht mehr): "{SAID}"',
    ]
    assert weak_match_preface(memories, "de").startswith("(Das passt nur entfernt")
    episode = _record("episodes", conclusions=("Umzug im Mai",))
    assert episode_line(episode, NOW, "de").text() == (
        f'- {then}, über "Porto": "{SAID}" Ihr habt geklärt: "Umzug im Mai"'
    )
    topic = _record("topics", sessions=3)
    assert topic_line(topic, NOW, "de").text() == (
        f'- "Porto" (Gespräche darüber: 3, zuletzt {then}): "{SAID}"'
    )
    for sessions in (0, 1):
        assert topic_line(_record("topics", sessions=sessions), NOW, "de").text() == (
            f'- "Porto" (zuletzt {then}): "{SAID}"'
        )
    for attempts, left_open in (
        (0, "und es blieb offen"),
        (2, "es blieb offen und kam seither 2-mal wieder auf"),
    ):
        question = _record("questions", attempts=attempts)
        assert question_line(question, "Ana", NOW, "de").text() == (
            f'- Darüber habt ihr {then}, gesprochen, {left_open}; "Ana" möchte vielleicht darauf '
            f'zurückkommen: "{SAID}"'
        )
    assert (
        note_line(_record("scratchpad"), "Ana", "de").text() == f'- ort, 29. April 2026: "{SAID}"'
    )
    assert vault_line(_record("vault", "user"), NOW, "de").text() == (
        f'- {then}, auf Wunsch gespeichert: "Porto": "{SAID}"'
    )
    assert vault_line(_record("vault", "developer"), NOW, "de").text() == (
        f'- {then}, vom Spiel gespeichert: "Porto": "{SAID}"'
    )


def test_lines_of_every_prompt_are_in_german() -> None:
    """The profile, the recap and the session's state."""
    inferred = replace(_record("profile"), kind="inferred")
    records = [_record("profile"), inferred, _record("opening")]
    sections = standing_sections(records, estimate_tokens, "Ana", "de")
    assert sections["profile"].lines == (
        f'- "Porto": "{SAID}" (gesagt am 29. April 2026)',
        f'- anscheinend: "Porto": "{SAID}"',
    )
    assert sections["opening"].lines == (
        "- Das letzte Gespräch, am 29. April 2026, endete so; komm nur darauf zurück, wenn es "
        f'passt: "{SAID}"',
    )
    state = state_section(SessionState("Fisch fangen", {}), estimate_tokens, "de")
    assert state.lines == ('- die laufende Aufgabe: "Fisch fangen"',)


def test_labels_of_foremind_are_in_german_and_those_of_others_as_they_are() -> None:
    """Slots, kinds of notes and usage patterns; not what somebody else named, or wrote by hand."""
    usage = replace(_record("profile"), kind="inferred", title="answers")
    home = replace(_record("profile"), title="home")
    boat = replace(_record("profile"), title="boat", content="Zephyrine")
    mine = replace(_record("profile", "user"), title="home", content="Braga")
    sections = standing_sections([home, boat, mine, usage], estimate_tokens, "Ana", "de")
    assert sections["profile"].lines == (
        '- "home": "Braga"',
        f'- "Wohnort": "{SAID}" (gesagt am 29. April 2026)',
        '- "boat": "Zephyrine" (gesagt am 29. April 2026)',
        f'- anscheinend: "Antworten": "{SAID}"',
    )
    goal = replace(_record("scratchpad"), kind="goal")
    assert note_line(goal, "Ana", "de").text() == f'- Ziel, 29. April 2026: "{SAID}"'


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_what_repeats_is_found_in_every_language(language: str) -> None:
    """Lines are compared by their days, which are not the days that are shown."""
    (memory,) = memory_lines([_memory()], "Ana", NOW, language)
    note = note_line(_record("scratchpad"), "Ana", language)
    assert memory.day == note.day == "29 April 2026"
    assert day_in(language, THEN) in memory.text()
