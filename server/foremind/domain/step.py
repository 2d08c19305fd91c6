"""Steps of background work: their schedule, their state, and the leases that workers hold."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from foremind.domain.companion import CompanionSettings, RelationshipSettings

Lane = Literal["rules", "model"]


@dataclass(frozen=True, slots=True)
class PendingLook:
    """A relationship with new activity whose steps must be scheduled, and its settings."""

    id: int
    due_at: datetime
    companion_settings: CompanionSettings
    settings: RelationshipSettings


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """A step to schedule: its lane, and the queue (`place`) that it waits in."""

    step: str
    lane: Lane
    place: str


@dataclass(frozen=True, slots=True)
class StepState:
    """The state of a relationship's step; `marks` counts how often it has been scheduled."""

    step: str
    lane: Lane
    place: str
    due_at: datetime | None
    since: datetime
    marks: int
    attempts: int
    code: str | None
    held_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClaimedStep:
    """A lane of a relationship that a worker has claimed; `place` is the queue it came from."""

    relationship_id: int
    lane: Lane
    place: str
    companion_id: int


@dataclass(frozen=True, slots=True)
class WaitingSteps:
    """The number of steps of one kind that wait for the same reason, and the oldest one's time."""

    step: str
    reason: str
    count: int
    oldest: datetime
