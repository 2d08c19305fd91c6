"""Records: what is made of a relationship beyond single memories. One table for every layer."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

RecordLayer = Literal[
    "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions", "hot", "vault"
]
RECORD_LAYERS: tuple[RecordLayer, ...] = get_args(RecordLayer)
MadeBy = Literal["model", "rules", "user", "developer"]
Cursor = Literal["stated", "profiled", "noted", "summarised", "told"]

#: What may be said of how a record of a layer stands; nothing of any other layer's.
Status = Literal["open", "settled"]
STATUSES: dict[RecordLayer, tuple[Status, ...]] = {"questions": get_args(Status)}

FOUND_BY_MEANING: frozenset[RecordLayer] = frozenset(
    {"episodes", "topics", "questions", "vault", "scratchpad"}
)
MOST_REVISIONS = 20  # of a record that are kept
MOST_RECORDS = 5000  # of one relationship that are read; older ones stay in the database
MOST_CONTENT = 8000  # characters of a record's text
MOST_TITLE = 300  # characters of whatever else is written in one: title, kind, a reference
MOST_LISTED = 100  # references, or texts of any other list
MOST_RECORD_BYTES = 16_777_216  # of a relationship's records with their earlier states, as stored


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a record beside its text; each layer uses some of these.

    `attempts` counts how often a question came back, `status` is open or settled; `messages` are
    the turns that a summary tells of, `upto` the last one that it is to tell of; `sessions` those
    in which a topic was met, `upto` the last episode that its paragraph was made of.
    In the profile, `slot` is what a value is of, `rank` its place, `times` how often it was stated,
    `turn` the last in which it was.
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
    slot: str = ""
    rank: int = 0
    times: int = 0
    turn: int = 0


NOTHING_KNOWN = Details()


def by_hand(made_by: MadeBy) -> bool:
    """Tell whether somebody wrote a record, and no background work."""
    return made_by in ("user", "developer")


def found_by(title: str, content: str) -> str:
    """Return the text whose vector a record is found by."""
    return f"{title}. {content}" if title else content


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


def within_limits(record: NewRecord) -> NewRecord:
    """Return a record with whatever is too long cut: what a model writes knows no limits."""
    cut = [ref[:MOST_TITLE] for ref in record.refs[:MOST_LISTED]]
    details = record.details
    lists = {
        name: tuple(each[:MOST_TITLE] for each in value[:MOST_LISTED])
        for name in details.__struct_fields__
        if isinstance(value := getattr(details, name), tuple)
    }
    return replace(
        record,
        content=record.content[:MOST_CONTENT],
        title=record.title[:MOST_TITLE],
        kind=record.kind[:MOST_TITLE],
        refs=tuple(cut),
        details=msgspec.structs.replace(details, status=details.status[:MOST_TITLE], **lists),
    )


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is stored; `revision` rises with every change.

    `used` counts the prompts of replies that it stood in, `used_at` is that of the last one.
    """

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
    used: int = 0
    used_at: datetime | None = None

    @property
    def accessed_at(self) -> datetime:
        """When it was last changed or stood in a prompt, whichever is later."""
        return self.updated_at if self.used_at is None else max(self.updated_at, self.used_at)


def of_layer(records: Iterable[Record], layer: RecordLayer) -> list[Record]:
    """Return the records of a layer, in the order in which they come."""
    return [record for record in records if record.layer == layer]


def open_questions(records: Iterable[Record]) -> list[Record]:
    """Return the questions that nothing has settled yet, in the order in which they come."""
    return [each for each in of_layer(records, "questions") if each.details.status == "open"]


@dataclass(frozen=True, slots=True)
class Use:
    """That a record stood in prompts: how often, and when it last did."""

    record_id: int
    times: int
    last: datetime


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
    """What is held of a relationship beside its records.

    `erasures` counts how often something was erased of it.
    """

    layers_version: int
    summarised_turn_id: int
    erasures: int


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, when; `subject` names a layer and an id, never a text."""

    id: str
    actor: str
    action: str
    subject: str
    happened_at: datetime
