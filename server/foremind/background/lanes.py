"""The lanes that a worker is running, how many more it may claim, and what waits for that."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from foremind.background.curation_context import CurationContext
from foremind.background.step_definitions import LANES, StepName
from foremind.domain.relationship import RelationshipState
from foremind.domain.step import RULES_PLACE, ClaimLimits, Lane, StepState

#: Concurrency limit of one model. One that hangs blocks only its own lanes, and a companion whose
#: requests hang only three of those.
MAX_LANES_PER_MODEL = 4
_MAX_LANES_PER_COMPANION = 3  # on one model
_MAX_MODEL_LANES = 16  # on all models together
_MAX_RULES_LANES = 4  # milliseconds each
MAX_HELD_BACK = 1000  # relationships in all; polls find the others


@dataclass(slots=True, eq=False)
class RunningLane:
    """A lane of a relationship that a worker runs, and the step that it is at.

    `relationship` is as read before the lane was claimed, `states` are those of its due steps, and
    `model_place` is where the relationship's model is. `task` is None until the lane is claimed.
    """

    relationship: RelationshipState
    lane: Lane
    model_place: str
    states: Sequence[StepState] = ()
    task: asyncio.Task[None] | None = None
    step: StepName | None = None
    context: CurationContext | None = None
    #: Whether what it found is to be continued in another lane.
    wakes: bool = False

    @property
    def relationship_id(self) -> int:
        """The relationship's id."""
        return self.relationship.id

    @property
    def place(self) -> str:
        """Where it runs: at the model, unless rules do the work."""
        return RULES_PLACE if self.lane == "rules" else self.model_place

    @property
    def waits_for_slot(self) -> bool:
        """Whether the step waits for a slot of its model server."""
        server = None if self.context is None else self.context.server
        return server is not None and self.task is not None and server.slots.is_queued(self.task)


class Limit(NamedTuple):
    """What is limited: lanes on all models, at a place, or of a companion there."""

    kind: Literal["models", "place", "companion"]
    place: str = RULES_PLACE
    companion_id: int | None = None


def limits_on(lane: RunningLane) -> list[Limit]:
    """Return the limits that a lane counts towards. Pure."""
    at_place = Limit("place", lane.place)
    if lane.place == RULES_PLACE:
        return [at_place]
    companion_id = lane.relationship.companion_id
    return [at_place, Limit("companion", lane.place, companion_id), Limit("models")]


def _most(limit: Limit) -> int:
    """Return how many lanes a limit allows."""
    if limit.kind == "companion":
        return _MAX_LANES_PER_COMPANION
    if limit.kind == "models":
        return _MAX_MODEL_LANES
    return _MAX_RULES_LANES if limit.place == RULES_PLACE else MAX_LANES_PER_MODEL


_NOTHING_RESERVED: Mapping[Limit, int] = {}


class RunningLanes:
    """The lanes that one worker runs, or is about to claim; bounded by the concurrency limits."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, Lane], RunningLane] = {}

    def __iter__(self) -> Iterator[RunningLane]:
        return iter(self._lanes.values())

    def add(self, lane: RunningLane) -> None:
        """Add a lane that is about to be claimed."""
        self._lanes[lane.relationship_id, lane.lane] = lane

    def discard(self, lane: RunningLane) -> None:
        """Remove a lane."""
        del self._lanes[lane.relationship_id, lane.lane]

    def get(self, relationship_id: int, lane: Lane) -> RunningLane | None:
        """Return a lane of a relationship, if it is running."""
        return self._lanes.get((relationship_id, lane))

    def claimed(self) -> dict[tuple[int, Lane], RunningLane]:
        """Return the claimed lanes by relationship id and name, as of now."""
        return {key: lane for key, lane in self._lanes.items() if lane.task is not None}

    def lost(
        self, before: dict[tuple[int, Lane], RunningLane], renewed: Collection[tuple[int, Lane]]
    ) -> list[RunningLane]:
        """Return the lanes that are still running but whose leases could not be renewed.

        Args:
            before: the lanes claimed before the renewal; those claimed since need none.
        """
        return [
            lane
            for key, lane in before.items()
            if key not in renewed and self._lanes.get(key) is lane
        ]

    def first_reached(
        self, limits: Iterable[Limit], reserved: Mapping[Limit, int] = _NOTHING_RESERVED
    ) -> Limit | None:
        """Return the first of these limits that is reached, None if none is.

        Args:
            reserved: how many lanes under each limit are about to be added by others.
        """
        running = Counter(limit for lane in self for limit in limits_on(lane))
        reached = (
            limit for limit in limits if running[limit] + reserved.get(limit, 0) >= _most(limit)
        )
        return next(reached, None)

    def claim_limits(self) -> ClaimLimits | None:
        """Return which lanes may not be claimed; None if none may."""
        running = Counter(limit for lane in self for limit in limits_on(lane))
        full = [limit for limit, count in running.items() if count >= _most(limit)]
        models_full = Limit("models") in full
        if models_full and Limit("place") in full:
            return None
        return ClaimLimits(
            tuple(limit.place for limit in full if limit.kind == "place"),
            models_full,
            tuple(
                (limit.place, limit.companion_id)
                for limit in full
                if limit.companion_id is not None
            ),
        )

    def waiting_for_slot(self, relationship_id: int) -> set[StepName]:
        """Return a relationship's steps that wait in this process for a model server slot."""
        running = [self.get(relationship_id, lane) for lane in LANES]
        return {
            lane.step
            for lane in running
            if lane is not None and lane.step is not None and lane.waits_for_slot
        }


class HeldBack:
    """Relationships that limits hold back, for each in the order in which they came; bounded."""

    def __init__(self) -> None:
        self._queues: defaultdict[Limit, dict[int, None]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, limit: Limit, relationship_id: int) -> None:
        """Queue a relationship for a limit, unless it is queued or too many are."""
        if len(self) < MAX_HELD_BACK:
            self._queues[limit].setdefault(relationship_id)

    def is_waiting(self, limit: Limit) -> bool:
        """Return whether a limit holds a relationship back."""
        return limit in self._queues

    def take(self, limit: Limit) -> int | None:
        """Remove the relationship that has waited the longest for a limit, and return it."""
        queue = self._queues.pop(limit, {})
        first = next(iter(queue), None)
        if first is not None and len(queue) > 1:
            del queue[first]
            self._queues[limit] = queue
        return first
