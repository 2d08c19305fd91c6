"""The hot context, topics and habits: what rules put together."""

import uuid
from datetime import UTC, datetime, timedelta

from foremind.background.core_memory import by_rules, with_written
from foremind.background.usage_patterns import habits_of
from foremind.domain.record import Details, Record
from foremind.domain.relationship import SessionUsage

NOW = datetime(2026, 5, 20, 19, tzinfo=UTC)


def episode(number: int, topic: str, conclusions: tuple[str, ...] = ()) -> Record:
    """An episode of a session of its own."""
    details = Details(topics=(topic,), conclusions=conclusions)
    return Record(
        number, "episodes", "", topic, "They spoke.", (), details, None, "rules",
        uuid.UUID(int=number), NOW, NOW, 1,
    )  # fmt: skip


def test_what_was_written_by_hand_comes_first_and_nothing_twice() -> None:
    """The material follows."""
    text = by_rules("Ana is in mourning.", ["goal: Sail to Madeira", "note: ana is in mourning."])
    assert text.splitlines() == ["Ana is in mourning.", "goal: Sail to Madeira"]


def test_what_a_model_leaves_out_of_what_was_written_by_hand_comes_first() -> None:
    """What it says in other words is not said again."""
    written = "Ana is in mourning for her brother.\n\nCall her captain.\n★"
    text = "Ana mourns; since May she is in mourning for a brother.\nShe sails."
    assert with_written(written, text) == f"Call her captain.\n★\n{text}"
    assert with_written("", text) == text


def habit(day: int) -> SessionUsage:
    """A session of half an hour in the evening, every fourth message a question."""
    began = NOW + timedelta(days=day)
    return SessionUsage(uuid.UUID(int=day), began, began + timedelta(minutes=30), 8, 2)


def test_habits_show_from_three_sessions_on() -> None:
    """Length, time of day by the user's clock, questions, topics."""
    assert habits_of([habit(1), habit(2)], [], "UTC") == {}
    found = habits_of([habit(1), habit(2), habit(3)], [episode(1, "garden")], "Europe/Lisbon")
    assert found == {
        "session length": "usually about 30 minutes",
        "time of day": "usually comes in the evening",
        "follow-up habit": "asks a question in 25% of messages",
        "favourite topics": "most often garden",
    }
    sessions = [habit(1), habit(2), habit(3)]
    assert habits_of(sessions, [], "Asia/Tokyo")["time of day"] == "usually comes at night"
