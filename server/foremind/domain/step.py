"""TODO."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from foremind.domain.companion import CompanionSettings, RelationshipSettings

Lane = Literal["rules", "model"]


@dataclass(frozen=True, slots=True)
class PendingLook:
    """A relationship in which something happened, and the settings that hold in it."""

    id: int
    due_at: datetime
    companion_settings: CompanionSettings
    settings: RelationshipSettings


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """A step to be made due: its lane, and the place where it waits."""

    step: str
    lane: Lane
    place: str


@dataclass(frozen=True, slots=True)
class StepState:
    """How a step of a relationship stands; `marks` is how often something made it due."""

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
    """A lane of a relationship that a worker has; `place` is where its steps waited."""

    relationship_id: int
    lane: Lane
    place: str
    companion_id: int


@dataclass(frozen=True, slots=True)
class WaitingSteps:
    """How many steps of a kind wait for the same reason, and since when the oldest does."""

    step: str
    reason: str
    count: int
    oldest: datetime
