"""Records: what is made of a relationship beyond single memories. One table for every layer."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.companions import CompanionSettings

RecordLayer = Literal[
    "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions", "hot", "vault"
]
MadeBy = Literal["model", "rules", "user", "developer"]
Cursor = Literal["noted", "summarised", "told"]

FOUND_BY_MEANING: frozenset[RecordLayer] = frozenset({"episodes", "topics", "questions", "vault"})
MOST_REVISIONS = 20  # of a record that are kept
MOST_RECORDS = 5000  # of one relationship that are read; older ones stay in the database


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a record beside its text; each layer uses some of these.

    `attempts` counts how often a question came back, `status` is open or settled; `messages` are
    the turns that a summary tells of; `sessions` those in which a topic was met, `upto` the last
    episode that its paragraph was made of.
    """

    questions: tuple[str, ...] = ()
    conclusions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    attempts: int = 0
    status: str = ""
    messages: int = 0
    sessions: int = 0
    upto: int = 0


NOTHING_KNOWN = Details()


def found_by(title: str, content: str) -> str:
    """Return the text whose vector a record is found by."""
    return f"{title}. {content}" if title else content


class SummaryApplied(msgspec.Struct, frozen=True):
    """That the oldest turns are summarised: how many, in how many lines, by which means."""

    messages: int
    lines: int
    made_by: MadeBy


class LayersChanged(msgspec.Struct, frozen=True, tag="layers"):
    """That records of a relationship changed, as every server process is told.

    `forgotten`: its user had one removed, so that nothing may hold it any longer.
    """

    relationship_id: int
    layers_version: int
    summary: SummaryApplied | None = None
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record about to be stored, or what one is changed into.

    `vector` is the unit vector of what it is found by, float32 [dimension]; `turns` and `sources`
    are the turns and records that it was made of; `told_at` is when what it tells of was said,
    where that is not now.
    """

    layer: RecordLayer
    content: str
    made_by: MadeBy
    title: str = ""
    kind: str = ""
    refs: tuple[str, ...] = ()
    details: Details = NOTHING_KNOWN
    vector: npt.NDArray[np.float32] | None = None
    session_id: UUID | None = None
    turns: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is stored; `revision` rises with every change."""

    id: int
    layer: RecordLayer
    kind: str
    title: str
    content: str
    refs: tuple[str, ...]
    details: Details
    vector: npt.NDArray[np.float32] | None
    made_by: MadeBy
    session_id: UUID | None
    created_at: datetime
    updated_at: datetime
    revision: int


@dataclass(frozen=True, slots=True)
class Revision:
    """An earlier state of a record."""

    revision: int
    layer: RecordLayer
    kind: str
    title: str
    content: str
    made_by: MadeBy
    replaced_at: datetime


@dataclass(frozen=True, slots=True)
class LayersState:
    """What is held of a relationship beside its records: its own settings among it."""

    layers_version: int
    summarised_turn_id: int
    settings: CompanionSettings


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, when; `subject` names a layer and an id, never a text."""

    id: int
    actor: str
    action: str
    subject: str
    happened_at: datetime
