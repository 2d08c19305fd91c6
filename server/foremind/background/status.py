"""The status of background work on a relationship, for its user and the operator. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from foremind.background.step_definitions import STEPS, StepName, due_steps
from foremind.domain.step import Lane, StepState

StepPhase = Literal["idle", "gathering", "due", "running", "model", "slot", "backing_off", "held"]


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
    running = _running_steps(states, active_lanes, now)
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


def _running_steps(
    states: Sequence[StepState], active_lanes: Collection[Lane], now: datetime
) -> set[str]:
    """Return the running steps: in each active lane, the first that is due."""
    due_by_lane = [due_steps(states, lane, now) for lane in active_lanes]
    return {due[0].step for due in due_by_lane if due}


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
