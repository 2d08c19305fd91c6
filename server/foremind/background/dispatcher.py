"""Finds the relationships with something to do, and starts the lanes that are due there."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import structlog

from foremind.background.lane_runner import LaneRunner, scheduled_steps
from foremind.background.lanes import RunningLane, RunningLanes
from foremind.background.step_definitions import ACTIVITY_STEPS
from foremind.background.step_runner import StepRunner
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.domain.step import ClaimableLane, place_of
from foremind.runtime.supervision import TaskSet
from foremind.storage.step_store import StepStore

# A worker that does not renew its leases is presumed dead. What players say next needs to be
# ingested sooner than work that a stall of some seconds should not repeat.
LEASE = timedelta(seconds=30)
INGEST_LEASE = timedelta(seconds=10)
_POLL_INTERVAL_S = 1.0  # of all relationships; those that this process changes are named to it
# Left to the process that serves a relationship, if there are others: two that try to schedule the
# same steps wait for each other, and repeat work that one would do once for several messages.
_OVERDUE = timedelta(seconds=2)
_MAX_NAMED = 1000  # relationships waiting for a visit; a poll finds others, a few at a time
_MAX_VISITS = 8  # at once; milliseconds each
_MAX_DUE_LANES = 8  # named by one poll
_RETRY_DELAY_S = 5.0  # after a lane failed outside its steps

_log = structlog.get_logger("foremind.background")


class Dispatcher:
    """Visits relationships: schedules their steps after activity, and starts lanes that are due.

    Relationships are visited when this process has changed them, and when a lane of theirs has
    ended. A poll of all of them, once a second, finds what time has made due and what other
    processes left; and what a limit held back, as soon as a lane ends. Visits wait for no poll: one
    fails while any node of a sharded database is away.
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
        self._named: dict[int, None] = {}  # in the order of their visits
        self._visiting: set[int] = set()
        self._visits = TaskSet()
        self._running = TaskSet()
        self._poll_at = 0.0  # monotonic
        self._poll_now = True
        self._more_left = False  # by the last poll

    def name(self, relationship_id: int) -> None:
        """Have a relationship visited soon: there may be something to do."""
        if len(self._named) < _MAX_NAMED:
            self._named.setdefault(relationship_id)
            self._begin_visits()
        else:
            self._ask_for_poll()

    def start(self) -> None:
        """Begin to visit what is named, and what was before."""
        self._started = True
        self._begin_visits()

    async def poll_if_due(self) -> None:
        """Name relationships with something to do, if it is time to look for them."""
        self._wakeup.clear()
        if self._poll_now or self._clock.monotonic() >= self._poll_at:
            self._poll_now = False  # before: it may be asked for again meanwhile
            try:
                await self._poll()
            except ForemindError:
                self._poll_now = True
                raise

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
        """Name relationships with something to do, except to those who serve them themselves."""
        now = self._clock.now()
        due_by = now - _OVERDUE if self._has_peers() else now
        pending = await self._step_store.pending_relationships(due_by, _MAX_VISITS)
        found, more = pending, len(pending) == _MAX_VISITS
        if (free := self.lanes.free_ingest_lanes()) > 0:
            to_ingest = await self._step_store.claimable_ingest(now, due_by, free)
            found, more = found + to_ingest, more or len(to_ingest) == free
        if (limits := self.lanes.claim_limits()) is not None:
            due = await self._step_store.claimable_lanes(now, due_by, limits, _MAX_DUE_LANES)
            found, more = found + due, more or len(due) == _MAX_DUE_LANES
        self._more_left = more
        self._named |= dict.fromkeys(found)
        self._begin_visits()
        self._poll_at = self._clock.monotonic() + _POLL_INTERVAL_S

    def _ask_for_poll(self) -> None:
        self._poll_now = True
        self._wakeup.set()

    def _begin_visits(self) -> None:
        """Begin the visits of those named, as many as may run."""
        for relationship_id in list(self._named) if self._started else []:
            if len(self._visiting) >= _MAX_VISITS:
                return
            if relationship_id not in self._visiting:  # otherwise once more, afterwards
                del self._named[relationship_id]
                self._visiting.add(relationship_id)
                self._visits.begin(self._visit(relationship_id), "curation-visit")

    async def _visit(self, relationship_id: int) -> None:
        """Visit a relationship; waits while it is locked."""
        try:
            scheduled = await self._schedule_pending(relationship_id)
            due = await self._step_store.claimable_lanes_of(relationship_id, self._clock.now())
            started = [await self._start(lane) for lane in due]
            if self._more_left and (scheduled or any(started)):
                self._ask_for_poll()
        except ForemindError as error:  # the next poll finds it
            _log.warning("curation.stopped", relationship_id=relationship_id, reason=error.code)
        finally:
            self._visiting.discard(relationship_id)
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

    async def _start(self, due: ClaimableLane) -> bool:
        """Claim a lane and begin to run it; False if a limit or another worker forbids it."""
        if not self.lanes.may_start(due):
            return False
        lane = self.lanes.add(due)  # first, so that visits at the same time keep to the limits
        try:
            now = self._clock.now()
            until = now + (INGEST_LEASE if due.lane == "ingest" else LEASE)
            claimed = await self._step_store.claim(
                due.relationship_id, due.lane, due.place, self._holder, now, until
            )
        except BaseException:
            self.lanes.discard(lane)
            raise
        if claimed:
            lane.task = self._running.begin(self._run(lane), "curate")
        else:
            self.lanes.discard(lane)
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
            held_others_back = self.lanes.is_at_limit(lane.lane, lane.place, lane.companion_id)
            self.lanes.discard(lane)
        with contextlib.suppress(ForemindError):  # the lease expires instead
            await self._step_store.release_claim(lane.relationship_id, lane.lane, self._holder)
        if held_others_back or self._more_left:
            self._ask_for_poll()
        self.name(lane.relationship_id)
