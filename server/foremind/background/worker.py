"""Runs the background steps of relationships as they fall due; one worker per process."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self
from uuid import uuid4

import structlog

from foremind.background.curation_context import CurationContext
from foremind.background.status import StepStatus, step_statuses
from foremind.background.step_runner import StepRunner
from foremind.background.steps import (
    FOLLOW_UP_DELAY,
    LANES,
    RULES_PLACE,
    STEPS,
    STEPS_BY_NAME,
    Outcome,
    Step,
    StepName,
    after_failure,
    due_steps,
    place_of,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import Conflict, ForemindError, NotFound
from foremind.domain.relationship import RelationshipState
from foremind.domain.settings import Settings
from foremind.domain.step import ClaimedStep, Lane, PendingLook, ScheduledStep, StepState
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor, TaskSet
from foremind.storage.curation_store import CurationStore
from foremind.storage.step_store import StepStore

# Concurrency limits. Rule-based lanes take milliseconds. A model that hangs blocks only its own
# lanes, and a companion whose requests hang only three of those.
_MAX_RULES_LANES = 4
_MAX_LANES_PER_MODEL = 4
_MAX_LANES_PER_COMPANION = 3  # on one model
_MAX_MODEL_LANES = 16  # on all models together

_LEASE = timedelta(seconds=30)  # a worker that does not renew it is presumed dead
_RENEW_INTERVAL = timedelta(seconds=10)
_DAY = timedelta(days=1)
_WAKE_BATCH = 200  # dormant relationships, or held steps, woken together: milliseconds
_MAX_CHECKS = 8  # concurrent checks of relationships with new activity; milliseconds each
_SILENT_S = 60.0  # without an iteration of the loop, it counts as stuck
_POLL_INTERVAL_S = 1.0  # only a safety net: replies wake the worker
_MEASURE_INTERVAL_S = 5.0  # between two counts of waiting steps
_RETRY_DELAY_S = 5.0  # after a lane failed outside its steps
_ACTIVITY_STEPS = [step.name for step in STEPS if step.on_activity]
_MAX_ROUNDS = 10_000  # of one `curate` call, however much the steps report as remaining

_log = structlog.get_logger("foremind.background")


@dataclass(slots=True)
class _RunningLane:
    """A lane of a relationship that this worker has claimed, and the step it is running."""

    claimed: ClaimedStep
    task: asyncio.Task[None] | None = None
    step: StepName | None = None
    context: CurationContext | None = None

    @property
    def waits_for_slot(self) -> bool:
        """Whether the step waits for a slot of its model server."""
        server = None if self.context is None else self.context.server
        return (
            server is not None and self.task is not None and server.slots.keeps_waiting(self.task)
        )


class BackgroundWorker:
    """Runs background steps that are due, from entering the block until leaving it.

    The schedule is stored in the database: it survives restarts and is shared between processes.
    """

    def __init__(
        self,
        curation_store: CurationStore,
        step_store: StepStore,
        steps: StepRunner,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self._due = curation_store
        self._step_store = step_store
        self._steps = steps
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._measured_at: float | None = None
        self._wakeup = asyncio.Event()
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._tasks = TaskSet()
        self._lease_holder = uuid4()
        # Bounded by the concurrency limits.
        self._running_lanes: dict[tuple[int, Lane], _RunningLane] = {}
        self._renewed_at: datetime | None = None
        self._checking: set[int] = set()

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("curation", self._run, silent_s=_SILENT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        await self._tasks.stop()
        with contextlib.suppress(ForemindError):  # the leases expire instead
            await self._step_store.give_up_all(self._lease_holder)

    def look(self) -> None:
        """Wake the worker: there may be something to do."""
        self._wakeup.set()

    async def make_due(self, relationship_id: int) -> None:
        """Schedule a check of a relationship as soon as possible."""
        await self._due.make_due(relationship_id, self._clock.now())
        self.look()

    async def take_up(self, relationship_id: int) -> None:
        """Schedule a relationship as soon as possible, including failed and held steps."""
        await self._step_store.take_up(relationship_id, self._clock.now())
        await self.make_due(relationship_id)

    async def status(self, relationship_id: int) -> list[StepStatus]:
        """Return the status of each step of a relationship.

        Raises:
            NotFound: there is no such relationship.
        """
        relationship = await self._due.bond(relationship_id)
        if relationship is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        now = self._clock.now()
        states = await self._step_store.of(relationship_id)
        places = {state.place for state in states} - {RULES_PLACE}
        claims = {place: await self._step_store.claims_at(place, now) for place in places}
        cursors = {
            "stated": relationship.stated_turn_id,
            "profile": relationship.profiled_turn_id,
            "notes": relationship.noted_turn_id,
            "summary": relationship.summarised_turn_id,
            "episodes": relationship.told_turn_id,
        }
        return step_statuses(
            states,
            await self._step_store.lanes_at_work(relationship_id, now),
            [place for place in places if claims[place] >= _MAX_LANES_PER_MODEL],
            self._waiting_for_slot(relationship_id),
            await self._step_store.behind(relationship_id, cursors),
            now,
        )

    async def measure(self) -> None:
        """Update the metrics of waiting steps, at most every few seconds."""
        moment = self._clock.monotonic()
        if self._measured_at is not None and moment - self._measured_at < _MEASURE_INTERVAL_S:
            return
        self._measured_at = moment
        now = self._clock.now()
        waiting = await self._step_store.waiting(now, _MAX_LANES_PER_MODEL)
        self._metrics.curation_waiting.clear()
        counts = Counter({(steps.step, steps.reason): steps.count for steps in waiting})
        for lane in self._running_lanes.values():
            if lane.step is not None and lane.waits_for_slot and counts[lane.step, "running"]:
                counts[lane.step, "running"] -= 1
                counts[lane.step, "slot"] += 1
        for (step, reason), count in counts.items():
            self._metrics.curation_waiting.labels(step, reason).set(count)
        oldest = min((steps.oldest for steps in waiting), default=now)
        self._metrics.curation_oldest.set(max(0.0, (now - oldest).total_seconds()))

    async def curate(self, relationship_id: int) -> None:
        """Run all due steps of a relationship one after another, except lanes others have claimed.

        Raises:
            StorageUnavailable: try again later.
        """
        relationship = await self._due.bond(relationship_id)
        if relationship is None:
            return
        await self._schedule(relationship, _ACTIVITY_STEPS, self._clock.now())
        holder = uuid4()
        for _ in range(_MAX_ROUNDS):
            states = await self._step_store.of(relationship_id)
            now = self._clock.now()
            lanes = [lane for lane in LANES if due_steps(states, lane, now)]
            if not lanes:
                return
            for lane in lanes:
                if not await self._step_store.claim_of(
                    relationship_id, lane, holder, now, now + _LEASE
                ):
                    return
                try:
                    await self._run_lane(relationship_id, lane)
                finally:
                    await self._step_store.give_up(relationship_id, lane, holder)

    def _waiting_for_slot(self, relationship_id: int) -> set[StepName]:
        """Return a relationship's steps that wait in this process for a model server slot."""
        running = [self._running_lanes.get((relationship_id, lane)) for lane in LANES]
        return {
            lane.step
            for lane in running
            if lane is not None and lane.step is not None and lane.waits_for_slot
        }

    async def _run(self, loop: SupervisedLoop) -> None:
        while True:
            self._wakeup.clear()
            await self._renew_leases()
            await self._check_relationships()
            await self._start_due_lanes()
            loop.well()
            await self._wait()

    async def _wait(self) -> None:
        """Wait until the worker is woken, or for the poll interval."""
        timer = self._clock.call_at(self._clock.monotonic() + _POLL_INTERVAL_S, self._wakeup.set)
        try:
            await self._wakeup.wait()
        finally:
            timer.cancel()

    async def _renew_leases(self) -> None:
        """Renew the leases of running lanes; cancel those lost to another worker after a stall."""
        now = self._clock.now()
        if self._renewed_at is not None and now - self._renewed_at < _RENEW_INTERVAL:
            return
        before = dict(self._running_lanes)
        renewed = await self._step_store.renew(self._lease_holder, now + _LEASE)
        self._renewed_at = now
        for key, lane in before.items():
            if (
                key not in renewed
                and self._running_lanes.get(key) is lane
                and lane.task is not None
            ):
                lane.task.cancel()
        for relationship_id, orphan in renewed - before.keys():  # releasing it had failed
            await self._step_store.give_up(relationship_id, orphan, self._lease_holder)

    async def _check_relationships(self) -> None:
        """Schedule steps where something happened, where retention applies, or after a hold."""
        now = self._clock.now()
        everywhere = bool(self._settings.retention_days)
        await self._due.wake(now, now - _DAY, _WAKE_BATCH, all_let_go=everywhere)
        await self._step_store.take_up_held(now, now - _DAY, _WAKE_BATCH)
        for pending in await self._step_store.to_look_at(now, _MAX_CHECKS):
            if pending.id not in self._checking and len(self._checking) < _MAX_CHECKS:
                self._checking.add(pending.id)
                self._tasks.begin(self._check(pending), "curation-look")

    async def _check(self, pending: PendingLook) -> None:
        """Schedule a relationship's activity steps; waits while the relationship is locked."""
        try:
            place = place_of(self._steps.policy_of(pending).voice)
            steps = _scheduled(_ACTIVITY_STEPS, place)
            await self._step_store.look_at(pending, steps, self._clock.now())
        finally:
            self._checking.discard(pending.id)
            self._wakeup.set()

    async def _start_due_lanes(self) -> None:
        """Claim as many due lanes as the limits allow, and run each in its own task."""
        while (claimed := await self._claim()) is not None:
            key = (claimed.relationship_id, claimed.lane)
            lane = self._running_lanes[key] = _RunningLane(claimed)
            lane.task = self._tasks.begin(self._run_and_release(lane), "curate")

    async def _claim(self) -> ClaimedStep | None:
        now = self._clock.now()
        by_place = Counter(lane.claimed.place for lane in self._running_lanes.values())
        by_companion = Counter(
            (lane.claimed.place, lane.claimed.companion_id)
            for lane in self._running_lanes.values()
            if lane.claimed.place != RULES_PLACE
        )
        on_models = by_place.total() - by_place[RULES_PLACE]
        limits = {RULES_PLACE: _MAX_RULES_LANES}
        full = [
            place
            for place in by_place
            if by_place[place] >= limits.get(place, _MAX_LANES_PER_MODEL)
        ]
        models_full = on_models >= _MAX_MODEL_LANES
        if RULES_PLACE in full and models_full:
            return None
        return await self._step_store.claim(
            self._lease_holder,
            now,
            now + _LEASE,
            full=full,
            models_full=models_full,
            full_of=[key for key in by_companion if by_companion[key] >= _MAX_LANES_PER_COMPANION],
        )

    async def _run_and_release(self, lane: _RunningLane) -> None:
        claimed = lane.claimed
        key = (claimed.relationship_id, claimed.lane)
        try:
            await self._run_lane(claimed.relationship_id, claimed.lane, claimed.place)
        except Exception as error:  # the database or a defect: unfinished steps stay due
            reason = error.code if isinstance(error, ForemindError) else type(error).__name__
            unexpected = error if not isinstance(error, ForemindError) else None
            _log.warning(
                "curation.stopped",
                relationship_id=claimed.relationship_id,
                reason=reason,
                exc_info=unexpected,
            )
            await self._clock.sleep(_RETRY_DELAY_S)
        finally:
            if self._running_lanes.get(key) is lane:
                del self._running_lanes[key]
        with contextlib.suppress(ForemindError):  # the lease expires instead
            await self._step_store.give_up(
                claimed.relationship_id, claimed.lane, self._lease_holder
            )
        self._wakeup.set()

    async def _run_lane(self, relationship_id: int, lane: Lane, place: str | None = None) -> None:
        """Run the due steps of a lane, each once; unfinished steps are scheduled again."""
        relationship = await self._due.bond(relationship_id)
        if relationship is None:
            return
        current_place = place_of(self._steps.policy_of(relationship).voice)
        if lane == "model" and place is not None and place != current_place:
            await self._step_store.move(relationship_id, lane, current_place)
            return
        context = self._steps.work(relationship)
        done: set[str] = set()
        if lane == "model" and await self._steps.core_memory_is_stale(context):
            await self._schedule(relationship, ("topics", "hot"), self._clock.now())
        if lane == "rules" and relationship.inferred_again is not None:
            await self._schedule(relationship, ("habits",), self._clock.now())
        while remaining := [
            state
            for state in due_steps(
                await self._step_store.of(relationship_id), lane, self._clock.now()
            )
            if state.step not in done
        ]:
            done.add(remaining[0].step)
            if not await self._run_step(context, remaining[0]):
                return

    async def _run_step(self, context: CurationContext, state: StepState) -> bool:
        """Run a step and record the result; False if later steps need a fresh context."""
        step = STEPS_BY_NAME[state.step]
        lane = self._running_lanes.get((context.relationship.id, state.lane))
        if lane is not None:
            lane.step, lane.context = step.name, context
        try:
            outcome = await self._steps.run(step.name, context, state.attempts)
        except Exception as error:  # must not stop other steps or other relationships
            await self._record_failure(context, state, error)
            return not isinstance(error, Conflict)
        await self._record_outcome(context, step, state, outcome)
        return True

    async def _record_outcome(
        self, context: CurationContext, step: Step, state: StepState, outcome: Outcome
    ) -> None:
        now = self._clock.now()
        if outcome.produced:
            await self._schedule(context.relationship, step.then, now)
            await self._schedule(context.relationship, step.later, now + FOLLOW_UP_DELAY)
        due_at = now if outcome.more else outcome.next_check
        await self._step_store.finish(context.relationship.id, state, due_at, now)

    async def _record_failure(
        self, context: CurationContext, state: StepState, error: Exception
    ) -> None:
        code = error.code if isinstance(error, ForemindError) else type(error).__name__
        failure = after_failure(state.attempts, code, self._clock.now())
        fields = {"relationship_id": context.relationship.id, "step": state.step, "reason": code}
        if isinstance(error, Conflict):
            _log.info("curation.begins_anew", **fields)
        elif isinstance(error, ForemindError):
            _log.warning("curation.failed", **fields, attempts=failure.attempts)
        else:
            _log.error("curation.broken", **fields, exc_info=error)
        await self._step_store.fail(
            context.relationship.id,
            state.step,
            failure.attempts,
            failure.code,
            failure.retry_at,
            failure.held_at,
        )

    async def _schedule(
        self, relationship: RelationshipState, names: Sequence[StepName], due_at: datetime
    ) -> None:
        if not names:
            return
        place = place_of(self._steps.policy_of(relationship).voice)
        await self._step_store.make_due(relationship.id, _scheduled(names, place), due_at)
        self._wakeup.set()


def _scheduled(names: Sequence[StepName], place: str) -> list[ScheduledStep]:
    """Return steps with their places; steps of the rules lane never wait for a model."""
    steps = [STEPS_BY_NAME[name] for name in names]
    return [
        ScheduledStep(step.name, step.lane, place if step.lane == "model" else RULES_PLACE)
        for step in steps
    ]
