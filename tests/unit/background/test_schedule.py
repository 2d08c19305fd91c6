"""What background work is due, and when."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from foremind.background.schedule import (
    PORTION_TOKENS,
    PORTION_TURNS,
    fallen_out,
    is_over,
    next_look,
    next_retention,
    to_summarise,
)
from foremind.domain.companion import CompanionSettings
from foremind.domain.policy import LayerPolicy, policy_for
from foremind.domain.relationship import OpenSession, TranscriptTurn
from foremind.domain.settings import load_settings

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
SESSION = uuid.UUID(int=1)


def turns(count: int, chars: int = 40) -> list[TranscriptTurn]:
    """Turns of so many characters."""
    return [
        TranscriptTurn(number, SESSION, "user", "x" * chars, NOW, None, 0.0, False)
        for number in range(1, count + 1)
    ]


def policy(**settings: object) -> LayerPolicy:
    """The layers' policy under settings."""
    own = CompanionSettings(**settings)  # type: ignore[arg-type]
    return policy_for(own, load_settings()).layers


def ids(portions: Sequence[Sequence[TranscriptTurn]]) -> list[list[int]]:
    """The first and last turn of each portion."""
    return [[portion[0].id, portion[-1].id] for portion in portions]


def sized(*chars: int) -> list[TranscriptTurn]:
    """Turns of these sizes."""
    return [
        replace(turn, content="x" * size)
        for turn, size in zip(turns(len(chars)), chars, strict=True)
    ]


def test_the_oldest_are_summarised_from_20_messages_on() -> None:
    """Down to half of that."""
    assert to_summarise(turns(20), 20, policy(), len) == []
    assert ids(to_summarise(turns(21), 21, policy(), len)) == [[1, 11]]


def test_many_tokens_are_reason_enough_however_few_turns_they_are() -> None:
    """Down to half of them; the last turn stays whatever its size."""
    assert to_summarise(sized(4000, 4000), 2, policy(), len) == []
    assert ids(to_summarise(sized(4000, 3000, 1100), 3, policy(), len)) == [[1, 1], [2, 2]]
    assert ids(to_summarise(sized(100, 9000), 2, policy(), len)) == [[1, 1]]
    assert to_summarise(sized(9000), 1, policy(), len) == []
    small = policy(summary_tokens=4000)
    assert ids(to_summarise(turns(12, chars=990), 12, small, len)) == [
        [1, 3],
        [4, 6],
        [7, 9],
        [10, 10],
    ]


def test_a_mark_is_reason_for_one_summary() -> None:
    """At 200, 400 and 600 messages, also where little was said since; not again and again."""
    assert to_summarise(turns(15), 199, policy(), len) == []
    assert ids(to_summarise(turns(15), 200, policy(), len)) == [[1, 5]]
    assert to_summarise(turns(10), 200, policy(), len) == []
    assert to_summarise(turns(18), 208, policy(), len) == []
    seldom = policy(summary_messages=1000, summary_tokens=1_000_000)
    assert to_summarise(turns(199), 199, seldom, len) == []
    assert ids(to_summarise(turns(200), 200, seldom, len)) == [[1, 75], [76, 150], [151, 190]]


def test_what_was_begun_is_finished() -> None:
    """One portion at a time, though after the first there is not too much any more."""
    said = sized(*[2500] * 4, 3900)
    assert ids(to_summarise(said, 5, policy(), len)) == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert ids(to_summarise(said[3:], 5, policy(), len)) == []
    assert ids(to_summarise(said[3:], 5, policy(), len, begun=4)) == [[4, 4]]
    assert ids(to_summarise(said[4:], 5, policy(), len, begun=4)) == []


sizes = st.lists(st.one_of(st.integers(1, 200), st.integers(1, 9000)), min_size=1, max_size=250)
limits = st.tuples(st.integers(2, 300), st.integers(100, 20_000))


@given(sizes, limits)
def test_about_half_of_what_is_too_much_stays(chars: list[int], limit: tuple[int, int]) -> None:
    """And what is taken is taken from the oldest on, in order."""
    messages, tokens = limit
    own = policy(summary_messages=messages, summary_tokens=tokens)
    said = sized(*chars)
    portions = to_summarise(said, len(said), own, len)
    taken = [turn for portion in portions for turn in portion]
    left = said[len(taken) :]
    assert taken == said[: len(taken)]
    assert left
    if taken:
        assert len(left) == 1 or sum(len(each.content) for each in left) <= tokens / 2
        assert len(left) <= max(10, messages / 2)
    else:
        assert len(said) <= messages or len(said) <= 10
        assert sum(chars) <= tokens or len(said) == 1


@given(sizes)
def test_one_request_for_each_portion_of_a_sensible_size(chars: list[int]) -> None:
    """None larger than a small model can read, but a single turn; and no more than are needed."""
    said = sized(*chars)
    portions = to_summarise(said, len(said), policy(), len)
    sums = [sum(len(each.content) for each in portion) for portion in portions]
    for portion, size in zip(portions, sums, strict=True):
        assert len(portion) == 1 or (size <= PORTION_TOKENS and len(portion) <= PORTION_TURNS)
    for (portion, size), following in pairwise(zip(portions, sums, strict=True)):
        assert size + following[1] > PORTION_TOKENS or len(portion) == PORTION_TURNS


@given(sizes)
def test_a_talk_is_summarised_seldom(chars: list[int]) -> None:
    """However it goes on: once for so many messages or tokens, and once more at each mark."""
    said = sized(*chars)
    first, rounds, requests = 0, 0, 0
    for end in range(1, len(said) + 1):
        portions = to_summarise(said[first:end], end, policy(), len)
        rounds += bool(portions)
        requests += len(portions)
        first += sum(map(len, portions))
        assert not to_summarise(said[first:end], end, policy(), len)
    whole = sum(chars)
    assert rounds <= len(said) / 10 + whole / 4000 + 2
    assert requests <= 2 * (len(said) / 10 + whole / 1500) + 2


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
    assert next_retention(policy(), NOW) is None
    assert next_retention(policy(retention_days={"episodes": 9}), NOW) == NOW + timedelta(days=1)
