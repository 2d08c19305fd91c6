"""The steps of background work, as data: their order, which use a model, what follows what."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal

from foremind.domain.policy import ChatModelPolicy
from foremind.domain.step import Lane, StepState

StepName = Literal[
    "sessions",
    "retention",
    "stated",
    "profile",
    "notes",
    "summary",
    "episodes",
    "topics",
    "hot",
    "habits",
]

#: The place of rule-based work; every other place is a model on a model server.
RULES_PLACE = ""
#: Delay of `later` steps after a session ends: its episodes are usually written by then.
FOLLOW_UP_DELAY = timedelta(hours=1)
#: How long a held step waits before its next attempt, whatever is said meanwhile.
HELD_FOR = timedelta(minutes=10)

_FIRST_RETRY_DELAY = timedelta(seconds=30)  # doubled after each further failure
_MAX_RETRY_DELAY = timedelta(hours=1)
_MAX_FAILURES = 8  # in a row before a step is held: about an hour after the first
_MAX_OUTAGES = 72  # the same while a server is unavailable: three days
_OUTAGES = frozenset({"model_unreachable", "model_timeout", "storage_unavailable"})


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of work on a relationship.

    `lane`: whether the step may call a language model. `then`: steps scheduled as soon as it has
    produced something; `later`: steps scheduled `FOLLOW_UP_DELAY` after that. `on_activity`:
    scheduled whenever something is said; otherwise only after another step, or where its output is
    stale.
    """

    name: StepName
    lane: Lane
    then: tuple[StepName, ...] = ()
    later: tuple[StepName, ...] = ()
    on_activity: bool = True


#: In execution order within a lane. The two lanes of a relationship run concurrently, so that
#: work without a model never waits for one. Apart from the profile they write different records;
#: each change locks the relationship and then checks that its sources are unchanged.
STEPS = (
    Step("sessions", "rules", then=("profile", "episodes"), later=("habits",)),
    Step("retention", "rules"),
    Step("stated", "rules"),
    Step("notes", "model"),
    Step("profile", "model"),
    Step("summary", "model"),
    Step("episodes", "model", then=("topics", "hot", "habits")),
    Step("topics", "model", then=("hot",), on_activity=False),
    Step("hot", "model", on_activity=False),
    Step("habits", "rules", on_activity=False),
)
LANES: tuple[Lane, ...] = ("rules", "model")
STEPS_BY_NAME: dict[str, Step] = {step.name: step for step in STEPS}
_ORDER = list(STEPS_BY_NAME)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of running a step.

    `produced`: it wrote something that other steps build on. `more`: one batch is done and more
    remain; other work goes first. `next_check`: when to run it again if nothing happens.
    """

    produced: bool = False
    more: bool = False
    next_check: datetime | None = None


@dataclass(frozen=True, slots=True)
class StepFailure:
    """How often a step failed in a row, why, and when it is retried; a held step is not."""

    attempts: int
    code: str
    retry_at: datetime | None
    held_at: datetime | None = None


def place_of(chat_model: ChatModelPolicy) -> str:
    """Return the place of steps that call this model: a digest, because URLs may be secret."""
    if not chat_model.url:
        return RULES_PLACE
    return sha256(f"{chat_model.url}\n{chat_model.model}".encode()).hexdigest()[:16]


def after_failure(attempts: int, code: str, now: datetime) -> StepFailure:
    """Decide when to retry a step that failed again, after `attempts` earlier failures.

    Retries back off exponentially; a first conflict is retried at once.
    """
    attempts += 1
    if attempts >= (_MAX_OUTAGES if code in _OUTAGES else _MAX_FAILURES):
        return StepFailure(attempts, code, None, now)
    if code == "conflict" and attempts == 1:
        return StepFailure(attempts, code, now)  # its sources changed: start over
    delay = min(_MAX_RETRY_DELAY, _FIRST_RETRY_DELAY * 2.0 ** min(attempts - 1, 10))
    return StepFailure(attempts, code, now + delay)


def due_steps(states: Sequence[StepState], lane: Lane, now: datetime) -> list[StepState]:
    """Return the steps of a lane that are due, in execution order."""
    due = [
        state
        for state in states
        if state.lane == lane and state.step in STEPS_BY_NAME and state.due_at is not None
        if state.due_at <= now
    ]
    return sorted(due, key=lambda state: _ORDER.index(state.step))
