"""Decides what to do now: which turns to summarise, which left the prompt's window. Pure."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from foremind.domain.policy import LayerPolicy
from foremind.domain.record import Record, is_manual, of_layer
from foremind.domain.relationship import OpenSession, TranscriptTurn

UNTOUCHED = 10  # of the most recent turns, unless they are too large
MILESTONES = (200, 400, 600)  # message counts at which a summary is always written
_TARGET = 0.5  # share of the summary thresholds that remains after a summary
# The most that one summary call takes in, unless a single turn is larger.
BATCH_TOKENS = 3000
BATCH_TURNS = 100
_USAGE_PATTERNS_INTERVAL = timedelta(days=7)
_DAY = timedelta(days=1)


def turns_to_summarise(
    turns: Sequence[TranscriptTurn],
    messages: int,
    policy: LayerPolicy,
    count_tokens: Callable[[str], int],
    begun: int = 0,
) -> list[Sequence[TranscriptTurn]]:
    """Return the oldest unsummarised turns in batches, if there are too many of them.

    About half of the threshold remains, and always the last turn.

    Args:
        turns: the unsummarised turns, oldest first.
        messages: number of all turns of the relationship.
        begun: id of the last turn to be summarised by the previous decision.
    """
    tokens = [count_tokens(turn.content) for turn in turns]
    # A summary at or after a milestone leaves no more turns than these.
    crossed = any(messages - len(turns) + UNTOUCHED < mark <= messages for mark in MILESTONES)
    many = len(turns) > policy.summary_messages
    large = sum(tokens) > policy.summary_tokens
    if turns and turns[0].id <= begun:
        selected = sum(turn.id <= begun for turn in turns)
    elif turns and (many or large or crossed):
        half = int(policy.summary_messages * _TARGET)
        max_kept = UNTOUCHED if crossed else max(UNTOUCHED, half)
        selected = len(turns) - _kept_turns(tokens, max_kept, policy.summary_tokens * _TARGET)
    else:
        return []
    batches = []
    start = 0
    while start < selected:
        size = _batch_size(tokens[start:selected])
        batches.append(turns[start : start + size])
        start += size
    return batches


def _kept_turns(tokens: Sequence[int], max_turns: int, max_tokens: float) -> int:
    """Return how many of the newest turns to keep: at least one, within both limits."""
    used = tokens[-1]
    for kept in range(1, min(max_turns, len(tokens))):
        used += tokens[-1 - kept]
        if used > max_tokens:
            return kept
    return min(max_turns, len(tokens))


def _batch_size(tokens: Sequence[int]) -> int:
    """Return how many of the oldest turns make one batch."""
    used = 0
    for size, cost in enumerate(tokens):
        used += cost
        if size and (used > BATCH_TOKENS or size == BATCH_TURNS):
            return size
    return len(tokens)


def turns_outside_window(
    turns: Sequence[TranscriptTurn],
    summarised_turn_id: int,
    policy: LayerPolicy,
    count_tokens: Callable[[str], int],
    enough: int,
) -> Sequence[TranscriptTurn]:
    """Return the turns of an open session that left its prompt, once there are `enough`."""
    remaining, kept = policy.working_tokens, 0
    for turn in reversed(turns):
        remaining -= count_tokens(turn.content)
        if remaining < 0 or turn.id <= summarised_turn_id:
            break
        kept += 1
    outside = turns[: len(turns) - kept]
    return outside if len(outside) >= enough else []


def is_over(session: OpenSession, policy: LayerPolicy, now: datetime) -> bool:
    """Return whether a session has been idle for longer than its lifetime."""
    return session.active_at <= now - policy.session


def next_session_end(
    sessions: Sequence[OpenSession], policy: LayerPolicy, now: datetime
) -> datetime | None:
    """Return when the next session ends if nothing is said; None without sessions."""
    soonest = min([session.active_at + policy.session for session in sessions], default=None)
    return None if soonest is None else max(soonest, now + timedelta(seconds=1))


def next_retention(policy: LayerPolicy, now: datetime) -> datetime | None:
    """Return when to apply retention next; None where everything is kept."""
    return now + _DAY if policy.retention else None


def is_stale(records: Sequence[Record], policy: LayerPolicy, now: datetime) -> bool:
    """Return whether the core memory was removed, or lacks a later manual edit.

    One that expired is made anew when something is new.
    """
    core_memory = of_layer(records, "hot")
    if not core_memory:
        kept = policy.retention.get("hot")
        return any(
            kept is None or record.updated_at >= now - kept
            for record in records
            if record.layer in ("episodes", "topics")
        )
    manual = [record for record in records if record.layer != "hot" and is_manual(record.made_by)]
    return any(record.updated_at > core_memory[-1].updated_at for record in manual)


def usage_patterns_due(computed_at: datetime | None, now: datetime) -> bool:
    """Return whether usage patterns were computed a week ago or never."""
    return computed_at is None or now - computed_at >= _USAGE_PATTERNS_INTERVAL
