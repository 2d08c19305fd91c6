"""Finds the relationships with something to do, and starts the lanes that are due there."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Generic, TypeVar
from uuid import UUID

import structlog

from foremind.background.lane_runner import LaneRunner
from foremind.background.lanes import HeldBack, Limit, RunningLane, RunningLanes, limits_on
from foremind.background.step_definitions import LANES, steps_to_schedule
from foremind.background.step_runner import StepRunner
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.domain.relationship import RelationshipState
from foremind.domain.step import (
    INGEST_LEASE,
    RULES_PLACE,
    WITH_REPLY,
    Claim,
    ClaimLimits,
    Lane,
    place_of,
)
from foremind.runtime.supervision import TaskSet
from foremind.storage.background_store import MAX_STATES, CurationStore, StepStore

# A worker that does not renew its leases is presumed dead. What players say next needs to be
# ingested sooner than work that a stall of some seconds should not repeat.
LEASE = timedelta(seconds=30)
_POLL_INTERVAL_S = 1.0  # of all relationships; those that this process changes need none
# Left to the gateway that serves a relationship, if there are others: two that try to schedule the
# same steps wait for each other, and repeat work that one would do once for several messages.
_OVERDUE = timedelta(seconds=2)
_MAX_WAITING = 1000  # relationships to visit, or to ingest; a poll finds others, a few at a time
_MAX_VISITS = 8  # at once; milliseconds each
_MAX_DUE = 8  # relationships of a kind found by one poll
_MAX_INGESTING = 8  # relationships at once; each uses the database, or the embedding thread
_RETRY_DELAY_S = 5.0  # after a lane failed outside its steps

Asked = TypeVar("Asked")

_log = structlog.get_logger("foremind.background")


class Dispatcher:
    """Has turns ingested, and visits relationships: starts lanes that are due there.

    Relationships are visited when this process has changed them, and when a lane of theirs has
    ended and left something, though after those that were held back for it. A poll of all of them,
    once a second and when a limit may have hidden some from the last one, finds what time has made
    due and what other processes left. Visits wait for no poll: one fails while any node of a
    sharded database is away.
    """

    def __init__(
        self,
        curation_store: CurationStore,
        step_store: StepStore,
        steps: StepRunner,
        runner: LaneRunner,
        clock: Clock,
        holder: UUID,
        has_peers: Callable[[], bool],
    ) -> None:
        """Set up without doing anything.

        Args:
            holder: in whose name lanes are claimed.
            has_peers: whether other processes serve relationships of the same database.
        """
        self._curation_store = curation_store
        self._step_store = step_store
        self._steps = steps
        self._runner = runner
        self._clock = clock
        self._holder = holder
        self._has_peers = has_peers
        self.lanes = RunningLanes()
        self._wakeup = asyncio.Event()
        # With the limit that held a relationship back, whose place is kept until it starts lanes.
        self._visits: _Rounds[Limit | None] = _Rounds(self._visit, _MAX_VISITS)
        self._to_visit_after_poll: dict[int, None] = {}
        self._held_back = HeldBack()
        # With turns that are not due yet, and memories that were used.
        self._ingests: _Rounds[tuple[list[int], list[int]]] = _Rounds(self._ingest, _MAX_INGESTING)
        self._running = TaskSet()
        self._poll_at = 0.0  # monotonic
        self._poll_now = True
        self._more_left = self._more_to_ingest = False  # by the last poll

    def visit_soon(self, relationship_id: int) -> None:
        """Have a relationship visited: there may be something to do."""
        if self._visits.has_room_for(relationship_id):
            self._visits.waiting.setdefault(relationship_id, None)
            self._visits.begin()
        else:
            self._ask_for_poll()

    def ingest_soon(
        self, relationship_id: int, turn_ids: Sequence[int] = (), used: Sequence[int] = ()
    ) -> None:
        """Have turns ingested: those that are due, and others, with the memories these used."""
        if self._ingests.has_room_for(relationship_id):
            waiting = self._ingests.waiting.setdefault(relationship_id, ([], []))
            waiting[0].extend(turn_ids)
            waiting[1].extend(used)
            self._ingests.begin()
        else:
            self._ask_for_poll()

    def start(self) -> None:
        """Begin to visit, also what was asked for before."""
        for rounds in (self._ingests, self._visits):
            rounds.started = True
            rounds.begin()

    async def poll_if_due(self) -> None:
        """Look for relationships with something to do, if it is time to."""
        self._wakeup.clear()
        if self._poll_now or self._clock.monotonic() >= self._poll_at:
            self._poll_now = False  # before: it may be asked for again meanwhile
            try:
                await self._poll()
            except ForemindError:
                self._poll_now = True
                raise
            finally:
                after, self._to_visit_after_poll = self._to_visit_after_poll, {}
                for relationship_id in after:
                    self.visit_soon(relationship_id)

    async def wait(self) -> None:
        """Wait until it may be time to poll."""
        timer = self._clock.call_at(self._poll_at, self._wakeup.set)
        try:
            await self._wakeup.wait()
        finally:
            timer.cancel()

    async def stop(self, ingest_s: float) -> None:
        """Start nothing more, and cancel what runs; turns being ingested get some seconds."""
        self._visits.started = self._ingests.started = False
        await self._visits.tasks.stop()
        await self._ingests.tasks.stop(ingest_s)
        await self._running.stop()

    async def _poll(self) -> None:
        """Have relationships visited that need it; those of others are left to them for a while."""
        now = self._clock.now()
        due_by = now - _OVERDUE if self._has_peers() else now
        limits = self.lanes.claim_limits()
        found = await self._step_store.relationships_due(
            now,
            due_by,
            limits or ClaimLimits(full=(RULES_PLACE,), models_full=True),
            _MAX_DUE,
            max(0, _MAX_INGESTING - len(self._ingests.running)),
        )
        self._more_left = found.more_to_visit or limits is None
        self._more_to_ingest = found.more_to_ingest or self._ingests.is_full
        for relationship_id in found.to_ingest:
            self.ingest_soon(relationship_id)
        for relationship_id in found.to_visit:  # beyond the bound, too: they are few
            self._visits.waiting.setdefault(relationship_id, None)
        self._visits.begin()
        self._poll_at = self._clock.monotonic() + _POLL_INTERVAL_S

    def _ask_for_poll(self) -> None:
        self._poll_now = True
        self._wakeup.set()

    async def _ingest(
        self, relationship_id: int, waiting: tuple[Sequence[int], Sequence[int]]
    ) -> None:
        """Ingest turns of a relationship; what remains is due again a little later."""
        now, (turn_ids, used) = self._clock.now(), waiting
        try:
            states = await self._step_store.claim_turns(
                relationship_id, turn_ids, now, now + INGEST_LEASE, now + WITH_REPLY
            )
            if await self._runner.ingest(relationship_id, states, used):
                self.visit_soon(relationship_id)
            if len(states) == MAX_STATES:
                self._ingests.waiting.setdefault(relationship_id, ([], []))
        except Exception as error:  # the database or a defect: the turns are due again
            _log_failure("curation.ingest_failed", relationship_id, error)
        finally:
            if self._more_to_ingest and not self._ingests.waiting:
                self._ask_for_poll()

    async def _visit(self, relationship_id: int, held_back_by: Limit | None) -> None:
        """Start the lanes of a relationship that are due, as far as limits and others allow."""
        progress = False
        try:
            relationship = await self._curation_store.relationship_state(
                relationship_id, self._clock.now()
            )
            self._visits.running[relationship_id] = None
            if relationship is not None:
                progress = await self._start_due(relationship)
        except ForemindError as error:  # the next poll finds it
            _log_failure("curation.visit_failed", relationship_id, error)
        finally:
            self._visits.running[relationship_id] = None
            if held_back_by is not None and not progress:
                self._release(held_back_by)
            if self._more_left and progress:
                self._ask_for_poll()

    async def _start_due(self, relationship: RelationshipState) -> bool:
        """Claim the lanes that are due, and begin to run them; return whether there was any."""
        now = self._clock.now()
        place = place_of(self._steps.policy_of(relationship).chat_model)
        steps, active_at = steps_to_schedule(relationship, place, now)
        wanted = {step.lane for step in steps}
        if "rating" in relationship.steps_due:
            wanted.add("rating")
        lanes = [
            lane
            for name in LANES
            if name in wanted and self._may_start(lane := RunningLane(relationship, name, place))
        ]
        if active_at is None:  # those of lanes that are running stay as they are
            steps = [step for step in steps if step.lane in {lane.lane for lane in lanes}]
            if not lanes:
                return False
        for lane in lanes:  # first, so that visits at the same time keep to the limits
            self.lanes.add(lane)
        claim, claimed = Claim(self._holder, now + LEASE), set[Lane]()
        try:
            states = await self._step_store.claim(
                relationship.id,
                {lane.lane: lane.place for lane in lanes},
                claim,
                now,
                steps,
                active_at,
                due=active_at is None,
            )
            claimed = {state.lane for state in states}
        finally:
            for lane in lanes:
                if lane.lane not in claimed:
                    self.lanes.discard(lane)
                    self._release_all(lane)
        for lane in lanes:
            if lane.lane in claimed:
                lane.states = [state for state in states if state.lane == lane.lane]
                lane.task = self._running.begin(self._run(lane, claim), "curate")
        return bool(claimed)

    def _may_start(self, lane: RunningLane) -> bool:
        """Return whether a lane may be claimed; it waits for its turn if a limit forbids that."""
        running = self.lanes.get(lane.relationship_id, lane.lane)
        if running is not None:
            running.wakes = True
            return False
        reached = self.lanes.first_reached(limits_on(lane), self._reserved())
        if reached is not None:
            self._held_back.add(reached, lane.relationship_id)
        return reached is None

    async def _run(self, lane: RunningLane, claim: Claim) -> None:
        try:
            await self._runner.run(lane, claim)
        except Exception as error:  # the database or a defect: unfinished steps stay due
            _log_failure("curation.stopped", lane.relationship_id, error)
            await self._clock.sleep(_RETRY_DELAY_S)
            with contextlib.suppress(ForemindError):  # the lease expires instead
                await self._step_store.release_claim(lane.relationship_id, lane.lane, self._holder)
            lane.wakes = True
        finally:
            hid_others = self._more_left or self.lanes.first_reached(limits_on(lane)) is not None
            self.lanes.discard(lane)
        self._visit_again(lane, hid_others=hid_others)

    def _visit_again(self, lane: RunningLane, *, hid_others: bool) -> None:
        """Visit a relationship again after a lane that left something, behind those that waited."""
        waiting = [limit for limit in limits_on(lane) if self._held_back.is_waiting(limit)]
        if not lane.wakes:
            pass
        elif waiting:
            self._held_back.add(waiting[0], lane.relationship_id)
        elif hid_others:
            self._to_visit_after_poll[lane.relationship_id] = None
        else:
            self.visit_soon(lane.relationship_id)
        if hid_others:
            self._ask_for_poll()
        self._release_all(lane)

    def _reserved(self) -> Counter[Limit]:
        """Count the places kept for visits of what a limit had held back: it is their turn."""
        kept = (*self._visits.waiting.values(), *self._visits.running.values())
        return Counter(limit for limit in kept if limit is not None)

    def _release_all(self, lane: RunningLane) -> None:
        """Visit what a lane that ended, or did not begin, has held back."""
        for limit in limits_on(lane):
            self._release(limit)

    def _release(self, limit: Limit) -> None:
        """Visit the first relationship that a limit held back, unless the limit is reached."""
        if self.lanes.first_reached([limit], self._reserved()) is not None:
            return
        relationship_id = self._held_back.take(limit)
        if relationship_id is not None:
            others = self._visits.waiting
            others.pop(relationship_id, None)
            self._visits.waiting = {relationship_id: limit, **others}
            self._visits.begin()


class _Rounds(Generic[Asked]):
    """Work on relationships that was asked for, and runs on some of them at once, on each once."""

    def __init__(
        self, work: Callable[[int, Asked], Coroutine[None, None, None]], most: int
    ) -> None:
        """Set up without doing anything: work begins once `started`, on so many at most."""
        self.waiting: dict[int, Asked] = {}
        self.running: dict[int, Asked] = {}
        self.tasks = TaskSet()
        self.started = False
        self._work = work
        self._most = most

    @property
    def is_full(self) -> bool:
        """Whether as many run as may."""
        return len(self.running) >= self._most

    def has_room_for(self, relationship_id: int) -> bool:
        """Return whether it may be asked for a relationship, or was already."""
        return relationship_id in self.waiting or len(self.waiting) < _MAX_WAITING

    def begin(self) -> None:
        """Begin what was asked for, as much as may run; on what runs, once more afterwards."""
        for relationship_id in list(self.waiting) if self.started else []:
            if self.is_full:
                return
            if relationship_id not in self.running:
                self.running[relationship_id] = self.waiting.pop(relationship_id)
                self.tasks.begin(self._run(relationship_id), "curation")

    async def _run(self, relationship_id: int) -> None:
        try:
            await self._work(relationship_id, self.running[relationship_id])
        finally:
            del self.running[relationship_id]
            self.begin()


def _log_failure(event: str, relationship_id: int, error: Exception) -> None:
    known = isinstance(error, ForemindError)
    _log.warning(
        event,
        relationship_id=relationship_id,
        reason=error.code if isinstance(error, ForemindError) else type(error).__name__,
        exc_info=None if known else error,
    )
