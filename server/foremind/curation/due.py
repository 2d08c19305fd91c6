"""What is to be done now: which turns are summarised, which fell out of the window. Pure."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from foremind.policies import LayerPolicy
from foremind.storage.curation import OpenSession, SaidTurn
from foremind.storage.records import Record

_UNTOUCHED = 10  # of the most recent turns
_CONSIDERED = 60  # turns that one summary takes in at most
_LONG = (200, 400, 600)  # messages at which a long relationship is summarised in any case
_TARGET = 0.5  # of what triggers a summary, what remains after it
_LEAST_FALLEN = 8  # turns that make an episode of a session that goes on
_HABITS = timedelta(days=7)
_DAY = timedelta(days=1)


def to_summarise(
    turns: Sequence[SaidTurn], messages: int, policy: LayerPolicy, count: Callable[[str], int]
) -> Sequence[SaidTurn]:
    """Return the oldest of the turns that no summary holds, as far as they are to be summarised.

    Args:
        turns: those that no summary holds, oldest first.
        messages: all turns of the relationship.
    """
    tokens = [count(turn.content) for turn in turns]
    free = len(turns) - _UNTOUCHED
    crossed = any(messages - len(turns) < mark <= messages for mark in _LONG)
    many = len(turns) > policy.summary_messages
    large = sum(tokens) > policy.summary_tokens
    if free <= 0 or not (many or large or crossed):
        return []
    target_messages = max(_UNTOUCHED, int(policy.summary_messages * _TARGET))
    target_tokens = policy.summary_tokens * _TARGET
    taken = 0
    while taken < min(free, _CONSIDERED) and (
        len(turns) - taken > target_messages or sum(tokens[taken:]) > target_tokens
    ):
        taken += 1
    return turns[:taken]


def fallen_out(
    turns: Sequence[SaidTurn],
    summarised_turn_id: int,
    policy: LayerPolicy,
    count: Callable[[str], int],
) -> Sequence[SaidTurn]:
    """Return the turns of a session that goes on which its prompt no longer holds."""
    left, kept = policy.working_tokens, 0
    for turn in reversed(turns):
        left -= count(turn.content)
        if left < 0 or turn.id <= summarised_turn_id:
            break
        kept += 1
    fallen = turns[: len(turns) - kept]
    return fallen if len(fallen) >= _LEAST_FALLEN else []


def is_over(session: OpenSession, policy: LayerPolicy, now: datetime) -> bool:
    """Tell whether nothing was said in a session for longer than it lives."""
    return session.active_at <= now - policy.session


def next_look(
    sessions: Sequence[OpenSession], policy: LayerPolicy, now: datetime
) -> datetime | None:
    """Return when the next of some sessions is over, if nobody says anything; None for never."""
    soonest = min([each.active_at + policy.session for each in sessions], default=None)
    return None if soonest is None else max(soonest, now + timedelta(seconds=1))


def next_retention(policy: LayerPolicy, now: datetime) -> datetime | None:
    """Return when something may be past its days next; None where all is kept for good."""
    return now + _DAY if policy.retention else None


def is_stale(records: Sequence[Record]) -> bool:
    """Tell whether the hot context misses what somebody wrote, or was removed."""
    hot = [each for each in records if each.layer == "hot"]
    told = [each for each in records if each.layer in ("episodes", "topics")]
    if not hot:
        return bool(told)
    by_hand = [each for each in records if each.made_by in ("user", "developer")]
    return any(each.updated_at > hot[-1].updated_at for each in by_hand if each.layer != "hot")


def habits_due(habits_at: datetime | None, now: datetime) -> bool:
    """Tell whether a week has gone since habits were looked at."""
    return habits_at is None or now - habits_at >= _HABITS
