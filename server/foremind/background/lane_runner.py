"""Runs the due steps of a lane, and records what became of them together with what they found."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from foremind.background.curation_context import CurationContext
from foremind.background.lanes import RunningLane
from foremind.background.step_definitions import (
    FOLLOW_UP_DELAY,
    STEPS_BY_NAME,
    StepName,
    after_failure,
    due_steps,
    scheduled_steps,
    until_tomorrow,
)
from foremind.background.step_runner import StepRunner
from foremind.domain.clock import Clock
from foremind.domain.errors import Conflict, ForemindError, StorageUnavailable, TokenLimitReached
from foremind.domain.step import INGEST_LEASE, Claim, FinishedStep, StepState
from foremind.memory.ingest import MAX_TURNS, MemoryIngester
from foremind.storage.background_store import MAX_STATES, StepStore
from foremind.storage.database import DatabaseConnection

_log = structlog.get_logger("foremind.background")


class LaneRunner:
    """Runs lanes that its caller has claimed."""

    def __init__(
        self,
        step_store: StepStore,
        steps: StepRunner,
        ingester: MemoryIngester,
        clock: Clock,
    ) -> None:
        self._step_store = step_store
        self._steps = steps
        self._ingester = ingester
        self._clock = clock
        #: Once true, turns that wait behind those being ingested are left to others.
        self.stopping = False

    async def ingest(
        self, relationship_id: int, states: Sequence[StepState], used: Sequence[int] = ()
    ) -> bool:
        """Ingest turns together, unless that fails: then one that fails by itself stops no other.

        Args:
            used: memories that a reply among them was made of.

        Returns:
            Whether some now wait for a rating.

        Raises:
            StorageUnavailable: what is unfinished stays due.
        """
        waiting = [states[first : first + MAX_TURNS] for first in range(0, len(states), MAX_TURNS)]
        while waiting:
            if self.stopping:  # others may take the rest at once
                rest = [state.turn_id for batch in waiting for state in batch]
                now = self._clock.now()
                await self._step_store.claim_turns(
                    relationship_id, rest, now, now, now + INGEST_LEASE
                )
                return False
            batch = waiting.pop(0)
            turn_ids = [state.turn_id for state in batch]
            try:
                done = await self._ingester.ingest_turns(relationship_id, turn_ids, used)
            except Exception as error:  # must not stop other turns
                if len(batch) == 1:
                    failed = self._failure_of(relationship_id, batch[0], error)
                    await self._step_store.finish(relationship_id, [failed], self._clock.now())
                else:
                    waiting[:0] = [[state] for state in batch]
                continue
            used = ()
            for state in batch:
                if state.turn_id not in done:
                    await self._step_store.drop_turn(relationship_id, state)
        waits = relationship_id in self._ingester.to_rate
        self._ingester.to_rate.discard(relationship_id)
        return waits

    async def run(self, lane: RunningLane, claim: Claim) -> None:
        """Run the due steps of a lane, each once, and end the claim; the others stay due.

        What steps find without a model is written in one transaction, with what became of them.

        Raises:
            StorageUnavailable: what is unfinished stays due.
        """
        context = lane.context = await self._steps.context_for(lane.relationship)
        lane.wakes |= len(lane.states) == MAX_STATES
        states: Sequence[StepState] | None = due_steps(lane.states, lane.lane, self._clock.now())
        results = _Results(follow_ups=await self._steps.stale_steps(lane, context))
        done: set[tuple[str, int]] = set()
        while states is not None:
            group = _next_group(states, one_by_one=context.server is not None)
            for state in group:
                done.add((state.step, state.turn_id))
                await self._run_step(lane, context, state, results)
            found = await self._commit(lane, context, results, claim, states[len(group) :])
            states = found and [step for step in found if (step.step, step.turn_id) not in done]
            results = _Results()

    async def _run_step(
        self, lane: RunningLane, context: CurationContext, state: StepState, results: "_Results"
    ) -> None:
        """Run a step, and add what became of it to the results."""
        step = STEPS_BY_NAME[state.step]
        lane.step = step.name
        results.follow_ups.discard(step.name)  # it follows what has asked for it
        planned = len(context.planned)
        try:
            outcome = await self._steps.run(step.name, context, state)
        except Exception as error:  # must not stop other steps or other relationships
            del context.planned[planned:]
            results.finished[state] = self._failure_of(context.relationship.id, state, error)
            return
        if step.by_turn:
            if not outcome.produced:  # otherwise the transaction that rated the turn records it
                await self._step_store.drop_turn(context.relationship.id, state)
            return
        now = self._clock.now()
        due_at = now if outcome.more else outcome.next_check
        results.finished[state] = FinishedStep(step.name, state.marks, due_at)
        if outcome.produced:
            results.follow_ups.update(step.then)
            results.later.update(step.later)

    async def _commit(
        self,
        lane: RunningLane,
        context: CurationContext,
        results: "_Results",
        claim: Claim,
        rest: Sequence[StepState],
    ) -> Sequence[StepState] | None:
        """Write what steps have found and what became of them, in one transaction.

        The claim ends with it, unless there is more to do in this lane.

        Returns:
            The states of the steps that are due by now; None if the claim has ended.
        """
        relationship_id = context.relationship.id
        follow_ups = scheduled_steps(results.follow_ups, lane.model_place)
        goes_on = bool(rest) or any(step.lane == lane.lane for step in follow_ups)
        goes_on &= "conflict" not in (step.code for step in results.finished.values())

        async def finish(connection: DatabaseConnection | None) -> Sequence[StepState] | None:
            # What follows is scheduled first: without a transaction, its cause may not end before.
            store, found = self._step_store, rest
            if results.later:
                later = scheduled_steps(results.later, lane.model_place)
                await store.schedule(relationship_id, later, now + FOLLOW_UP_DELAY, connection)
            if follow_ups:
                lanes = {lane.lane: lane.place} if goes_on else {}
                states = await store.claim(
                    relationship_id, lanes, claim, now, follow_ups, connection=connection
                )
                found = due_steps(states, lane.lane, now)
            released = [] if goes_on else [lane.lane]
            steps = list(results.finished.values())
            if steps or released:
                await store.finish(relationship_id, steps, now, released, claim.holder, connection)
            return found if goes_on else None

        now = self._clock.now()
        lane.wakes |= any(step.lane != lane.lane for step in follow_ups) or any(
            step.due_at is not None and step.due_at <= now for step in results.finished.values()
        )
        try:
            return await context.commit(finish)
        except StorageUnavailable:
            raise
        except Exception as error:  # nothing of it was written: each of the steps has failed
            steps = [self._failure_of(relationship_id, state, error) for state in results.finished]
            lane.wakes = True
            await self._step_store.finish(relationship_id, steps, now, [lane.lane], claim.holder)
            return None

    def _failure_of(self, relationship_id: int, state: StepState, error: Exception) -> FinishedStep:
        """Return what becomes of a step that has failed, and log it."""
        code = error.code if isinstance(error, ForemindError) else type(error).__name__
        now = self._clock.now()
        if isinstance(error, TokenLimitReached):
            failure = until_tomorrow(state, error, now)
        else:
            failure = after_failure(STEPS_BY_NAME[state.step].retry, state, code, now)
        fields = {"relationship_id": relationship_id, "step": state.step, "reason": code}
        if state.turn_id:
            fields["turn_id"] = state.turn_id
        if isinstance(error, Conflict):
            _log.info("curation.begins_anew", **fields)
        elif isinstance(error, ForemindError):
            _log.warning("curation.failed", **fields, attempts=failure.attempts)
        else:
            _log.error("curation.broken", **fields, exc_info=error)
        return failure


@dataclass(slots=True)
class _Results:
    """What became of the steps that are written together, and what follows them, now or later."""

    finished: dict[StepState, FinishedStep] = field(default_factory=dict)
    follow_ups: set[StepName] = field(default_factory=set)
    later: set[StepName] = field(default_factory=set)


def _next_group(states: Sequence[StepState], *, one_by_one: bool) -> Sequence[StepState]:
    """Return the next steps to be written together: up to one that reads what others write. Pure.

    One that has failed is by itself, so that it fails no other.

    Args:
        one_by_one: each step waits for a model, and what it found is written before the next.
    """
    size = 1
    while (
        size < len(states)
        and not one_by_one
        and not (states[0].attempts or states[size].attempts)
        and not STEPS_BY_NAME[states[size].step].reads_records
    ):
        size += 1
    return states[:size]
