"""The steps of the background work, as data: their order, what asks a model, what follows what."""

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

#: The place of what rules do; any other is a model on a model server.
BY_RULES = ""
#: After a session is over: what happened in it is usually told by then, where that is told at all.
LATER = timedelta(hours=1)
#: Between a step's being held and its next try, whatever is said meanwhile.
HELD_FOR = timedelta(minutes=10)

_FIRST_PAUSE = timedelta(seconds=30)  # after a failure; doubled after each that follows
_LONGEST_PAUSE = timedelta(hours=1)
_MOST_FAILURES = 8  # in a row; then a step is held: the last comes an hour after the first
_MOST_OUTAGES = 72  # the same where the model server was away: three days
_OUTAGES = frozenset({"model_unreachable", "model_timeout", "storage_unavailable"})


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of work on a relationship.

    `lane`: whether it may ask a language model. `then` are the steps that are due once it has made
    something, `later` those that are due some time (`LATER`) after that. `looked`: whether it may
    have something to do whenever something was said; else it is due only after another, or where
    what it wrote is out of date.
    """

    name: StepName
    lane: Lane
    then: tuple[StepName, ...] = ()
    later: tuple[StepName, ...] = ()
    looked: bool = True


#: In the order in which those of a lane are done. The two lanes of a relationship go on beside each
#: other, so that what needs no model waits for none: but for the profile they write different
#: records, each change locks the relationship, and what it was made of is compared once it does.
STEPS = (
    Step("sessions", "rules", then=("profile", "episodes"), later=("habits",)),
    Step("retention", "rules"),
    Step("stated", "rules"),
    Step("notes", "model"),
    Step("profile", "model"),
    Step("summary", "model"),
    Step("episodes", "model", then=("topics", "hot", "habits")),
    Step("topics", "model", then=("hot",), looked=False),
    Step("hot", "model", looked=False),
    Step("habits", "rules", looked=False),
)
LANES: tuple[Lane, ...] = ("rules", "model")
STEP_OF: dict[str, Step] = {each.name: each for each in STEPS}
_ORDER = list(STEP_OF)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a step.

    `made`: something that others build on. `more`: a portion is done, and there is more to do;
    others have their turn first. `due`: when it must be looked at next, if nothing happens.
    """

    made: bool = False
    more: bool = False
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class StepFailure:
    """How often a step failed in a row, why, and when it is tried again; held, it is not."""

    attempts: int
    code: str
    again: datetime | None
    held_at: datetime | None = None


def place_of(voice: ChatModelPolicy) -> str:
    """Return the place at which steps wait that ask a model; a digest: addresses may be secret."""
    if not voice.url:
        return BY_RULES
    return sha256(f"{voice.url}\n{voice.model}".encode()).hexdigest()[:16]


def failed(attempts: int, code: str, now: datetime) -> StepFailure:
    """Decide what becomes of a step that failed again, after `attempts` failures."""
    attempts += 1
    if attempts >= (_MOST_OUTAGES if code in _OUTAGES else _MOST_FAILURES):
        return StepFailure(attempts, code, None, now)
    if code == "conflict" and attempts == 1:
        return StepFailure(attempts, code, now)  # what it was made of has changed: it begins anew
    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(attempts - 1, 10))
    return StepFailure(attempts, code, now + pause)


def due_steps(states: Sequence[StepState], lane: Lane, now: datetime) -> list[StepState]:
    """Return the steps of a lane that are due, in the order in which they are done."""
    due = [
        state
        for state in states
        if state.lane == lane and state.step in STEP_OF and state.due_at is not None
        if state.due_at <= now
    ]
    return sorted(due, key=lambda each: _ORDER.index(each.step))
