"""How the background work on a relationship stands, as its user and the operator are told. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from foremind.background.steps import STEPS, StepName, due_steps
from foremind.domain.step import Lane, StepState

Standing = Literal["idle", "due", "running", "model", "slot", "backing_off", "held"]


@dataclass(frozen=True, slots=True)
class StepStatus:
    """How one step stands.

    `state`: `idle` where nothing waits; `due` where a worker or the steps before it are waited for;
    `running`; `model` where all places of its model are taken, `slot` where others, players first,
    use the model server; `backing_off` after a failure, `held` after many, until something is
    said or a day is over. `since` is when what waits was first asked for, `due_at` when it is
    looked at next, `code` why it failed last. `behind` counts the turns after its cursor, up to a
    thousand.
    """

    step: StepName
    state: Standing
    asks_model: bool
    since: datetime | None = None
    due_at: datetime | None = None
    attempts: int = 0
    code: str | None = None
    behind: int | None = None


def status_of(
    states: Sequence[StepState],
    at_work: Collection[Lane],
    full: Collection[str],
    kept_waiting: Collection[str],
    behind: Mapping[str, int],
    now: datetime,
) -> list[StepStatus]:
    """Return how every step stands, in order.

    Args:
        at_work: lanes in which a worker is at work.
        full: places that are all taken.
        kept_waiting: steps under way that wait for a slot of their model server.
        behind: turns after a step's cursor, where it has one.
    """
    known = {each.step: each for each in states}
    running = _running(states, at_work, now)
    told = []
    for step in STEPS:
        state = known.get(step.name)
        left = behind.get(step.name)
        if state is None:
            told.append(StepStatus(step.name, "idle", asks_model=False, behind=left))
            continue
        standing = _standing(state, full, now, running=step.name in running)
        if standing == "running" and step.name in kept_waiting:
            standing = "slot"
        told.append(
            StepStatus(
                step=step.name,
                state=standing,
                asks_model=state.place != "",
                since=None if standing == "idle" else state.since,
                due_at=state.due_at,
                attempts=state.attempts,
                code=state.code,
                behind=left,
            )
        )
    return told


def _running(states: Sequence[StepState], at_work: Collection[Lane], now: datetime) -> set[str]:
    """Return the steps that are under way: in each lane with a worker, the first that is due."""
    due = [due_steps(states, lane, now) for lane in at_work]
    return {each[0].step for each in due if each}


def _standing(state: StepState, full: Collection[str], now: datetime, *, running: bool) -> Standing:
    if state.held_at is not None:
        return "held"
    if running:
        return "running"
    waits = state.due_at is not None and state.due_at <= now
    if not waits:
        return "backing_off" if state.attempts else "idle"
    return "model" if state.place in full else "due"
