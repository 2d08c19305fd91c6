"""Runs the due steps of a lane, and records what became of each."""

from collections.abc import Callable, Sequence
from datetime import datetime

import structlog

from foremind.background.curation_context import CurationContext
from foremind.background.lanes import RunningLane
from foremind.background.retry_policy import after_failure, until_tomorrow
from foremind.background.step_definitions import (
    FOLLOW_UP_DELAY,
    MODEL_LANES,
    STEPS_BY_NAME,
    Outcome,
    Step,
    StepName,
    due_steps,
)
from foremind.background.step_runner import StepRunner
from foremind.background.turn_steps import TurnSteps
from foremind.domain.clock import Clock
from foremind.domain.errors import Conflict, ForemindError, TokenLimitReached
from foremind.domain.relationship import RelationshipState
from foremind.domain.step import RULES_PLACE, ScheduledStep, StepState, place_of
from foremind.memory.ingest import MAX_TURNS
from foremind.storage.curation_store import CurationStore
from foremind.storage.step_store import StepStore

_MAX_STATES = 32  # due steps, or turns, of a lane that are run before other lanes have their turn

_log = structlog.get_logger("foremind.background")


class LaneRunner:
    """Runs lanes that its caller has claimed."""

    def __init__(
        self,
        curation_store: CurationStore,
        step_store: StepStore,
        steps: StepRunner,
        turn_steps: TurnSteps,
        clock: Clock,
        wake: Callable[[int], None],
    ) -> None:
        """Args: wake: called with a relationship for which further steps have been scheduled."""
        self._curation_store = curation_store
        self._step_store = step_store
        self._steps = steps
        self._turn_steps = turn_steps
        self._clock = clock
        self._wake = wake
        #: Once true, lanes that take turns one by one end after the present one.
        self.stopping = False

    async def run(self, lane: RunningLane) -> None:
        """Run the due steps of a lane, each once; unfinished steps are scheduled again.

        Raises:
            StorageUnavailable: what is unfinished stays due.
        """
        if lane.lane == "ingest":
            await self._run_turns(lane)
            return
        relationship = await self._curation_store.relationship_state(lane.relationship_id)
        if relationship is None:
            return
        place = place_of(self._steps.policy_of(relationship).chat_model)
        if lane.lane in MODEL_LANES and lane.place not in (None, place):
            await self._step_store.set_place(relationship.id, lane.lane, place)
            return
        lane.context = await self._steps.context_for(relationship)
        if lane.lane == "rating":
            await self._run_turns(lane)
        else:
            await self._run_steps(lane, lane.context)

    async def schedule(
        self, relationship: RelationshipState, names: Sequence[StepName], due_at: datetime
    ) -> None:
        """Schedule steps of a relationship."""
        if not names:
            return
        place = place_of(self._steps.policy_of(relationship).chat_model)
        await self._step_store.schedule(relationship.id, scheduled_steps(names, place), due_at)
        self._wake(relationship.id)

    async def _run_turns(self, lane: RunningLane) -> None:
        """Run a step for the turns that wait for it; one that fails stops no other.

        Those to be ingested are ingested together, unless that fails.
        """
        states = await self._due_states(lane)
        size = MAX_TURNS if lane.lane == "ingest" else 1
        waiting = [states[first : first + size] for first in range(0, len(states), size)]
        while waiting and not self.stopping:
            batch = waiting.pop(0)
            lane.step = STEPS_BY_NAME[batch[0].step].name
            turn_ids = [state.turn_id for state in batch]
            try:
                done = await self._turn_steps.run(lane.step, lane.relationship_id, turn_ids)
            except Exception as error:  # must not stop other turns
                if len(batch) > 1:
                    waiting[:0] = [[state] for state in batch]
                else:
                    await self._record_failure(lane.relationship_id, batch[0], error)
                continue
            for state in batch:
                if state.turn_id not in done:
                    await self._step_store.drop_turn(lane.relationship_id, state)

    async def _run_steps(self, lane: RunningLane, context: CurationContext) -> None:
        relationship = context.relationship
        done: set[str] = set()
        if lane.lane == "model" and await self._steps.core_memory_is_stale(context):
            await self.schedule(relationship, ("topics", "hot"), self._clock.now())
        if lane.lane == "rules" and relationship.inferences_to_redo is not None:
            await self.schedule(relationship, ("habits",), self._clock.now())
        while remaining := [
            state for state in await self._due_states(lane) if state.step not in done
        ]:
            done.add(remaining[0].step)
            if not await self._run_step(lane, context, remaining[0]):
                return

    async def _due_states(self, lane: RunningLane) -> list[StepState]:
        now = self._clock.now()
        states = await self._step_store.due_states(
            lane.relationship_id, lane.lane, now, _MAX_STATES
        )
        return due_steps(states, lane.lane, now)

    async def _run_step(
        self, lane: RunningLane, context: CurationContext, state: StepState
    ) -> bool:
        """Run a step and record the result; False if later steps need a fresh context."""
        step = STEPS_BY_NAME[state.step]
        lane.step = step.name
        try:
            outcome = await self._steps.run(step.name, context, state.attempts)
        except Exception as error:  # must not stop other steps or other relationships
            await self._record_failure(context.relationship.id, state, error)
            return not isinstance(error, Conflict)
        await self._record_outcome(context, step, state, outcome)
        return True

    async def _record_outcome(
        self, context: CurationContext, step: Step, state: StepState, outcome: Outcome
    ) -> None:
        now = self._clock.now()
        if outcome.produced:
            await self.schedule(context.relationship, step.then, now)
            await self.schedule(context.relationship, step.later, now + FOLLOW_UP_DELAY)
        due_at = now if outcome.more else outcome.next_check
        await self._step_store.finish(context.relationship.id, state, due_at, now)

    async def _record_failure(
        self, relationship_id: int, state: StepState, error: Exception
    ) -> None:
        code = error.code if isinstance(error, ForemindError) else type(error).__name__
        retry = STEPS_BY_NAME[state.step].retry
        now = self._clock.now()
        if isinstance(error, TokenLimitReached):
            failure = until_tomorrow(state.attempts, error, now)
        else:
            failure = after_failure(retry, state.attempts, code, now)
        fields = {"relationship_id": relationship_id, "step": state.step, "reason": code}
        if state.turn_id:
            fields["turn_id"] = state.turn_id
        if isinstance(error, Conflict):
            _log.info("curation.begins_anew", **fields)
        elif isinstance(error, ForemindError):
            _log.warning("curation.failed", **fields, attempts=failure.attempts)
        else:
            _log.error("curation.broken", **fields, exc_info=error)
        await self._step_store.fail(
            relationship_id,
            state,
            failure.attempts,
            failure.code,
            failure.retry_at,
            failure.held_at,
        )


def scheduled_steps(names: Sequence[StepName], place: str) -> list[ScheduledStep]:
    """Return steps with their places; those of the rules lane never wait for a model. Pure."""
    steps = [STEPS_BY_NAME[name] for name in names]
    return [
        ScheduledStep(step.name, step.lane, place if step.lane in MODEL_LANES else RULES_PLACE)
        for step in steps
    ]
