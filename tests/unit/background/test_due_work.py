"""When background work is due, and on which turns."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from foremind.app.configuration import load_settings
from foremind.background.due_work import (
    BATCH_TOKENS,
    BATCH_TURNS,
    is_over,
    next_retention,
    next_session_end,
    turns_outside_window,
    turns_to_summarise,
)
from foremind.domain.policy import LayerPolicy, policy_for
from foremind.domain.relationship import OpenSession, TranscriptTurn
from foremind.domain.settings.settings import CompanionSettings

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
SESSION = uuid.UUID(int=1)


def turns(count: int, chars: int = 40) -> list[TranscriptTurn]:
    """`count` turns of `chars` characters each."""
    return [
        TranscriptTurn(number, SESSION, "user", "x" * chars, NOW, 0.0, False)
        for number in range(1, count + 1)
    ]


def policy(**settings: object) -> LayerPolicy:
    """The layer policy of a companion with these settings."""
    own = CompanionSettings(**settings)
    return policy_for(own, load_settings()).layers


def ids(batches: Sequence[Sequence[TranscriptTurn]]) -> list[list[int]]:
    """The ids of the first and last turn of each batch."""
    return [[batch[0].id, batch[-1].id] for batch in batches]


def sized(*chars: int) -> list[TranscriptTurn]:
    """Turns of these sizes."""
    return [
        replace(turn, content="x" * size)
        for turn, size in zip(turns(len(chars)), chars, strict=True)
    ]


def test_the_oldest_turns_are_summarised_beyond_20_messages() -> None:
    """Down to half of that."""
    assert turns_to_summarise(turns(20), 20, policy(), len) == []
    assert ids(turns_to_summarise(turns(21), 21, policy(), len)) == [[1, 11]]


def test_the_token_limit_applies_to_few_turns_as_well() -> None:
    """Down to half of it; the last turn stays whatever its size."""
    assert turns_to_summarise(sized(4000, 4000), 2, policy(), len) == []
    assert ids(turns_to_summarise(sized(4000, 3000, 1100), 3, policy(), len)) == [[1, 1], [2, 2]]
    assert ids(turns_to_summarise(sized(100, 9000), 2, policy(), len)) == [[1, 1]]
    assert turns_to_summarise(sized(9000), 1, policy(), len) == []
    small = policy(summary_tokens=4000)
    assert ids(turns_to_summarise(turns(12, chars=990), 12, small, len)) == [
        [1, 3],
        [4, 6],
        [7, 9],
        [10, 10],
    ]


def test_each_milestone_leads_to_one_summary() -> None:
    """At 200, 400 and 600 messages, even if few turns are new; never twice."""
    assert turns_to_summarise(turns(15), 199, policy(), len) == []
    assert ids(turns_to_summarise(turns(15), 200, policy(), len)) == [[1, 5]]
    assert turns_to_summarise(turns(10), 200, policy(), len) == []
    assert turns_to_summarise(turns(18), 208, policy(), len) == []
    milestones_only = policy(summary_messages=1000, summary_tokens=1_000_000)
    assert turns_to_summarise(turns(199), 199, milestones_only, len) == []
    assert ids(turns_to_summarise(turns(200), 200, milestones_only, len)) == [
        [1, 75],
        [76, 150],
        [151, 190],
    ]


def test_a_summary_in_several_batches_is_finished() -> None:
    """One batch at a time, even if the limits are met after the first."""
    every_turn = sized(*[2500] * 4, 3900)
    assert ids(turns_to_summarise(every_turn, 5, policy(), len)) == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert ids(turns_to_summarise(every_turn[3:], 5, policy(), len)) == []
    assert ids(turns_to_summarise(every_turn[3:], 5, policy(), len, begun=4)) == [[4, 4]]
    assert ids(turns_to_summarise(every_turn[4:], 5, policy(), len, begun=4)) == []


sizes = st.lists(st.one_of(st.integers(1, 200), st.integers(1, 9000)), min_size=1, max_size=250)
limits = st.tuples(st.integers(2, 300), st.integers(100, 20_000))


@given(sizes, limits)
def test_about_half_of_the_limits_remains(chars: list[int], limit: tuple[int, int]) -> None:
    """The summarised turns are the oldest ones, in order."""
    messages, tokens = limit
    own = policy(summary_messages=messages, summary_tokens=tokens)
    every_turn = sized(*chars)
    batches = turns_to_summarise(every_turn, len(every_turn), own, len)
    selected = [turn for batch in batches for turn in batch]
    remaining = every_turn[len(selected) :]
    assert selected == every_turn[: len(selected)]
    assert remaining
    if selected:
        assert len(remaining) == 1 or sum(len(turn.content) for turn in remaining) <= tokens / 2
        assert len(remaining) <= max(10, messages / 2)
    else:
        assert len(every_turn) <= messages or len(every_turn) <= 10
        assert sum(chars) <= tokens or len(every_turn) == 1


@given(sizes)
def test_batches_have_a_reasonable_size(chars: list[int]) -> None:
    """None is too large for a small model, except a single turn; none is needlessly small."""
    every_turn = sized(*chars)
    batches = turns_to_summarise(every_turn, len(every_turn), policy(), len)
    sizes_of_batches = [sum(len(turn.content) for turn in batch) for batch in batches]
    for batch, size in zip(batches, sizes_of_batches, strict=True):
        assert len(batch) == 1 or (size <= BATCH_TOKENS and len(batch) <= BATCH_TURNS)
    for (batch, size), following in pairwise(zip(batches, sizes_of_batches, strict=True)):
        assert size + following[1] > BATCH_TOKENS or len(batch) == BATCH_TURNS


@given(sizes)
def test_summaries_are_rare(chars: list[int]) -> None:
    """Once per so many messages or tokens, and once more at each milestone."""
    every_turn = sized(*chars)
    first, rounds, requests = 0, 0, 0
    for end in range(1, len(every_turn) + 1):
        batches = turns_to_summarise(every_turn[first:end], end, policy(), len)
        rounds += bool(batches)
        requests += len(batches)
        first += sum(map(len, batches))
        assert not turns_to_summarise(every_turn[first:end], end, policy(), len)
    characters = sum(chars)
    assert rounds <= len(every_turn) / 10 + characters / 4000 + 2
    assert requests <= 2 * (len(every_turn) / 10 + characters / 1500) + 2


def test_turns_leave_the_window_of_the_prompt() -> None:
    """Beyond its tokens, or once they are summarised; a few wait for more."""
    every_turn = turns(30, chars=100)
    small = policy(working_tokens=1000)
    assert [turn.id for turn in turns_outside_window(every_turn, 0, small, len, 8)] == list(
        range(1, 21)
    )
    assert [turn.id for turn in turns_outside_window(every_turn, 9, policy(), len, 8)] == list(
        range(1, 10)
    )
    assert turns_outside_window(every_turn, 7, policy(), len, 8) == []


def test_a_session_is_over_after_24_idle_hours() -> None:
    """That is when its relationship must be checked."""
    session = OpenSession(SESSION, NOW)
    assert not is_over(session, policy(), NOW + timedelta(hours=23))
    assert is_over(session, policy(), NOW + timedelta(hours=24))
    assert next_session_end([session], policy(), NOW) == NOW + timedelta(hours=24)
    assert next_session_end([], policy(), NOW) is None
    assert next_retention(policy(), NOW) is None
    assert next_retention(policy(retention_days={"episodes": 9}), NOW) == NOW + timedelta(days=1)
