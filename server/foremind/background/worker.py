"""Runs the background steps of relationships as they fall due; one worker per process."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Self
from uuid import uuid4

import structlog

from foremind.background.dispatcher import LEASE, Dispatcher
from foremind.background.lane_runner import LaneRunner
from foremind.background.lanes import MAX_LANES_PER_MODEL, RunningLane
from foremind.background.status import StepStatus, step_statuses
from foremind.background.step_definitions import LANES, STEPS, steps_to_schedule
from foremind.background.step_runner import StepRunner
from foremind.domain.errors import ForemindError, NotFound
from foremind.domain.step import RULES_PLACE, Claim, place_of
from foremind.memory.ingest import MemoryIngester
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import SupervisedLoop
from foremind.storage.background_store import CurationStore, StepStore

_RENEW_INTERVAL_S = 3.0
_DAY = timedelta(days=1)
_WAKE_BATCH = 200  # dormant relationships, or held steps, woken together: milliseconds
_WAKE_INTERVAL_S = 10.0  # between two looks for those
_SILENT_S = 60.0  # without an iteration of the loop, it counts as stuck
_MEASURE_INTERVAL_S = 5.0  # between two counts of waiting steps
_STOP_S = 10.0  # allowed for the turns that are being ingested when the worker stops
_BY_TURN = [step.name for step in STEPS if step.by_turn]
_MAX_ROUNDS = 10_000  # of one `curate` call, however much the steps report as remaining

_log = structlog.get_logger("foremind.background")


class BackgroundWorker:
    """Runs background steps that are due, from entering the block until leaving it.

    The schedule is stored in the database: it survives restarts and is shared between processes.
    """

    def __init__(
        self,
        curation_store: CurationStore,
        step_store: StepStore,
        steps: StepRunner,
        ingester: MemoryIngester,
        runtime: RuntimeServices,
        has_peers: Callable[[], bool],
    ) -> None:
        """Args: has_peers: whether other processes serve relationships of the same database."""
        self._curation_store = curation_store
        self._step_store = step_store
        self._steps = steps
        self._runner = LaneRunner(step_store, steps, ingester, runtime.clock)
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._supervisor = runtime.supervisor
        self._loop: SupervisedLoop | None = None
        self._lease_holder = uuid4()
        self._dispatcher = Dispatcher(
            curation_store,
            step_store,
            steps,
            self._runner,
            runtime.clock,
            self._lease_holder,
            has_peers,
        )
        self._lanes = self._dispatcher.lanes
        # Monotonic times; None before the first.
        self._measured_at: float | None = None
        self._renewed_at: float | None = None
        self._woke_idle_at: float | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("curation", self._run, max_silence_s=_SILENT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        self._runner.stopping = True
        await self._dispatcher.stop(_STOP_S)
        with contextlib.suppress(ForemindError):  # the leases expire instead
            await self._step_store.release_claims(self._lease_holder)

    def wake(self, relationship_id: int) -> None:
        """Have a relationship visited and its turns ingested: something was changed there."""
        self._dispatcher.ingest_soon(relationship_id)
        self._dispatcher.visit_soon(relationship_id)

    def ingest_soon(
        self, relationship_id: int, turn_ids: Sequence[int] = (), used: Sequence[int] = ()
    ) -> None:
        """Have the turns of a relationship ingested that wait for it.

        Args:
            turn_ids: turns that wait for a reply no longer.
            used: memories that this reply was made of.
        """
        self._dispatcher.ingest_soon(relationship_id, turn_ids, used)

    async def schedule_now(self, relationship_id: int) -> None:
        """Schedule a check of a relationship as soon as possible."""
        await self._curation_store.schedule_now(relationship_id, self._clock.now())
        self.wake(relationship_id)

    async def retry_now(self, relationship_id: int) -> None:
        """Schedule a relationship as soon as possible, including failed and held steps."""
        await self._step_store.retry_failed(relationship_id, self._clock.now())
        await self.schedule_now(relationship_id)

    async def status(self, relationship_id: int) -> list[StepStatus]:
        """Return the status of each step of a relationship.

        Raises:
            NotFound: there is no such relationship.
        """
        now = self._clock.now()
        relationship = await self._curation_store.relationship_state(relationship_id, now)
        if relationship is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        states = await self._step_store.step_states(relationship_id)
        places = {state.place for state in states} - {RULES_PLACE}
        claims = {place: await self._step_store.claims_at_place(place, now) for place in places}
        cursors = {
            "stated": relationship.stated_turn_id,
            "notes": relationship.noted_turn_id,
            "summary": relationship.summarised_turn_id,
            "episodes": relationship.narrated_turn_id,
        }
        behind = await self._step_store.turns_behind(relationship_id, cursors)
        waiting = {state.step: state.turns for state in states}
        return step_statuses(
            states,
            await self._step_store.claimed_lanes(relationship_id, now),
            [place for place in places if claims[place] >= MAX_LANES_PER_MODEL],
            self._lanes.waiting_for_slot(relationship_id),
            behind | {step: waiting.get(step, 0) for step in _BY_TURN},
            now,
            relationship.due_at,
        )

    async def update_metrics(self) -> None:
        """Update the metrics of waiting steps, at most every few seconds."""
        moment = self._clock.monotonic()
        if self._measured_at is not None and moment - self._measured_at < _MEASURE_INTERVAL_S:
            return
        self._measured_at = moment
        now = self._clock.now()
        waiting = await self._step_store.waiting_counts(now, MAX_LANES_PER_MODEL)
        self._metrics.curation_waiting.clear()
        counts = Counter({(steps.step, steps.reason): steps.count for steps in waiting})
        for lane in self._lanes:
            if lane.step is not None and lane.waits_for_slot and counts[lane.step, "running"]:
                counts[lane.step, "running"] -= 1
                counts[lane.step, "slot"] += 1
        for (step, reason), count in counts.items():
            self._metrics.curation_waiting.labels(step, reason).set(count)
        self._metrics.waiting_jobs.set(
            sum(
                count
                for (step, reason), count in counts.items()
                if step == "ingest" and reason != "held"
            )
        )
        oldest = min((steps.oldest for steps in waiting), default=now)
        self._metrics.curation_oldest.set(max(0.0, (now - oldest).total_seconds()))

    async def run_due_steps(self, relationship_id: int) -> None:
        """Run all due steps of a relationship one after another, except lanes others have claimed.

        Raises:
            StorageUnavailable: try again later.
        """
        while turns := await self._step_store.claim_turns(
            relationship_id, (), now := self._clock.now(), now + LEASE
        ):
            await self._runner.ingest(relationship_id, turns)
        await self._curation_store.schedule_now(relationship_id, self._clock.now())
        for _ in range(_MAX_ROUNDS):
            if not await self._run_lanes(relationship_id):
                return

    async def _run_lanes(self, relationship_id: int) -> bool:
        """Run the lanes of a relationship under claims of their own; return whether any was due."""
        now = self._clock.now()
        relationship = await self._curation_store.relationship_state(relationship_id, now)
        if relationship is None:
            return False
        place = place_of(self._steps.policy_of(relationship).chat_model)
        steps, active_at = steps_to_schedule(relationship, place, now)
        ran = False
        for name in LANES:
            lane, claim = RunningLane(relationship, name, place), Claim(uuid4(), now + LEASE)
            lane.states = await self._step_store.claim(
                relationship_id,
                {name: lane.place},
                claim,
                now,
                steps,
                active_at,
                due=active_at is None,
            )
            steps, active_at = [], None  # once
            if lane.states:
                ran = True
                await self._runner.run(lane, claim)
        return ran

    async def _run(self, loop: SupervisedLoop) -> None:
        self._dispatcher.start()
        while True:
            await self._renew_leases()
            await self._dispatcher.poll_if_due()
            await self._wake_idle()
            loop.report_progress()
            await self._dispatcher.wait()

    async def _renew_leases(self) -> None:
        """Renew the leases of running lanes; cancel those lost to another worker after a stall."""
        now, moment = self._clock.now(), self._clock.monotonic()
        if self._renewed_at is not None and moment - self._renewed_at < _RENEW_INTERVAL_S:
            return
        before = self._lanes.claimed()
        try:
            renewed = await self._step_store.renew(self._lease_holder, now + LEASE)
        except ForemindError:  # perhaps one node of a sharded database is away
            await self._renew_each(before.values())
            raise
        self._renewed_at = moment
        for lane in self._lanes.lost(before, renewed):
            if lane.task is not None:
                lane.task.cancel()
        for key in renewed - before.keys():
            if self._lanes.get(*key) is None:  # releasing it had failed
                await self._step_store.release_claim(*key, self._lease_holder)

    async def _renew_each(self, lanes: Iterable[RunningLane]) -> None:
        """Renew leases one by one, where that is possible."""
        for lane in lanes:
            until = self._clock.now() + LEASE
            with contextlib.suppress(ForemindError):
                await self._step_store.renew_one(
                    lane.relationship_id, lane.lane, self._lease_holder, until
                )

    async def _wake_idle(self) -> None:
        """Schedule idle relationships where retention applies, and held steps.

        Every ten seconds, or at once if there are more.
        """
        now, moment = self._clock.now(), self._clock.monotonic()
        if self._woke_idle_at is not None and moment - self._woke_idle_at < _WAKE_INTERVAL_S:
            return
        everywhere = bool(self._settings.retention_days)
        idle = await self._curation_store.schedule_retention(
            now, now - _DAY, _WAKE_BATCH, applies_to_all=everywhere
        )
        held = await self._step_store.retry_held(now, now - _DAY, _WAKE_BATCH)
        if max(idle, held) < _WAKE_BATCH:
            self._woke_idle_at = moment
