"""Finds the relationships with something to do, and starts the lanes that are due there."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import structlog

from foremind.background.held_back import HeldBack
from foremind.background.lane_runner import LaneRunner, scheduled_steps
from foremind.background.lanes import Limit, RunningLane, RunningLanes, limits_on
from foremind.background.step_definitions import ACTIVITY_STEPS, LANES
from foremind.background.step_runner import StepRunner
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.domain.step import ClaimableLane, Lane, place_of
from foremind.runtime.supervision import TaskSet
from foremind.storage.step_store import StepStore

# A worker that does not renew its leases is presumed dead. What players say next needs to be
# ingested sooner than work that a stall of some seconds should not repeat.
LEASE = timedelta(seconds=30)
INGEST_LEASE = timedelta(seconds=10)
_POLL_INTERVAL_S = 1.0  # of all relationships; those that this process changes need none
# Left to the gateway that serves a relationship, if there are others: two that try to schedule the
# same steps wait for each other, and repeat work that one would do once for several messages.
_OVERDUE = timedelta(seconds=2)
_MAX_TO_VISIT = 1000  # relationships waiting for a visit; a poll finds others, a few at a time
_MAX_VISITS = 8  # at once; milliseconds each
_MAX_PENDING, _MAX_DUE = 8, 8  # relationships found by one poll
_RETRY_DELAY_S = 5.0  # after a lane failed outside its steps

_log = structlog.get_logger("foremind.background")


def lease_of(lane: Lane) -> timedelta:
    """Return for how long a lane is claimed at a time. Pure."""
    return INGEST_LEASE if lane == "ingest" else LEASE


class Dispatcher:
    """Visits relationships: starts lanes that are due, and schedules their steps after activity.

    Relationships are visited when this process has changed them, and when a lane of theirs has
    ended, though after those that were held back for it. A poll of all of them, once a second and
    when a limit may have hidden some from the last one, finds what time has made due and what other
    processes left. Visits wait for no poll: one fails while any node of a sharded database is away.
    """

    def __init__(
        self,
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
        self._step_store = step_store
        self._steps = steps
        self._runner = runner
        self._clock = clock
        self._holder = holder
        self._has_peers = has_peers
        self.lanes = RunningLanes()
        self._wakeup = asyncio.Event()
        self._started = False
        # In the order of their visits; with the limit that held a relationship back, if one did.
        self._to_visit: dict[int, Limit | None] = {}
        self._to_visit_after_poll: dict[int, None] = {}
        self._held_back = HeldBack()
        self._visiting: set[int] = set()
        self._visits = TaskSet()
        self._running = TaskSet()
        self._poll_at = 0.0  # monotonic
        self._poll_now = True
        self._more_left = False  # by the last poll

    def visit_soon(self, relationship_id: int) -> None:
        """Have a relationship visited: there may be something to do."""
        if len(self._to_visit) < _MAX_TO_VISIT:
            self._to_visit.setdefault(relationship_id)
            self._begin_visits()
        else:
            self._ask_for_poll()

    def start(self) -> None:
        """Begin to visit, also what was asked for before."""
        self._started = True
        self._begin_visits()

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
        self._started = False
        await self._visits.stop()
        ingest = [lane.task for lane in self.lanes if lane.lane == "ingest" and lane.task]
        if ingest:
            await asyncio.wait(ingest, timeout=ingest_s)
        await self._running.stop()

    async def _poll(self) -> None:
        """Have relationships visited that need it; those of others are left to them for a while."""
        now = self._clock.now()
        due_by = now - _OVERDUE if self._has_peers() else now
        found: list[int] = []
        limits, free = self.lanes.claim_limits(), self.lanes.free_ingest_lanes()
        more = limits is None or free <= 0
        if free > 0:
            to_ingest = await self._step_store.claimable_ingest(now, due_by, free)
            found, more = to_ingest.ids, more or to_ingest.more
        pending = await self._step_store.pending_relationships(due_by, _MAX_PENDING)
        found, more = found + pending, more or len(pending) == _MAX_PENDING
        if limits is not None:
            due = await self._step_store.claimable_lanes(now, due_by, limits, _MAX_DUE)
            found, more = found + due.ids, more or due.more
        self._more_left = more
        for relationship_id in found:  # beyond the bound, too: they are few
            self._to_visit.setdefault(relationship_id)
        self._begin_visits()
        self._poll_at = self._clock.monotonic() + _POLL_INTERVAL_S

    def _ask_for_poll(self) -> None:
        self._poll_now = True
        self._wakeup.set()

    def _begin_visits(self) -> None:
        """Begin the visits that were asked for, as many as may run."""
        for relationship_id in list(self._to_visit) if self._started else []:
            if len(self._visiting) >= _MAX_VISITS:
                return
            if relationship_id not in self._visiting:  # otherwise once more, afterwards
                held_back_by = self._to_visit.pop(relationship_id)
                self._visiting.add(relationship_id)
                self._visits.begin(self._visit(relationship_id, held_back_by), "curation-visit")

    async def _visit(self, relationship_id: int, held_back_by: Limit | None) -> None:
        """Visit a relationship; its steps wait to be scheduled while it is locked."""
        progress = False
        try:
            progress = await self._start_due(relationship_id)
            if await self._schedule_pending(relationship_id):
                progress = await self._start_due(relationship_id) or progress
        except ForemindError as error:  # the next poll finds it
            _log.warning(
                "curation.visit_failed", relationship_id=relationship_id, reason=error.code
            )
        finally:
            self._visiting.discard(relationship_id)
            if held_back_by is not None and not progress:
                self._release(held_back_by)
            if self._more_left and progress:
                self._ask_for_poll()
            self._begin_visits()

    async def _schedule_pending(self, relationship_id: int) -> bool:
        """Schedule the steps that new activity calls for; return False if there was none."""
        now = self._clock.now()
        pending = await self._step_store.pending_relationship(relationship_id, now)
        if pending is None:
            return False
        place = place_of(self._steps.policy_of(pending).chat_model)
        steps = scheduled_steps(ACTIVITY_STEPS, place)
        await self._step_store.schedule_pending(pending, steps, now)
        return True

    async def _start_due(self, relationship_id: int) -> bool:
        """Start the lanes of a relationship that are due; return whether any was."""
        due = await self._step_store.claimable_lanes_of(relationship_id, self._clock.now())
        due.sort(key=lambda lane: LANES.index(lane.lane))  # ingest first
        return any([await self._start(lane) for lane in due])

    async def _start(self, due: ClaimableLane) -> bool:
        """Claim a lane and begin to run it; False if a limit or another worker forbids it."""
        if (due.relationship_id, due.lane) in self.lanes:
            return False
        if (reached := self.lanes.first_reached(limits_on(due))) is not None:
            self._held_back.add(reached, due.relationship_id)
            return False
        lane = self.lanes.add(due)  # first, so that visits at the same time keep to the limits
        claimed = False
        try:
            now = self._clock.now()
            claimed = await self._step_store.claim(
                due.relationship_id,
                due.lane,
                due.place,
                self._holder,
                now,
                now + lease_of(due.lane),
            )
        finally:
            if not claimed:
                self.lanes.discard(lane)
                self._release_all(lane)
        lane.task = self._running.begin(self._run(lane), "curate") if claimed else None
        return claimed

    async def _run(self, lane: RunningLane) -> None:
        try:
            await self._runner.run(lane)
        except Exception as error:  # the database or a defect: unfinished steps stay due
            reason = error.code if isinstance(error, ForemindError) else type(error).__name__
            unexpected = error if not isinstance(error, ForemindError) else None
            _log.warning(
                "curation.stopped",
                relationship_id=lane.relationship_id,
                reason=reason,
                exc_info=unexpected,
            )
            await self._clock.sleep(_RETRY_DELAY_S)
        finally:
            hid_others = self._more_left or self.lanes.first_reached(limits_on(lane)) is not None
            self.lanes.discard(lane)
        with contextlib.suppress(ForemindError):  # the lease expires instead
            await self._step_store.release_claim(lane.relationship_id, lane.lane, self._holder)
        self._visit_again(lane, hid_others=hid_others)

    def _visit_again(self, lane: RunningLane, *, hid_others: bool) -> None:
        """Have a relationship visited after a lane, behind those that waited for the lane."""
        waiting = [limit for limit in limits_on(lane) if self._held_back.is_waiting(limit)]
        if waiting:
            self._held_back.add(waiting[0], lane.relationship_id)
        elif hid_others:
            self._to_visit_after_poll[lane.relationship_id] = None
        else:
            self.visit_soon(lane.relationship_id)
        if hid_others:
            self._ask_for_poll()
        self._release_all(lane)

    def _release_all(self, lane: RunningLane) -> None:
        """Visit what a lane that ended, or did not begin, has held back."""
        for limit in limits_on(lane):
            self._release(limit)

    def _release(self, limit: Limit) -> None:
        """Visit the first relationship that a limit held back, unless the limit is reached."""
        if self.lanes.first_reached([limit]) is not None:
            return
        relationship_id = self._held_back.take(limit)
        if relationship_id is not None:
            self._to_visit.pop(relationship_id, None)
            self._to_visit = {relationship_id: limit, **self._to_visit}
            self._begin_visits()
