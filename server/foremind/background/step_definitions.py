"""The steps of background work: their order, what follows what, retries and status. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from foremind.domain.background_step import (
    RULES_PLACE,
    FinishedStep,
    Lane,
    ScheduledStep,
    StepState,
)
from foremind.domain.errors import TokenLimitReached
from foremind.domain.relationship import RelationshipState

StepName = Literal[
    "ingest",
    "rating",
    "sessions",
    "retention",
    "stated",
    "notes",
    "summary",
    "episodes",
    "topics",
    "hot",
    "habits",
]
StepPhase = Literal["idle", "gathering", "due", "running", "model", "slot", "backing_off", "held"]

#: Delay of `later` steps after a session ends: its episodes are usually written by then.
FOLLOW_UP_DELAY = timedelta(hours=1)
#: A held step is attempted again once something is said, but not before this has passed ...
HELD_AT_LEAST = timedelta(minutes=10)
#: ... or else after this.
HELD_AT_MOST = timedelta(days=1)

_OUTAGES = frozenset({"model_unreachable", "model_timeout", "model_busy", "storage_unavailable"})


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
class Step:
    """One kind of work on a relationship.

    `lane`: what it runs side by side with. `then`: steps scheduled as soon as it has produced
    something; `later`: steps scheduled `FOLLOW_UP_DELAY` after that. `on_activity`: scheduled
    whenever something is said; otherwise only after another step, or where its output is stale.
    `by_turn`: it takes turns one by one, scheduled by the transaction that makes them wait for it.
    `reads_records`: of other layers, so that they are to be written before.
    """

    name: StepName
    lane: Lane
    then: tuple[StepName, ...] = ()
    later: tuple[StepName, ...] = ()
    on_activity: bool = True
    by_turn: bool = False
    reads_records: bool = False
    retry: RetryPolicy = RETRY_STEP


#: In execution order within a lane. The lanes of a relationship run concurrently, so that work
#: without a model never waits for one. Apart from the profile, and the memories that a rating
#: changes, they write different data; each change locks the relationship and then checks that its
#: sources are unchanged.
STEPS = (
    Step("ingest", "ingest", on_activity=False, by_turn=True, retry=RETRY_TURN),
    Step("rating", "rating", on_activity=False, by_turn=True, retry=RETRY_TURN),
    Step("sessions", "rules", then=("episodes",), later=("habits",)),
    Step("retention", "rules"),
    Step("stated", "rules"),
    Step("notes", "model"),
    Step("summary", "model"),
    Step("episodes", "model", then=("topics", "hot", "habits")),
    Step("topics", "model", then=("hot",), on_activity=False, reads_records=True),
    Step("hot", "model", on_activity=False, reads_records=True),
    Step("habits", "rules", on_activity=False, reads_records=True),
)
#: Those that are claimed.
LANES: tuple[Lane, ...] = ("rules", "model", "rating")
STEPS_BY_NAME: dict[str, Step] = {step.name: step for step in STEPS}
#: The steps that activity in a relationship calls for.
ACTIVITY_STEPS: list[StepName] = [step.name for step in STEPS if step.on_activity]
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


def lane_of(step: StepName, model_place: str) -> Lane:
    """Return the lane of a step: without a model, rules do all the work of a relationship in one.

    Args:
        model_place: where the model of the relationship is.
    """
    return STEPS_BY_NAME[step].lane if model_place else "rules"


def scheduled_steps(names: Iterable[StepName], model_place: str) -> list[ScheduledStep]:
    """Return steps with the places that they wait for; work by rules never waits for a model."""
    return [
        ScheduledStep(name, lane, RULES_PLACE if lane == "rules" else model_place)
        for name in sorted(names, key=_ORDER.index)
        for lane in (lane_of(name, model_place),)
    ]


def steps_to_schedule(
    relationship: RelationshipState, model_place: str, now: datetime
) -> tuple[list[ScheduledStep], datetime | None]:
    """Return the steps that are to run, with their lanes and places as they are now.

    Also return when activity was to be looked at, if that time has come; some steps follow from it.
    """
    due = {step.name for step in STEPS if step.name in relationship.steps_due and not step.by_turn}
    active_at = relationship.due_at
    if active_at is None or active_at > now:
        return scheduled_steps(due, model_place), None
    return scheduled_steps({*due, *ACTIVITY_STEPS}, model_place), active_at


def due_steps(states: Sequence[StepState], lane: Lane, now: datetime) -> list[StepState]:
    """Return the steps of a lane that are due, in execution order, and by turn within a step."""
    due = [
        state
        for state in states
        if state.lane == lane and state.step in STEPS_BY_NAME and state.due_at is not None
        if state.due_at <= now
    ]
    return sorted(due, key=lambda state: (_ORDER.index(state.step), state.turn_id))


def until_tomorrow(state: StepState, error: TokenLimitReached, now: datetime) -> FinishedStep:
    """Decide when to retry a step whose user has spent the tokens of the day.

    It is no further failure. It counts as one if there was none, so that activity does not run the
    step sooner.
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


@dataclass(frozen=True, slots=True)
class StepStatus:
    """The status of one step.

    `state`: `idle` where nothing waits; `gathering` where more may be said first; `due` where it
    waits for a worker or for earlier steps; `running`; `model` where its model has no capacity
    left; `slot` where others, players first, use the model server; `backing_off` after a failure;
    `held` after many, until something is said or a day has passed. `since`: when the waiting work
    was first requested; `due_at`: when it runs next; `code`: why it last failed; `behind`: turns
    after its cursor, counted up to a thousand.
    """

    step: StepName
    state: StepPhase
    asks_model: bool
    since: datetime | None = None
    due_at: datetime | None = None
    attempts: int = 0
    code: str | None = None
    behind: int | None = None


def step_statuses(
    states: Sequence[StepState],
    active_lanes: Collection[Lane],
    full_places: Collection[str],
    waiting_for_slot: Collection[str],
    behind: Mapping[str, int],
    now: datetime,
    gathers_until: datetime | None = None,
) -> list[StepStatus]:
    """Return the status of every step, in order.

    Args:
        active_lanes: lanes that a worker is running.
        full_places: places without capacity.
        waiting_for_slot: running steps that wait for a slot of their model server.
        behind: turns after the cursor, by step, for steps that have one.
        gathers_until: when what was said is looked at, if anything was.
    """
    known = {state.step: state for state in states}
    # In each active lane, the first that is due.
    running = {due[0].step for lane in active_lanes if (due := due_steps(states, lane, now))}
    statuses = []
    for step in STEPS:
        state = known.get(step.name) or StepState(
            step.name, step.lane, "", None, now, 0, 0, None, None
        )
        phase = _phase(state, full_places, now, running=step.name in running)
        if phase == "running" and step.name in waiting_for_slot:
            phase = "slot"
        if phase == "idle" and gathers_until is not None and step.on_activity:
            phase = "gathering"
        statuses.append(
            StepStatus(
                step=step.name,
                state=phase,
                asks_model=state.place != "",
                since=None if phase in ("idle", "gathering") else state.since,
                due_at=gathers_until if phase == "gathering" else state.due_at,
                attempts=state.attempts,
                code=state.code,
                behind=behind.get(step.name),
            )
        )
    return statuses


def _phase(
    state: StepState, full_places: Collection[str], now: datetime, *, running: bool
) -> StepPhase:
    if state.held_at is not None:
        return "held"
    if running:
        return "running"
    waits = state.due_at is not None and state.due_at <= now
    if not waits:
        # A turn that is being ingested is due again later, in case that fails to happen.
        otherwise: StepPhase = "running" if state.step == "ingest" and state.turns else "idle"
        return "backing_off" if state.attempts else otherwise
    return "model" if state.place in full_places else "due"
