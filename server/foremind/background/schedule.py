"""What is to be done now: which turns are summarised, which fell out of the window. Pure."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from foremind.domain.policy import LayerPolicy
from foremind.domain.record import Record, by_hand, of_layer
from foremind.domain.relationship import OpenSession, TranscriptTurn

_UNTOUCHED = 10  # of the most recent turns, unless they are too large
_LONG = (200, 400, 600)  # messages at which a long relationship is summarised in any case
_TARGET = 0.5  # of what triggers a summary, what remains after it
# What one summary takes in at most, unless a single turn is larger.
PORTION_TOKENS = 3000
PORTION_TURNS = 100
_LEAST_FALLEN = 8  # turns that make an episode of a session that goes on
_HABITS = timedelta(days=7)
_DAY = timedelta(days=1)


def to_summarise(
    turns: Sequence[TranscriptTurn],
    messages: int,
    policy: LayerPolicy,
    count: Callable[[str], int],
    begun: int = 0,
) -> list[Sequence[TranscriptTurn]]:
    """Return the oldest of the turns that no summary holds, in portions, if there are too many.

    About half of what is too much stays, in any case the last turn.

    Args:
        turns: those that no summary holds, oldest first.
        messages: all turns of the relationship.
        begun: the last turn that was to be taken in when it was decided last.
    """
    tokens = [count(turn.content) for turn in turns]
    # What was summarised at a mark or after it left no more than these.
    crossed = any(messages - len(turns) + _UNTOUCHED < mark <= messages for mark in _LONG)
    many = len(turns) > policy.summary_messages
    large = sum(tokens) > policy.summary_tokens
    if turns and turns[0].id <= begun:
        taken = sum(turn.id <= begun for turn in turns)
    elif turns and (many or large or crossed):
        half = int(policy.summary_messages * _TARGET)
        most = _UNTOUCHED if crossed else max(_UNTOUCHED, half)
        taken = len(turns) - _staying(tokens, most, policy.summary_tokens * _TARGET)
    else:
        return []
    portions = []
    start = 0
    while start < taken:
        size = _portion(tokens[start:taken])
        portions.append(turns[start : start + size])
        start += size
    return portions


def _staying(tokens: Sequence[int], most: int, limit: float) -> int:
    """Return how many of the newest turns stay: at least one, at most `most`, within a limit."""
    used = tokens[-1]
    for stay in range(1, min(most, len(tokens))):
        used += tokens[-1 - stay]
        if used > limit:
            return stay
    return min(most, len(tokens))


def _portion(tokens: Sequence[int]) -> int:
    """Return how many of the oldest turns make one portion."""
    used = 0
    for taken, cost in enumerate(tokens):
        used += cost
        if taken and (used > PORTION_TOKENS or taken == PORTION_TURNS):
            return taken
    return len(tokens)


def fallen_out(
    turns: Sequence[TranscriptTurn],
    summarised_turn_id: int,
    policy: LayerPolicy,
    count: Callable[[str], int],
) -> Sequence[TranscriptTurn]:
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
    soonest = min([session.active_at + policy.session for session in sessions], default=None)
    return None if soonest is None else max(soonest, now + timedelta(seconds=1))


def next_retention(policy: LayerPolicy, now: datetime) -> datetime | None:
    """Return when something may be past its days next; None where all is kept for good."""
    return now + _DAY if policy.retention else None


def is_stale(records: Sequence[Record]) -> bool:
    """Tell whether the hot context misses what somebody wrote, or was removed."""
    hot = of_layer(records, "hot")
    told = [record for record in records if record.layer in ("episodes", "topics")]
    if not hot:
        return bool(told)
    written = [record for record in records if record.layer != "hot" and by_hand(record.made_by)]
    return any(each.updated_at > hot[-1].updated_at for each in written)


def habits_due(habits_at: datetime | None, now: datetime) -> bool:
    """Tell whether a week has gone since habits were looked at."""
    return habits_at is None or now - habits_at >= _HABITS
