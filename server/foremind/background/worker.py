"""Looks after relationships in the background: each step when it is due, by one worker."""

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
from foremind.background.status import StepStatus, status_of
from foremind.background.step_runner import StepRunner
from foremind.background.steps import (
    BY_RULES,
    LANES,
    LATER,
    STEP_OF,
    STEPS,
    Outcome,
    Step,
    StepName,
    due_steps,
    failed,
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

# What is done at once. Rules take milliseconds. A model that hangs keeps its own places, and a
# companion whose requests hang three of them: neither keeps others', nor any of the rules'.
_BY_RULES_AT_ONCE = 4
_OF_MODEL_AT_ONCE = 4
_OF_COMPANION_AT_ONCE = 3  # of one model's
_OF_MODELS_AT_ONCE = 16  # of all models together

_LEASE = timedelta(seconds=30)  # then a worker that says nothing is presumed dead
_RENEWED = timedelta(seconds=10)
_DAY = timedelta(days=1)
_WOKEN_AT_ONCE = 200  # sleeping relationships, or steps held, taken up together: milliseconds
_LOOKED_AT_ONCE = 8  # relationships in which something happened; milliseconds each
_SILENT_S = 60.0  # without a look at what is due, and something is wrong
_LOOK_S = 1.0  # only a safety net: a reply says that there is something to do
_MEASURED_S = 5.0  # between two counts of what waits
_STOPPED_S = 5.0  # before what could not even be begun is tried again
_LOOKED = [each.name for each in STEPS if each.looked]  # whenever something was said
_MOST_RUNS = 10_000  # of one relationship by one call, whatever steps say is left

_log = structlog.get_logger("foremind.background")


@dataclass(slots=True)
class _RunningStep:
    """A lane of a relationship that this worker has, and the step that it does."""

    claimed: ClaimedStep
    task: asyncio.Task[None] | None = None
    step: StepName | None = None
    work: CurationContext | None = None

    @property
    def waits_for_slot(self) -> bool:
        """Tell whether others use the model server, and the step waits for that."""
        server = None if self.work is None else self.work.server
        return (
            server is not None and self.task is not None and server.slots.keeps_waiting(self.task)
        )


class BackgroundWorker:
    """Does the steps of background work that are due, until the block ends.

    What is due is written in the database, so that work goes on after a restart and is shared
    between processes.
    """

    def __init__(
        self,
        due: CurationStore,
        states: StepStore,
        steps: StepRunner,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self._due = due
        self._states = states
        self._steps = steps
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._measured_at: float | None = None
        self._something = asyncio.Event()
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._running = TaskSet()
        self._holder = uuid4()
        # At most as many as there are places.
        self._runs: dict[tuple[int, Lane], _RunningStep] = {}
        self._renewed_at: datetime | None = None
        self._looked_at: set[int] = set()

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("curation", self._run, silent_s=_SILENT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        await self._running.stop()
        with contextlib.suppress(ForemindError):  # others wait for the lease then
            await self._states.give_up_all(self._holder)

    def look(self) -> None:
        """There may be something to do."""
        self._something.set()

    async def make_due(self, bond_id: int) -> None:
        """Have a relationship curated as soon as may be."""
        await self._due.make_due(bond_id, self._clock.now())
        self.look()

    async def take_up(self, bond_id: int) -> None:
        """Have a relationship curated as soon as may be, and try again what failed or is held."""
        await self._states.take_up(bond_id, self._clock.now())
        await self.make_due(bond_id)

    async def status(self, bond_id: int) -> list[StepStatus]:
        """Return how each step of a relationship stands.

        Raises:
            NotFound: it is gone.
        """
        bond = await self._due.bond(bond_id)
        if bond is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        now = self._clock.now()
        states = await self._states.of(bond_id)
        places = {state.place for state in states} - {BY_RULES}
        taken = {place: await self._states.claims_at(place, now) for place in places}
        cursors = {
            "stated": bond.stated_turn_id,
            "profile": bond.profiled_turn_id,
            "notes": bond.noted_turn_id,
            "summary": bond.summarised_turn_id,
            "episodes": bond.told_turn_id,
        }
        return status_of(
            states,
            await self._states.lanes_at_work(bond_id, now),
            [place for place in places if taken[place] >= _OF_MODEL_AT_ONCE],
            self._kept_waiting(bond_id),
            await self._states.behind(bond_id, cursors),
            now,
        )

    async def measure(self) -> None:
        """Count what waits, for the metrics; every few seconds at most."""
        moment = self._clock.monotonic()
        if self._measured_at is not None and moment - self._measured_at < _MEASURED_S:
            return
        self._measured_at = moment
        now = self._clock.now()
        found = await self._states.waiting(now, _OF_MODEL_AT_ONCE)
        self._metrics.curation_waiting.clear()
        counts = Counter({(each.step, each.reason): each.count for each in found})
        for run in self._runs.values():
            if run.step is not None and run.waits_for_slot and counts[run.step, "running"]:
                counts[run.step, "running"] -= 1
                counts[run.step, "slot"] += 1
        for (step, reason), count in counts.items():
            self._metrics.curation_waiting.labels(step, reason).set(count)
        oldest = min((each.oldest for each in found), default=now)
        self._metrics.curation_oldest.set(max(0.0, (now - oldest).total_seconds()))

    async def curate(self, bond_id: int) -> None:
        """Do whatever is due in a relationship, one step after the other, but what others do.

        Raises:
            StorageUnavailable: try again later.
        """
        bond = await self._due.bond(bond_id)
        if bond is None:
            return
        await self._make_due(bond, _LOOKED, self._clock.now())
        holder = uuid4()
        for _ in range(_MOST_RUNS):
            states = await self._states.of(bond_id)
            now = self._clock.now()
            lanes = [each for each in LANES if due_steps(states, each, now)]
            if not lanes:
                return
            for lane in lanes:
                if not await self._states.claim_of(bond_id, lane, holder, now, now + _LEASE):
                    return
                try:
                    await self._do_lane(bond_id, lane)
                finally:
                    await self._states.give_up(bond_id, lane, holder)

    def _kept_waiting(self, bond_id: int) -> set[StepName]:
        """Return the steps of a relationship that wait here for a slot of their model server."""
        runs = [self._runs.get((bond_id, lane)) for lane in LANES]
        return {
            run.step
            for run in runs
            if run is not None and run.step is not None and run.waits_for_slot
        }

    async def _run(self, loop: SupervisedLoop) -> None:
        while True:
            self._something.clear()
            await self._renew()
            await self._look()
            await self._begin_what_is_due()
            loop.well()
            await self._rest()

    async def _rest(self) -> None:
        """Wait until there may be something to do."""
        timer = self._clock.call_at(self._clock.monotonic() + _LOOK_S, self._something.set)
        try:
            await self._something.wait()
        finally:
            timer.cancel()

    async def _renew(self) -> None:
        """Hold on to what is under way; leave what another has by now, after a standstill."""
        now = self._clock.now()
        if self._renewed_at is not None and now - self._renewed_at < _RENEWED:
            return
        before = dict(self._runs)
        held = await self._states.renew(self._holder, now + _LEASE)
        self._renewed_at = now
        for key, run in before.items():
            if key not in held and self._runs.get(key) is run and run.task is not None:
                run.task.cancel()
        for relationship_id, lane in held - before.keys():  # it could not be given up
            await self._states.give_up(relationship_id, lane, self._holder)

    async def _look(self) -> None:
        """Make steps due where something happened, or where something is let go by age."""
        now = self._clock.now()
        every = bool(self._settings.retention_days)
        await self._due.wake(now, now - _DAY, _WOKEN_AT_ONCE, all_let_go=every)
        await self._states.take_up_held(now, now - _DAY, _WOKEN_AT_ONCE)
        for each in await self._states.to_look_at(now, _LOOKED_AT_ONCE):
            if each.id not in self._looked_at and len(self._looked_at) < _LOOKED_AT_ONCE:
                self._looked_at.add(each.id)
                self._running.begin(self._look_soon(each), "curation-look")

    async def _look_soon(self, look: PendingLook) -> None:
        """Look at a relationship; where it is being written, once that is done."""
        try:
            place = place_of(self._steps.policy_of(look).voice)
            await self._states.look_at(look, _placed(_LOOKED, place), self._clock.now())
        finally:
            self._looked_at.discard(look.id)
            self._something.set()

    async def _begin_what_is_due(self) -> None:
        """Take as many lanes as there is room for; each in a task of its own."""
        while (claimed := await self._claim()) is not None:
            key = (claimed.relationship_id, claimed.lane)
            run = self._runs[key] = _RunningStep(claimed)
            run.task = self._running.begin(self._do_and_give_up(run), "curate")

    async def _claim(self) -> ClaimedStep | None:
        now = self._clock.now()
        at = Counter(run.claimed.place for run in self._runs.values())
        of = Counter(
            (run.claimed.place, run.claimed.companion_id)
            for run in self._runs.values()
            if run.claimed.place != BY_RULES
        )
        models = at.total() - at[BY_RULES]
        room = {BY_RULES: _BY_RULES_AT_ONCE}
        full = [each for each in at if at[each] >= room.get(each, _OF_MODEL_AT_ONCE)]
        models_full = models >= _OF_MODELS_AT_ONCE
        if BY_RULES in full and models_full:
            return None
        return await self._states.claim(
            self._holder,
            now,
            now + _LEASE,
            full=full,
            models_full=models_full,
            full_of=[each for each in of if of[each] >= _OF_COMPANION_AT_ONCE],
        )

    async def _do_and_give_up(self, run: _RunningStep) -> None:
        claimed = run.claimed
        key = (claimed.relationship_id, claimed.lane)
        try:
            await self._do_lane(claimed.relationship_id, claimed.lane, claimed.place)
        except Exception as error:  # the database, or a defect: what is not done stays due
            reason = error.code if isinstance(error, ForemindError) else type(error).__name__
            told = error if not isinstance(error, ForemindError) else None
            _log.warning(
                "curation.stopped",
                relationship_id=claimed.relationship_id,
                reason=reason,
                exc_info=told,
            )
            await self._clock.sleep(_STOPPED_S)
        finally:
            if self._runs.get(key) is run:
                del self._runs[key]
        with contextlib.suppress(ForemindError):  # it ends without that too
            await self._states.give_up(claimed.relationship_id, claimed.lane, self._holder)
        self._something.set()

    async def _do_lane(self, bond_id: int, lane: Lane, place: str | None = None) -> None:
        """Do the steps of a lane that are due, each once; what is left of them is due again."""
        bond = await self._due.bond(bond_id)
        if bond is None:
            return
        here = place_of(self._steps.policy_of(bond).voice)
        if lane == "model" and place is not None and place != here:
            await self._states.move(bond_id, lane, here)
            return
        work = self._steps.work(bond)
        done: set[str] = set()
        if lane == "model" and await self._steps.out_of_date(work):
            await self._make_due(bond, ("topics", "hot"), self._clock.now())
        if lane == "rules" and bond.inferred_again is not None:
            await self._make_due(bond, ("habits",), self._clock.now())
        while left := [
            due_step
            for due_step in due_steps(await self._states.of(bond_id), lane, self._clock.now())
            if due_step.step not in done
        ]:
            done.add(left[0].step)
            if not await self._do_step(work, left[0]):
                return

    async def _do_step(self, work: CurationContext, state: StepState) -> bool:
        """Do a step and note what came of it; False where the rest must be read anew first."""
        step = STEP_OF[state.step]
        run = self._runs.get((work.bond.id, state.lane))
        if run is not None:
            run.step, run.work = step.name, work
        try:
            outcome = await self._steps.do(step.name, work, state.attempts)
        except Exception as error:  # neither this relationship's others nor others' may stop
            await self._failed(work, state, error)
            return not isinstance(error, Conflict)
        await self._finished(work, step, state, outcome)
        return True

    async def _finished(
        self, work: CurationContext, step: Step, state: StepState, outcome: Outcome
    ) -> None:
        now = self._clock.now()
        if outcome.made:
            await self._make_due(work.bond, step.then, now)
            await self._make_due(work.bond, step.later, now + LATER)
        due = now if outcome.more else outcome.due
        await self._states.finish(work.bond.id, state, due, now)

    async def _failed(self, work: CurationContext, state: StepState, error: Exception) -> None:
        code = error.code if isinstance(error, ForemindError) else type(error).__name__
        what = failed(state.attempts, code, self._clock.now())
        told = {"relationship_id": work.bond.id, "step": state.step, "reason": code}
        if isinstance(error, Conflict):
            _log.info("curation.begins_anew", **told)
        elif isinstance(error, ForemindError):
            _log.warning("curation.failed", **told, attempts=what.attempts)
        else:
            _log.error("curation.broken", **told, exc_info=error)
        await self._states.fail(
            work.bond.id, state.step, what.attempts, what.code, what.again, what.held_at
        )

    async def _make_due(
        self, bond: RelationshipState, names: Sequence[StepName], when: datetime
    ) -> None:
        if not names:
            return
        place = place_of(self._steps.policy_of(bond).voice)
        await self._states.make_due(bond.id, _placed(names, place), when)
        self._something.set()


def _placed(names: Sequence[StepName], place: str) -> list[ScheduledStep]:
    """Return steps with where they wait: those that never ask a model are the rules'."""
    steps = [STEP_OF[name] for name in names]
    return [
        ScheduledStep(step.name, step.lane, place if step.lane == "model" else BY_RULES)
        for step in steps
    ]
