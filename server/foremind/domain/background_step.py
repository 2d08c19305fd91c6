"""Steps of background work: their schedule, their state, and the leases that workers hold."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal, NamedTuple
from uuid import UUID

from foremind.domain.policy import ChatModelPolicy

#: What a relationship's workers do side by side, each by one of them at a time: ingest turns, work
#: by rules, work that may ask a language model, and have turns rated by one.
Lane = Literal["ingest", "rules", "model", "rating"]
#: Steps that take turns one by one, each in the lane of its name.
TurnStep = Literal["ingest", "rating"]

#: How long a message waits to be ingested together with the reply to it.
WITH_REPLY = timedelta(seconds=2)
#: How long a worker that ingests turns has for it, before others may.
INGEST_LEASE = timedelta(seconds=10)
#: All other work on what was said waits for a lull of the conversation, so that several exchanges
#: share its cost and its model requests: for so long after the last one, at most so long after the
#: first, or for so many.
LULL = timedelta(seconds=45)
GATHERED_FOR = timedelta(seconds=90)
MAX_GATHERED_MESSAGES = 6

#: The place of work without a model; every other place is a model on a model server.
RULES_PLACE = ""


def place_of(chat_model: ChatModelPolicy) -> str:
    """Return the place of steps that may call a model: a digest, as URLs may be secret. Pure."""
    if not chat_model.url or not chat_model.background:
        return RULES_PLACE
    return sha256(f"{chat_model.url}\n{chat_model.model}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """A step to schedule: its lane, and the queue (`place`) that it waits in."""

    step: str
    lane: Lane
    place: str


@dataclass(frozen=True, slots=True)
class StepState:
    """The state of a relationship's step; `marks` counts how often it has been scheduled.

    A step that takes turns one by one has a state for each turn that waits, with its `turn_id`; or
    one for all of them, which are `turns` many: the earliest due, the one that failed most.
    """

    step: str
    lane: Lane
    place: str
    due_at: datetime | None
    since: datetime
    marks: int
    attempts: int
    code: str | None
    held_at: datetime | None
    turn_id: int = 0
    turns: int = 0


class FinishedStep(NamedTuple):
    """What became of a step: when it is due next, or how often it failed, why, since when held.

    `marks` is the number of its requests as of its beginning; `turn_id` as in `StepState`.
    """

    step: str
    marks: int
    due_at: datetime | None
    attempts: int = 0
    code: str | None = None
    held_at: datetime | None = None
    turn_id: int = 0


class Claim(NamedTuple):
    """In whose name lanes are claimed, and until when unless that is renewed."""

    holder: UUID
    until: datetime


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """Which lanes may not be claimed for now; those that ingest are limited by themselves.

    `full`: places at their limit; `models_full`: whether all models together are; `full_of`: pairs
    of a place, and a companion at its limit there.
    """

    full: tuple[str, ...] = ()
    models_full: bool = False
    full_of: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingSteps:
    """The number of steps of one kind that wait for the same reason, and the oldest one's time."""

    step: str
    reason: str
    count: int
    oldest: datetime
