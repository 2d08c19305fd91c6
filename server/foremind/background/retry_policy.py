"""When a failed step is retried, and when it is held instead. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from foremind.domain.errors import TokenLimitReached
from foremind.domain.step import FinishedStep, StepState

#: How long a held step waits before its next attempt, whatever is said meanwhile.
HELD_FOR = timedelta(minutes=10)

_OUTAGES = frozenset({"model_unreachable", "model_timeout", "storage_unavailable"})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed step is retried: after `first_delay`, doubled each time up to `max_delay`.

    It is held after `max_failures` in a row, or `max_outages` while a server is unavailable.
    """

    first_delay: timedelta
    max_delay: timedelta
    max_failures: int
    max_outages: int


#: Held about an hour after the first failure, or after three days without the server.
RETRY_STEP = RetryPolicy(timedelta(seconds=30), timedelta(hours=1), 8, 72)
#: Of one turn, while others go on. Held about an hour after the first failure, or after three days.
RETRY_TURN = RetryPolicy(timedelta(seconds=2), timedelta(hours=1), 12, 72)


def until_tomorrow(state: StepState, error: TokenLimitReached, now: datetime) -> FinishedStep:
    """Decide when to retry a step whose user has spent the tokens of the day.

    That counts as no further failure, but as one, so that activity does not run it sooner.
    """
    until = now + timedelta(seconds=error.retry_after_s)
    return _failed(state, max(1, state.attempts), error.code, until)


def after_failure(retry: RetryPolicy, state: StepState, code: str, now: datetime) -> FinishedStep:
    """Decide when to retry a step that failed again, after earlier failures.

    Retries back off exponentially; a first conflict is retried at once.
    """
    attempts = state.attempts + 1
    if attempts >= (retry.max_outages if code in _OUTAGES else retry.max_failures):
        return _failed(state, attempts, code, None, held_at=now)
    if code == "conflict" and attempts == 1:
        return _failed(state, attempts, code, now)  # its sources changed: start over
    delay = min(retry.max_delay, retry.first_delay * 2.0 ** min(attempts - 1, 11))
    return _failed(state, attempts, code, now + delay)


def _failed(
    state: StepState,
    attempts: int,
    code: str,
    due_at: datetime | None,
    held_at: datetime | None = None,
) -> FinishedStep:
    return FinishedStep(state.step, state.marks, due_at, attempts, code, held_at, state.turn_id)
