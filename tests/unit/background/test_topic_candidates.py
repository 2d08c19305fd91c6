"""What a relationship comes back to."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.background.topic_candidates import (
    TopicCandidate,
    by_rules,
    folded,
    lines_of,
    subjects_of,
)
from foremind.domain.record import NOTHING_KNOWN, Details, MadeBy, Record, RecordLayer

DAY = datetime(2026, 5, 20, 19, tzinfo=UTC)


def record(
    number: int,
    layer: RecordLayer,
    content: str,
    title: str = "",
    details: Details = NOTHING_KNOWN,
    made_by: MadeBy = "rules",
) -> Record:
    """A record of a day and a session of its own."""
    at = DAY + timedelta(days=number)
    return Record(
        number, layer, "", title, content, (), details, None, made_by,
        uuid.UUID(int=number), at, at, 1,
    )  # fmt: skip


def episode(number: int, *topics: str, concluded: str = "", left_open: str = "") -> Record:
    """An episode of a session of its own."""
    details = Details(
        topics=topics,
        conclusions=(concluded,) if concluded else (),
        open_questions=(left_open,) if left_open else (),
    )
    return record(number, "episodes", f"They spoke of the {topics[0]}.", topics[0], details)


def paragraph(number: int, title: str, upto: int, made_by: MadeBy = "model") -> Record:
    """A paragraph made of episodes up to one."""
    return record(number, "topics", f"About {title}.", title, Details(upto=upto), made_by)


def deserving(*records: Record) -> dict[str, TopicCandidate]:
    """The subjects that deserve a paragraph, by key."""
    return {each.key: each for each in subjects_of(records) if each.deserves_a_paragraph}


def test_a_topic_needs_three_sessions_or_a_conclusion() -> None:
    """Under whatever form of the word."""
    twice = [episode(1, "garden"), episode(2, "the gardens")]
    assert deserving(*twice) == {}
    assert list(deserving(*twice, episode(3, "Garden"))) == ["garden"]
    assert list(deserving(episode(1, "garden", concluded="We decided to water the garden")))
    assert deserving(*(episode(number, "a chat") for number in range(9))) == {}


def test_what_is_called_in_several_ways_is_one_topic() -> None:
    """The name with fewer words is the usual one; what was split is joined."""
    told = [episode(1, "violin"), episode(2, "violin lessons"), episode(3, "the violin strings")]
    (subject,) = deserving(*told).values()
    assert subject.names == ("violin", "violin lessons", "the violin strings")
    split = [*told, paragraph(4, "violin", 1), paragraph(5, "Violin lessons", 2)]
    (joined,) = deserving(*split).values()
    assert [each.id for each in joined.joined] == [5]
    assert joined.has_news
    assert [each.id for each in joined.portion()[0]] == [1, 2, 3]
    by_hand = [*told, paragraph(4, "violin", 1), paragraph(5, "Violin lessons", 2, "user")]
    assert deserving(*by_hand)["violin"].joined == ()


@given(
    st.sets(st.sets(st.sampled_from("abcd"), min_size=1).map(lambda each: " ".join(sorted(each))))
)
def test_a_topic_belongs_to_one_that_belongs_to_none(keys: set[str]) -> None:
    """So that no chain of names leads to two paragraphs."""
    for key in keys:
        home = folded(key, keys, (), {})
        assert home in keys
        assert folded(home, keys, (), {}) == home
        assert set(home.split()) <= set(key.split())


@pytest.mark.parametrize("layer", ["scratchpad", "vault"])
def test_notes_and_what_was_saved_may_lead_to_a_topic(layer: RecordLayer) -> None:
    """Where they come back to something on three days, with or without conversations on it."""
    noted = [
        record(1, layer, "Bought a telescope in Funchal"),
        record(2, layer, "Broke the telescope on the stairs"),
        record(3, layer, "Mended his telescope with glue"),
    ]
    found = deserving(*noted)
    assert [each.content for each in found["telescop"].beside] == [each.content for each in noted]
    with_talk = deserving(noted[0], episode(4, "telescope"), episode(5, "telescope"))
    assert with_talk["telescop"].meetings == 3
    assert "Mended" in by_rules(found["telescop"], {}, UTC)


def test_by_rules_what_an_episode_speaks_of_counts_too() -> None:
    """Also a name that comes up again and again, though no episode is about it."""
    told = [
        record(
            n, "episodes", f"Madalena spoke of the violin {n} times.", "tea", Details(topics=topics)
        )
        for n, topics in enumerate([("violin",), ("tea",), ("cake",)], 1)
    ]
    named = [replace(each, refs=("madalena",)) for each in told]
    assert deserving(*told) == {}
    found = [each.key for each in subjects_of(named, mentions=True) if each.deserves_a_paragraph]
    assert found == ["madalena", "violin"]


def test_there_is_news_where_something_came_after_the_paragraph() -> None:
    """An episode, a correction, or a note; what somebody wrote by hand stays."""
    told = [episode(1, "violin"), episode(2, "violin"), episode(3, "violin")]
    assert deserving(*told)["violin"].has_news
    assert not deserving(*told, paragraph(4, "violin", 3))["violin"].has_news
    assert deserving(*told, paragraph(4, "violin", 3), episode(5, "violin"))["violin"].has_news
    late = record(6, "scratchpad", "Sold the violin")
    assert deserving(*told, paragraph(4, "violin", 3), late)["violin"].has_news
    assert not deserving(*told, paragraph(4, "violin", 0, "user"), late)["violin"].has_news


def test_all_there_is_to_tell_is_told_in_portions() -> None:
    """The oldest first; after them only what is new."""
    told = [episode(number, "violin") for number in range(1, 31)]
    subject = deserving(*told)["violin"]
    portion, upto = subject.portion()
    assert (portion[0].id, upto) == (1, 12)
    subject = deserving(*told, paragraph(40, "violin", 24))["violin"]
    portion, upto = subject.portion()
    assert ([each.id for each in portion], upto) == ([25, 26, 27, 28, 29, 30], 30)


def test_a_paragraph_is_made_of_dates_conclusions_and_open_questions() -> None:
    """By a model and by rules; what is settled is not open."""
    told = [
        episode(1, "violin", left_open="Which violin shall I buy?"),
        episode(2, "violin", concluded="I'll buy the old violin"),
        episode(3, "violin", left_open="Who tunes the violin?"),
    ]
    subject = deserving(*told)["violin"]
    settled = {"Which violin shall I buy?": "settled"}
    lines = [f"{at:%d} {text}" for at, text in lines_of(told, (), settled, UTC)]
    assert lines == [
        "21 They spoke of the violin.",
        "22 They spoke of the violin. Concluded: I'll buy the old violin",
        "23 They spoke of the violin. Left open: Who tunes the violin?",
    ]
    written = by_rules(subject, settled, UTC)
    assert "On 21 May 2026:" in written
    assert "Settled: I'll buy the old violin" in written
    assert "Left open: Who tunes the violin?" in written
    assert "Which" not in written
