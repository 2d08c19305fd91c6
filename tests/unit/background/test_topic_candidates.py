"""Recurring topics and their paragraphs."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.background.topic_candidates import (
    TopicCandidate,
    canonical_topic,
    paragraph_by_rules,
    source_lines,
    topic_candidates_in,
)
from foremind.domain.record import NO_DETAILS, Details, MadeBy, Record, RecordLayer

DAY = datetime(2026, 5, 20, 19, tzinfo=UTC)


def record(
    number: int,
    layer: RecordLayer,
    content: str,
    title: str = "",
    details: Details = NO_DETAILS,
    made_by: MadeBy = "rules",
) -> Record:
    """A record with its own day and session."""
    at = DAY + timedelta(days=number)
    return Record(
        number, layer, "", title, content, (), details, None, made_by,
        uuid.UUID(int=number), at, at, 1,
    )  # fmt: skip


def episode(number: int, *topics: str, concluded: str = "", left_open: str = "") -> Record:
    """An episode in its own session."""
    details = Details(
        topics=topics,
        conclusions=(concluded,) if concluded else (),
        open_questions=(left_open,) if left_open else (),
    )
    return record(number, "episodes", f"They spoke of the {topics[0]}.", topics[0], details)


def paragraph(number: int, title: str, upto: int, made_by: MadeBy = "model") -> Record:
    """A topic paragraph that covers the episodes up to `upto`."""
    return record(number, "topics", f"About {title}.", title, Details(upto=upto), made_by)


def qualifying(*records: Record) -> dict[str, TopicCandidate]:
    """The candidates that qualify for a paragraph, by key."""
    return {
        candidate.key: candidate
        for candidate in topic_candidates_in(records)
        if candidate.qualifies
    }


def test_a_topic_needs_three_sessions_or_a_conclusion() -> None:
    """In any form of the word."""
    twice = [episode(1, "garden"), episode(2, "the gardens")]
    assert qualifying(*twice) == {}
    assert list(qualifying(*twice, episode(3, "Garden"))) == ["garden"]
    assert list(qualifying(episode(1, "garden", concluded="We decided to water the garden")))
    for no_topic in ("a chat", "ein Gespräch", "雑談"):
        assert qualifying(*(episode(number, no_topic) for number in range(9))) == {}


@pytest.mark.parametrize(
    ("topics", "concluded", "qualify"),
    [
        (["boat"], "We'll sell it in spring", ["boat"]),  # names none: it is on the first
        (["boat", "harbour"], "We'll sell it in spring", ["boat"]),
        (["boat", "harbour"], "We'll leave the harbour in spring", ["harbour"]),
        (["boat", "harbour"], "We'll take the boat out of the harbour", ["boat", "harbour"]),
        (["violin lessons"], "I'll play with Mrs Berg on Mondays", ["lesson violin"]),
        (["boat"], "", []),
    ],
)
def test_a_conclusion_need_not_contain_the_word_of_its_topic(
    topics: list[str], concluded: str, qualify: list[str]
) -> None:
    """The paragraph says it, too."""
    candidates = qualifying(episode(1, *topics, concluded=concluded))
    assert sorted(candidates) == qualify
    for candidate in candidates.values():
        assert f"Settled: {concluded}" in paragraph_by_rules(candidate, {}, UTC, "en")


def test_names_of_one_topic_are_merged() -> None:
    """The name with the fewest words wins; separate paragraphs are merged."""
    episodes = [
        episode(1, "violin"),
        episode(2, "violin lessons"),
        episode(3, "the violin strings"),
    ]
    (candidate,) = qualifying(*episodes).values()
    assert candidate.names == ("violin", "violin lessons", "the violin strings")
    split = [*episodes, paragraph(4, "violin", 1), paragraph(5, "Violin lessons", 2)]
    (merged,) = qualifying(*split).values()
    assert [topic.id for topic in merged.merged] == [5]
    assert merged.is_stale
    assert [episode.id for episode in merged.next_batch()[0]] == [1, 2, 3]
    manual = [*episodes, paragraph(4, "violin", 1), paragraph(5, "Violin lessons", 2, "user")]
    assert qualifying(*manual)["violin"].merged == ()


@given(
    st.sets(st.sets(st.sampled_from("abcd"), min_size=1).map(lambda words: " ".join(sorted(words))))
)
def test_a_canonical_topic_is_its_own_canonical_topic(keys: set[str]) -> None:
    """Chains of names never lead to two paragraphs."""
    for key in keys:
        canonical = canonical_topic(key, keys, (), {})
        assert canonical in keys
        assert canonical_topic(canonical, keys, (), {}) == canonical
        assert set(canonical.split()) <= set(key.split())


@pytest.mark.parametrize("layer", ["scratchpad", "vault"])
def test_notes_and_pinned_texts_may_lead_to_a_topic(layer: RecordLayer) -> None:
    """If they are about it on three days, with or without conversations."""
    notes = [
        record(1, layer, "Bought a telescope in Funchal"),
        record(2, layer, "Broke the telescope on the stairs"),
        record(3, layer, "Mended his telescope with glue"),
    ]
    found = qualifying(*notes)
    contents = [note.content for note in found["telescop"].notes]
    assert contents == [note.content for note in notes]
    with_episodes = qualifying(notes[0], episode(4, "telescope"), episode(5, "telescope"))
    assert with_episodes["telescop"].occurrences == 3
    assert "Mended" in paragraph_by_rules(found["telescop"], {}, UTC, "en")


def test_mentions_in_episodes_count_for_rules() -> None:
    """Including repeated names that no episode is about."""
    episodes = [
        record(
            n, "episodes", f"Madalena spoke of the violin {n} times.", "tea", Details(topics=topics)
        )
        for n, topics in enumerate([("violin",), ("tea",), ("cake",)], 1)
    ]
    named = [replace(episode, refs=("madalena",)) for episode in episodes]
    assert qualifying(*episodes) == {}
    candidates = topic_candidates_in(named, mentions=True)
    assert [candidate.key for candidate in candidates if candidate.qualifies] == [
        "madalena",
        "violin",
    ]


def test_a_paragraph_is_stale_when_a_source_is_newer() -> None:
    """An episode, a correction or a note; manual paragraphs are never stale."""
    episodes = [episode(1, "violin"), episode(2, "violin"), episode(3, "violin")]
    assert qualifying(*episodes)["violin"].is_stale
    assert not qualifying(*episodes, paragraph(4, "violin", 3))["violin"].is_stale
    assert qualifying(*episodes, paragraph(4, "violin", 3), episode(5, "violin"))["violin"].is_stale
    late = record(6, "scratchpad", "Sold the violin")
    assert qualifying(*episodes, paragraph(4, "violin", 3), late)["violin"].is_stale
    assert not qualifying(*episodes, paragraph(4, "violin", 0, "user"), late)["violin"].is_stale


def test_episodes_are_covered_in_batches() -> None:
    """The oldest first, then only new ones."""
    episodes = [episode(number, "violin") for number in range(1, 31)]
    candidate = qualifying(*episodes)["violin"]
    batch, upto = candidate.next_batch()
    assert (batch[0].id, upto) == (1, 12)
    candidate = qualifying(*episodes, paragraph(40, "violin", 24))["violin"]
    batch, upto = candidate.next_batch()
    assert ([episode.id for episode in batch], upto) == ([25, 26, 27, 28, 29, 30], 30)


def test_a_paragraph_is_made_of_dates_conclusions_and_open_questions() -> None:
    """By a model and by rules; settled questions are left out."""
    episodes = [
        episode(1, "violin", left_open="Which violin shall I buy?"),
        episode(2, "violin", concluded="I'll buy the old violin"),
        episode(3, "violin", left_open="Who tunes the violin?"),
    ]
    candidate = qualifying(*episodes)["violin"]
    settled = {"Which violin shall I buy?": "settled"}
    lines = [f"{at:%d} {text}" for at, text in source_lines(episodes, (), settled, UTC)]
    assert lines == [
        "21 They spoke of the violin.",
        "22 They spoke of the violin. Concluded: I'll buy the old violin",
        "23 They spoke of the violin. Left open: Who tunes the violin?",
    ]
    written = paragraph_by_rules(candidate, settled, UTC, "en")
    assert "On 21 May 2026:" in written
    assert "Settled: I'll buy the old violin" in written
    assert "Left open: Who tunes the violin?" in written
    assert "Which" not in written
    in_german = paragraph_by_rules(candidate, settled, UTC, "de")
    assert "Am 21. Mai 2026:" in in_german
    assert "Geklärt: I'll buy the old violin" in in_german
    assert "Offen geblieben: Who tunes the violin?" in in_german
