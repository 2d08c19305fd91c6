"""Ingests turns and runs background steps as they fall due; one worker per process.

What a process has changed it visits at once: a visit reads the relationship, claims those of its
lanes that are due, and starts a task for each (`step_runner` has what that does). A poll of all
relationships, once a second and when a limit may have hidden some from the last one, finds what
time has made due and what other processes left. The schedule is stored in the database: it survives
restarts and is shared between processes. Visits wait for no poll, which fails while any node of a
sharded database is away.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Generic, Literal, NamedTuple, Self, TypeVar
from uuid import uuid4

import structlog

from foremind.background.step_definitions import (
    HELD_AT_MOST,
    LANES,
    STEPS,
    StepStatus,
    step_statuses,
    steps_to_schedule,
)
from foremind.background.step_runner import RunningLane, StepRunner, record_failure
from foremind.domain.background_step import (
    INGEST_LEASE,
    RULES_PLACE,
    WITH_REPLY,
    Claim,
    ClaimLimits,
    Lane,
    ScheduledStep,
    StepState,
    place_of,
)
from foremind.domain.errors import ForemindError, NotFound
from foremind.domain.relationship import RelationshipState
from foremind.memory.ingest import MAX_TURNS, MemoryIngester
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import SupervisedLoop, TaskSet
from foremind.storage.background_store import MAX_STATES, BackgroundStore, StepStore

#: Concurrency limit of one model. One that hangs blocks only its own lanes, and a companion whose
#: requests hang only three of those.
MAX_LANES_PER_MODEL = 4
_MAX_LANES_PER_COMPANION = 3  # on one model
_MAX_MODEL_LANES = 16  # on all models together
_MAX_RULES_LANES = 4  # milliseconds each
_MAX_INGESTING = 8  # relationships at once; each uses the database, or the embedding thread
_MAX_VISITS = 8  # at once; milliseconds each
_MAX_WAITING = 1000  # relationships of each kind; a poll finds others, a few at a time
_MAX_DUE = 8  # relationships of a kind found by one poll

# A worker that does not renew its leases is presumed dead. What players say next needs to be
# ingested sooner than work that a stall of some seconds should not repeat.
_LEASE = timedelta(seconds=30)
_RENEW_INTERVAL_S = 3.0
_POLL_INTERVAL_S = 1.0  # of all relationships; those that this process changes need none
# Left to the gateway that serves a relationship, if there are others: two that try to schedule the
# same steps wait for each other, and repeat work that one would do once for several messages.
_OVERDUE = timedelta(seconds=2)
_RETRY_DELAY_S = 5.0  # after a lane failed outside its steps
_EXPIRY_INTERVAL = timedelta(days=1)
_WAKE_BATCH = 200  # dormant relationships, or held steps, woken together: milliseconds
_WAKE_INTERVAL_S = 10.0  # between two looks for those
_MEASURE_INTERVAL_S = 5.0  # between two counts of waiting steps
_SILENT_S = 60.0  # without an iteration of the loop, it counts as stuck
_STOP_S = 10.0  # allowed for the turns that are being ingested when the worker stops
_MAX_ROUNDS = 10_000  # of one `run_due_steps`, however much the steps report as remaining

Asked = TypeVar("Asked")

_log = structlog.get_logger("foremind.background")


class Limit(NamedTuple):
    """What is limited: lanes on all models, at a place, or of a companion there."""

    kind: Literal["models", "place", "companion"]
    place: str = RULES_PLACE
    companion_id: int | None = None

    @property
    def most(self) -> int:
        """How many lanes it allows."""
        if self.kind == "companion":
            return _MAX_LANES_PER_COMPANION
        if self.kind == "models":
            return _MAX_MODEL_LANES
        return _MAX_RULES_LANES if self.place == RULES_PLACE else MAX_LANES_PER_MODEL


def limits_on(lane: RunningLane) -> list[Limit]:
    """Return the limits that a lane counts towards. Pure."""
    at_place = Limit("place", lane.place)
    if lane.place == RULES_PLACE:
        return [at_place]
    companion_id = lane.relationship.companion_id
    return [at_place, Limit("companion", lane.place, companion_id), Limit("models")]


def claim_limits(lanes: Iterable[RunningLane]) -> ClaimLimits | None:
    """Return which lanes may not be claimed beside those given; None if none may. Pure."""
    running = Counter(limit for lane in lanes for limit in limits_on(lane))
    full = [limit for limit, count in running.items() if count >= limit.most]
    models_full = Limit("models") in full
    if models_full and Limit("place") in full:
        return None
    return ClaimLimits(
        tuple(limit.place for limit in full if limit.kind == "place"),
        models_full,
        tuple(
            (limit.place, limit.companion_id) for limit in full if limit.companion_id is not None
        ),
    )


class BackgroundWorker:
    """Ingests turns and runs background steps that are due, while it is entered.

    It owns the task of each lane that it has claimed, and ends those on leaving.
    """

    def __init__(
        self,
        background_store: BackgroundStore,
        step_store: StepStore,
        steps: StepRunner,
        ingester: MemoryIngester,
        runtime: RuntimeServices,
        has_peers: Callable[[], bool],
    ) -> None:
        """Args: has_peers: whether other processes serve relationships of the same database."""
        self._background_store = background_store
        self._step_store = step_store
        self._steps = steps
        self._ingester = ingester
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._supervisor = runtime.supervisor
        self._has_peers = has_peers
        self._holder = uuid4()  # in whose name lanes are claimed
        self._loop: SupervisedLoop | None = None
        self._stopping = False
        # Turns that are not due yet, and memories that were used.
        self._ingests: _Rounds[tuple[list[int], list[int]]] = _Rounds(self._ingest, _MAX_INGESTING)
        # The limit that held a relationship back, whose place is kept until it starts lanes.
        self._visits: _Rounds[Limit | None] = _Rounds(self._visit, _MAX_VISITS)
        self._held_back: dict[tuple[Limit, int], None] = {}  # the longest waiting first
        self._to_visit_after_poll: dict[int, None] = {}
        self._lanes: dict[tuple[int, Lane], RunningLane] = {}
        self._running = TaskSet()
        self._wakeup = asyncio.Event()
        self._poll_now = True
        self._more_left = self._more_to_ingest = False  # by the last poll
        # Monotonic times.
        self._poll_at = self._renew_at = self._wake_idle_at = self._measure_at = 0.0

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("background", self._run, max_silence_s=_SILENT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop(_STOP_S)
        with contextlib.suppress(ForemindError):  # the leases expire instead
            await self._step_store.release_claims(self._holder)

    async def _stop(self, ingest_s: float) -> None:
        """Start nothing more, and cancel what runs; turns being ingested get some seconds."""
        if self._loop is not None:
            await self._loop.stop()
        self._stopping = True
        self._visits.started = self._ingests.started = False
        await self._visits.tasks.stop()
        await self._ingests.tasks.stop(ingest_s)
        await self._running.stop()

    # What is asked of it

    def wake(self, relationship_id: int) -> None:
        """Have a relationship visited and its turns ingested: something was changed there."""
        self.ingest_soon(relationship_id)
        self._visit_soon(relationship_id)

    def ingest_soon(
        self, relationship_id: int, turn_ids: Sequence[int] = (), used: Sequence[int] = ()
    ) -> None:
        """Have the turns of a relationship ingested that are due.

        Args:
            turn_ids: further turns, which wait for a reply no longer.
            used: memories that this reply was made of.
        """
        if self._ingests.has_room_for(relationship_id):
            waiting = self._ingests.waiting.setdefault(relationship_id, ([], []))
            waiting[0].extend(turn_ids)
            waiting[1].extend(used)
            self._ingests.begin()
        else:
            self._ask_for_poll()

    async def schedule_now(self, relationship_id: int) -> None:
        """Schedule a check of a relationship as soon as possible."""
        await self._background_store.schedule_now(relationship_id, self._clock.now())
        self.wake(relationship_id)

    async def retry_now(self, relationship_id: int) -> None:
        """Schedule a relationship as soon as possible, including failed and held steps."""
        await self._step_store.retry_failed(relationship_id, self._clock.now())
        await self.schedule_now(relationship_id)

    async def run_due_steps(self, relationship_id: int) -> None:
        """Run all due steps of a relationship one after another, except lanes others have claimed.

        Raises:
            StorageUnavailable: try again later.
        """
        while turns := await self._step_store.claim_turns(
            relationship_id, (), now := self._clock.now(), now + _LEASE
        ):
            await self._ingest_turns(relationship_id, turns)
        await self._background_store.schedule_now(relationship_id, self._clock.now())
        for _ in range(_MAX_ROUNDS):
            relationship = await self._background_store.relationship_state(
                relationship_id, self._clock.now()
            )
            if relationship is None:
                return
            place = place_of(self._steps.policy_of(relationship).chat_model)
            steps, active_at = steps_to_schedule(relationship, place, self._clock.now())
            ran = False
            for name in LANES:  # each under a claim of its own: one may outlast the lease
                lanes = [RunningLane(relationship, name, place)]
                claim = Claim(uuid4(), self._clock.now() + _LEASE)
                for lane in await self._claim(relationship_id, lanes, claim, steps, active_at):
                    ran = True
                    await self._steps.run(lane, claim)
                if active_at is not None:  # all of them are scheduled by now
                    steps, active_at = [], None
            if not ran:
                return

    async def status(self, relationship_id: int) -> list[StepStatus]:
        """Return the status of each step of a relationship.

        Raises:
            NotFound: there is no such relationship.
        """
        now = self._clock.now()
        relationship = await self._background_store.relationship_state(relationship_id, now)
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
        behind |= {step.name: waiting.get(step.name, 0) for step in STEPS if step.by_turn}
        return step_statuses(
            states,
            await self._step_store.claimed_lanes(relationship_id, now),
            [place for place in places if claims[place] >= MAX_LANES_PER_MODEL],
            {
                lane.step
                for lane in self._lanes.values()
                if lane.relationship.id == relationship_id and lane.step and lane.waits_for_slot
            },
            behind,
            now,
            relationship.due_at,
        )

    async def update_metrics(self) -> None:
        """Update the metrics of waiting steps, at most every few seconds."""
        moment = self._clock.monotonic()
        if moment < self._measure_at:
            return
        self._measure_at = moment + _MEASURE_INTERVAL_S
        now = self._clock.now()
        self._metrics.backup_age.set(await self._step_store.backup_age())
        waiting = await self._step_store.waiting_counts(now, MAX_LANES_PER_MODEL)
        counts = Counter({(steps.step, steps.reason): steps.count for steps in waiting})
        for lane in self._lanes.values():
            if lane.step is not None and lane.waits_for_slot and counts[lane.step, "running"]:
                counts[lane.step, "running"] -= 1
                counts[lane.step, "slot"] += 1
        self._metrics.background_waiting.clear()
        to_ingest = 0
        for (step, reason), count in counts.items():
            self._metrics.background_waiting.labels(step, reason).set(count)
            to_ingest += count if step == "ingest" and reason != "held" else 0
        self._metrics.waiting_jobs.set(to_ingest)
        oldest = min((steps.oldest for steps in waiting), default=now)
        self._metrics.background_oldest.set(max(0.0, (now - oldest).total_seconds()))

    # The loop: leases, polls, what is dormant

    async def _run(self, loop: SupervisedLoop) -> None:
        self._ingests.start()
        self._visits.start()
        while True:
            await self._renew_leases()
            self._wakeup.clear()
            if self._poll_now or self._clock.monotonic() >= self._poll_at:
                await self._poll()
            await self._wake_idle()
            loop.report_progress()
            timer = self._clock.call_at(self._poll_at, self._wakeup.set)
            try:
                await self._wakeup.wait()
            finally:
                timer.cancel()

    async def _renew_leases(self) -> None:
        """Renew the leases of running lanes; cancel those lost to another worker after a stall."""
        moment, until = self._clock.monotonic(), self._clock.now() + _LEASE
        if moment < self._renew_at:
            return
        # Those claimed meanwhile need no renewal.
        before = {key: lane for key, lane in self._lanes.items() if lane.task is not None}
        try:
            renewed = await self._step_store.renew(self._holder, until)
        except ForemindError:  # perhaps one node of a sharded database is away
            for relationship_id, name in before:
                with contextlib.suppress(ForemindError):
                    until = self._clock.now() + _LEASE
                    await self._step_store.renew_one(relationship_id, name, self._holder, until)
            raise
        self._renew_at = moment + _RENEW_INTERVAL_S
        for key, lane in before.items():
            if key not in renewed and self._lanes.get(key) is lane and lane.task is not None:
                lane.task.cancel()
        for key in renewed - before.keys() - self._lanes.keys():  # releasing it had failed
            await self._step_store.release_claim(*key, self._holder)

    async def _poll(self) -> None:
        """Have relationships visited that need it; those of others are left to them for a while."""
        self._poll_now = False  # before: it may be asked for again meanwhile
        now, limits = self._clock.now(), claim_limits(self._lanes.values())
        try:
            found = await self._step_store.relationships_due(
                now,
                now - _OVERDUE if self._has_peers() else now,
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
        except ForemindError:
            self._poll_now = True
            raise
        finally:
            after, self._to_visit_after_poll = self._to_visit_after_poll, {}
            for relationship_id in after:
                self._visit_soon(relationship_id)

    def _ask_for_poll(self) -> None:
        self._poll_now = True
        self._wakeup.set()

    async def _wake_idle(self) -> None:
        """Schedule idle relationships where retention applies, and held steps.

        Every ten seconds, or at once if there are more.
        """
        now, moment = self._clock.now(), self._clock.monotonic()
        if moment < self._wake_idle_at:
            return
        everywhere = bool(self._settings.retention_days)
        idle = await self._background_store.schedule_retention(
            now, now - _EXPIRY_INTERVAL, _WAKE_BATCH, applies_to_all=everywhere
        )
        held = await self._step_store.retry_held(now, now - HELD_AT_MOST, _WAKE_BATCH)
        if max(idle, held) < _WAKE_BATCH:
            self._wake_idle_at = moment + _WAKE_INTERVAL_S

    # Ingesting turns

    async def _ingest(
        self, relationship_id: int, waiting: tuple[Sequence[int], Sequence[int]]
    ) -> None:
        """Ingest turns of a relationship; what remains is due again a little later."""
        now, (turn_ids, used) = self._clock.now(), waiting
        try:
            states = await self._step_store.claim_turns(
                relationship_id, turn_ids, now, now + INGEST_LEASE, now + WITH_REPLY
            )
            if await self._ingest_turns(relationship_id, states, used):
                self._visit_soon(relationship_id)
            if len(states) == MAX_STATES:
                self._ingests.waiting.setdefault(relationship_id, ([], []))
        except Exception as error:  # the database or a defect: the turns are due again
            _log_failure("background.ingest_failed", relationship_id, error)
        finally:
            if self._more_to_ingest and not self._ingests.waiting:
                self._ask_for_poll()

    async def _ingest_turns(
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
            now = self._clock.now()
            if self._stopping:  # others may take the rest at once
                rest = [state.turn_id for batch in waiting for state in batch]
                await self._step_store.claim_turns(
                    relationship_id, rest, now, now, now + INGEST_LEASE
                )
                return False
            batch = waiting.pop(0)
            turn_ids = [state.turn_id for state in batch]
            try:
                done = await self._ingester.ingest_turns(relationship_id, turn_ids, used)
            except Exception as error:  # must not stop other turns
                if len(batch) > 1:
                    waiting[:0] = [[state] for state in batch]
                else:
                    now = self._clock.now()
                    failed = record_failure(relationship_id, batch[0], error, now)
                    await self._step_store.finish(relationship_id, [failed], now)
                continue
            used = ()
            for state in batch:
                if state.turn_id not in done:
                    await self._step_store.drop_turn(relationship_id, state)
        to_rate = relationship_id in self._ingester.to_rate
        self._ingester.to_rate.discard(relationship_id)
        return to_rate

    # Visits: lanes that are due are claimed and started, as far as limits allow

    def _visit_soon(self, relationship_id: int) -> None:
        """Have a relationship visited: there may be something to do."""
        if self._visits.has_room_for(relationship_id):
            self._visits.waiting.setdefault(relationship_id, None)
            self._visits.begin()
        else:
            self._ask_for_poll()

    async def _visit(self, relationship_id: int, held_back_by: Limit | None) -> None:
        """Start the lanes of a relationship that are due, as far as limits and others allow."""
        progress = False
        try:
            relationship = await self._background_store.relationship_state(
                relationship_id, self._clock.now()
            )
            self._visits.running[relationship_id] = None
            if relationship is not None:
                progress = await self._start_due(relationship)
        except ForemindError as error:  # the next poll finds it
            _log_failure("background.visit_failed", relationship_id, error)
        finally:
            self._visits.running[relationship_id] = None
            if held_back_by is not None and not progress:
                self._visit_held_back()
            if self._more_left and progress:
                self._ask_for_poll()

    async def _start_due(self, relationship: RelationshipState) -> bool:
        """Claim the lanes that are due, and begin to run them; return whether there was any."""
        place = place_of(self._steps.policy_of(relationship).chat_model)
        steps, active_at = steps_to_schedule(relationship, place, self._clock.now())
        wanted = {step.lane for step in steps}
        if "rating" in relationship.steps_due:
            wanted.add("rating")
        lanes = [
            lane
            for name in LANES
            if name in wanted and self._may_start(lane := RunningLane(relationship, name, place))
        ]
        for lane in lanes:  # first, so that visits at the same time keep to the limits
            self._lanes[relationship.id, lane.lane] = lane
        claim, claimed = Claim(self._holder, self._clock.now() + _LEASE), list[RunningLane]()
        try:
            claimed = await self._claim(relationship.id, lanes, claim, steps, active_at)
        finally:
            for lane in lanes:
                if lane not in claimed:
                    del self._lanes[relationship.id, lane.lane]
            if len(claimed) < len(lanes):
                self._visit_held_back()
        for lane in claimed:
            lane.task = self._running.begin(self._run_lane(lane, claim), "lane")
        return bool(claimed)

    async def _claim(
        self,
        relationship_id: int,
        lanes: Sequence[RunningLane],
        claim: Claim,
        steps: Sequence[ScheduledStep],
        active_at: datetime | None,
    ) -> list[RunningLane]:
        """Schedule steps, then claim the lanes that are due; return these with their steps.

        Args:
            steps, active_at: as `steps_to_schedule` returns them.
        """
        if active_at is None:  # those of lanes that are running stay as they are
            steps = [step for step in steps if step.lane in {lane.lane for lane in lanes}]
            if not lanes:
                return []
        states = await self._step_store.claim(
            relationship_id,
            {lane.lane: lane.place for lane in lanes},
            claim,
            self._clock.now(),
            steps,
            active_at,
            due=active_at is None,
        )
        for lane in lanes:
            lane.states = [state for state in states if state.lane == lane.lane]
        return [lane for lane in lanes if lane.states]

    def _may_start(self, lane: RunningLane) -> bool:
        """Return whether a lane may be claimed; it waits for its turn if a limit forbids that."""
        running = self._lanes.get((lane.relationship.id, lane.lane))
        if running is not None:
            running.wakes = True
            return False
        reached = self._first_reached(lane)
        if reached is not None:
            self._hold_back(reached, lane.relationship.id)
        return reached is None

    async def _run_lane(self, lane: RunningLane, claim: Claim) -> None:
        relationship_id = lane.relationship.id
        try:
            await self._steps.run(lane, claim)
        except Exception as error:  # the database or a defect: unfinished steps stay due
            _log_failure("background.stopped", relationship_id, error)
            await self._clock.sleep(_RETRY_DELAY_S)
            with contextlib.suppress(ForemindError):  # the lease expires instead
                await self._step_store.release_claim(relationship_id, lane.lane, self._holder)
            lane.wakes = True
        finally:
            hid_others = self._more_left or self._first_reached(lane) is not None
            del self._lanes[relationship_id, lane.lane]
        if lane.wakes:  # it left something, which comes after what has waited for it
            limits = limits_on(lane)
            waiting = next((limit for limit, _ in self._held_back if limit in limits), None)
            if waiting is not None:
                self._hold_back(waiting, relationship_id)
            elif hid_others:
                self._to_visit_after_poll[relationship_id] = None
            else:
                self._visit_soon(relationship_id)
        if hid_others:
            self._ask_for_poll()
        self._visit_held_back()

    # What limits hold back

    def _used(self) -> Counter[Limit]:
        """Count the lanes under each limit, with places kept for what it had held back."""
        used = Counter(limit for lane in self._lanes.values() for limit in limits_on(lane))
        kept = (*self._visits.waiting.values(), *self._visits.running.values())
        used.update(limit for limit in kept if limit is not None)
        return used

    def _first_reached(self, lane: RunningLane) -> Limit | None:
        """Return the first limit on a lane that is reached, None if none is."""
        used = self._used()
        return next((limit for limit in limits_on(lane) if used[limit] >= limit.most), None)

    def _hold_back(self, limit: Limit, relationship_id: int) -> None:
        """Let a relationship wait for a limit, unless it does or too many do."""
        if len(self._held_back) < _MAX_WAITING:
            self._held_back.setdefault((limit, relationship_id))

    def _visit_held_back(self) -> None:
        """Visit what limits have held back and now allow, before what is to be visited anyway."""
        used, released = self._used(), dict[int, Limit | None]()
        for limit, relationship_id in list(self._held_back):
            if used[limit] < limit.most and relationship_id not in released:
                used[limit] += 1
                released[relationship_id] = limit
                del self._held_back[limit, relationship_id]
        if released:
            self._visits.waiting = released | {
                id_: limit for id_, limit in self._visits.waiting.items() if id_ not in released
            }
            self._visits.begin()


class _Rounds(Generic[Asked]):
    """Work on relationships that was asked for, and runs on some of them at once, on each once."""

    def __init__(
        self, work: Callable[[int, Asked], Coroutine[None, None, None]], most: int
    ) -> None:
        """Set up without doing anything: work begins once started, on so many at most."""
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

    def start(self) -> None:
        """Begin, also with what was asked for before."""
        self.started = True
        self.begin()

    def begin(self) -> None:
        """Begin what was asked for, as much as may run; on what runs, once more afterwards."""
        for relationship_id in list(self.waiting) if self.started else []:
            if self.is_full:
                return
            if relationship_id not in self.running:
                self.running[relationship_id] = self.waiting.pop(relationship_id)
                self.tasks.begin(self._run(relationship_id), "background")

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
