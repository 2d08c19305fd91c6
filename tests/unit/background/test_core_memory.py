"""Core memory and usage patterns, as rules write them."""

import uuid
from datetime import UTC, datetime, timedelta

from foremind.background.core_memory import core_memory_by_rules, with_manual_lines
from foremind.background.usage_patterns import usage_patterns_of
from foremind.domain.record import Details, Record
from foremind.domain.relationship import SessionUsage

NOW = datetime(2026, 5, 20, 19, tzinfo=UTC)


def episode(number: int, topic: str, conclusions: tuple[str, ...] = ()) -> Record:
    """An episode in its own session."""
    details = Details(topics=(topic,), conclusions=conclusions)
    return Record(
        number, "episodes", "", topic, "They spoke.", (), details, None, "rules",
        uuid.UUID(int=number), NOW, NOW, 1,
    )  # fmt: skip


def test_manual_lines_come_first_and_nothing_is_repeated() -> None:
    """The sources follow."""
    text = core_memory_by_rules(
        "Ana is in mourning.", ["goal: Sail to Madeira", "note: ana is in mourning."]
    )
    assert text.splitlines() == ["Ana is in mourning.", "goal: Sail to Madeira"]


def test_manual_lines_that_a_model_omits_come_first() -> None:
    """Lines that it paraphrases are not repeated."""
    manual_text = "Ana is in mourning for her brother.\n\nCall her captain.\n★"
    text = "Ana mourns; since May she is in mourning for a brother.\nShe sails."
    assert with_manual_lines(manual_text, text) == f"Call her captain.\n★\n{text}"
    assert with_manual_lines("", text) == text


def usage(day: int) -> SessionUsage:
    """A session of half an hour in the evening; every fourth message is a question."""
    began = NOW + timedelta(days=day)
    return SessionUsage(uuid.UUID(int=day), began, began + timedelta(minutes=30), 8, 2)


def test_usage_patterns_need_three_sessions() -> None:
    """Length, time of day in the user's time zone, questions, topics."""
    assert usage_patterns_of([usage(1), usage(2)], [], "UTC", "en") == {}
    patterns = usage_patterns_of(
        [usage(1), usage(2), usage(3)], [episode(1, "garden")], "Europe/Lisbon", "en"
    )
    assert patterns == {
        "session length": "usually about 30 minutes",
        "time of day": "usually comes in the evening",
        "follow-up habit": "asks a question in 25% of messages",
        "favourite topics": "most often garden",
    }
    sessions = [usage(1), usage(2), usage(3)]
    in_tokyo = usage_patterns_of(sessions, [], "Asia/Tokyo", "en")
    assert in_tokyo["time of day"] == "usually comes at night"
    assert usage_patterns_of(sessions, [episode(1, "Garten")], "UTC", "de") == {
        "session length": "meist etwa 30 Minuten",
        "time of day": "kommt meist abends",
        "follow-up habit": "stellt in 25 % der Nachrichten eine Frage",
        "favourite topics": "am häufigsten Garten",
    }
    (length, *_) = usage_patterns_of([usage(n) for n in range(3)], [], "UTC", "pl").values()
    assert length == "zwykle mniej więcej 30 minut"
