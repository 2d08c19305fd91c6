"""When a failed step is retried, and when it is held instead. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from foremind.domain.errors import TokenLimitReached

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


@dataclass(frozen=True, slots=True)
class StepFailure:
    """How often a step failed in a row, why, and when it is retried; a held step is not."""

    attempts: int
    code: str
    retry_at: datetime | None
    held_at: datetime | None = None


def until_tomorrow(attempts: int, error: TokenLimitReached, now: datetime) -> StepFailure:
    """Decide when to retry a step whose user has spent the tokens of the day.

    That counts as no further failure, but as one, so that activity does not run it sooner.
    """
    until = now + timedelta(seconds=error.retry_after_s)
    return StepFailure(max(1, attempts), error.code, until)


def after_failure(retry: RetryPolicy, attempts: int, code: str, now: datetime) -> StepFailure:
    """Decide when to retry a step that failed again, after `attempts` earlier failures.

    Retries back off exponentially; a first conflict is retried at once.
    """
    attempts += 1
    if attempts >= (retry.max_outages if code in _OUTAGES else retry.max_failures):
        return StepFailure(attempts, code, None, now)
    if code == "conflict" and attempts == 1:
        return StepFailure(attempts, code, now)  # its sources changed: start over
    delay = min(retry.max_delay, retry.first_delay * 2.0 ** min(attempts - 1, 11))
    return StepFailure(attempts, code, now + delay)
