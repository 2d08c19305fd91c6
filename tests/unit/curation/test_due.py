"""What background work is due, and when."""

import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from foremind.companions import CompanionSettings
from foremind.curation.due import fallen_out, is_over, next_look, to_summarise
from foremind.policies import LayerPolicy, policy_for
from foremind.settings import load_settings
from foremind.storage.curation import OpenSession, SaidTurn

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
SESSION = uuid.UUID(int=1)


def turns(count: int, chars: int = 40) -> list[SaidTurn]:
    """Turns of so many characters."""
    return [
        SaidTurn(number, SESSION, "user", "x" * chars, NOW, None, 0.0, False)
        for number in range(1, count + 1)
    ]


def policy(**settings: object) -> LayerPolicy:
    """The layers' policy under settings."""
    own = CompanionSettings(**settings)  # type: ignore[arg-type]
    return policy_for(own, load_settings()).layers


def test_the_oldest_are_summarised_from_20_messages_on() -> None:
    """Down to half of that."""
    assert to_summarise(turns(20), 20, policy(), len) == []
    assert [each.id for each in to_summarise(turns(21), 21, policy(), len)] == list(range(1, 12))


def test_many_tokens_are_reason_enough() -> None:
    """Down to half of them, the newest ten untouched."""
    long = turns(14, chars=900)
    assert [each.id for each in to_summarise(long, 14, policy(), len)] == [1, 2, 3, 4]


def test_a_long_relationship_is_summarised_at_its_marks() -> None:
    """At 200, 400 and 600 messages, also where little was said since."""
    assert to_summarise(turns(15), 199, policy(), len) == []
    assert len(to_summarise(turns(15), 205, policy(), len)) == 5


@given(st.integers(0, 300), st.integers(1, 400))
def test_the_newest_ten_stay_and_at_most_60_are_taken(count: int, chars: int) -> None:
    """Whatever there is."""
    said = turns(count, chars)
    taken = to_summarise(said, count, policy(), len)
    assert len(taken) <= 60
    assert list(taken) == said[: len(taken)]
    assert not taken or len(said) - len(taken) >= 10


def test_what_a_prompt_no_longer_holds_falls_out() -> None:
    """Beyond its tokens, or because the summary tells of it; a few wait for more."""
    said = turns(30, chars=100)
    small = policy(working_tokens=1000)
    assert [each.id for each in fallen_out(said, 0, small, len)] == list(range(1, 21))
    assert [each.id for each in fallen_out(said, 9, policy(), len)] == list(range(1, 10))
    assert fallen_out(said, 5, policy(), len) == []


def test_a_session_is_over_after_24_hours_of_silence() -> None:
    """And that is when its relationship must be looked at."""
    session = OpenSession(SESSION, NOW)
    assert not is_over(session, policy(), NOW + timedelta(hours=23))
    assert is_over(session, policy(), NOW + timedelta(hours=24))
    assert next_look([session], policy(), NOW) == NOW + timedelta(hours=24)
    assert next_look([], policy(), NOW) is None
    assert next_look([], policy(retention_days={"episodes": 9}), NOW) == NOW + timedelta(days=1)
