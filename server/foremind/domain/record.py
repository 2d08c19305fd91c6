"""Records: what layers other than memories store about a relationship. One table for all layers."""

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
Cursor = Literal["stated", "noted", "summarised", "narrated"]

#: The statuses that records of a layer may have; other layers have none.
Status = Literal["open", "deferred", "settled"]
STATUSES: dict[RecordLayer, tuple[Status, ...]] = {"questions": get_args(Status)}

SINGLE_RECORD_LAYERS: tuple[RecordLayer, ...] = ("hot", "summary", "opening")
VECTOR_SEARCHED_LAYERS: frozenset[RecordLayer] = frozenset(
    {"episodes", "topics", "questions", "vault", "scratchpad"}
)
MAX_REVISIONS = 20  # that are kept of a record
MAX_RECORDS = 5000  # that are loaded of a relationship; older ones stay in the database
MAX_CONTENT_CHARS = 8000  # characters of a record's content
MAX_TITLE_CHARS = 300  # characters of its other texts: title, kind, each reference
MAX_LIST_ITEMS = 100  # references, or items of any other list
MAX_RECORD_BYTES = 16_777_216  # of a relationship's records and revisions, as stored


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """The details of a record besides its text; each layer uses some of the fields.

    Questions: `attempts` counts how often one came up again, `status` is open, settled,
    or deferred: open, but in no prompt before it is touched on again. Summary: `messages` is the
    number of turns covered, `upto` the last turn to cover. Topics: `sessions` is the number of
    sessions that mentioned one, `upto` the last episode that its paragraph was made of. Notes:
    `rank`, by kind and significance. Profile: `slot` and its `rank`, `times` is how often a value
    was stated, `turn` the last one that did.
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


NO_DETAILS = Details()


def is_manual(made_by: MadeBy) -> bool:
    """Return whether a user or developer wrote a record, not background work."""
    return made_by in ("user", "developer")


def search_text(title: str, content: str) -> str:
    """Return the text of a record that is embedded for vector search."""
    return f"{title}. {content}" if title else content


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be stored, or the new state of one.

    `vector` is the unit vector of its search text, float32 [dimension]; `turns` and `sources` are
    the turns and records that it was made of; `occurred_at` is the time of those turns, if not now.
    """

    layer: RecordLayer
    content: str
    made_by: MadeBy
    title: str = ""
    kind: str = ""
    refs: tuple[str, ...] = ()
    details: Details = NO_DETAILS
    vector: npt.NDArray[np.float32] | None = None
    session_id: UUID | None = None
    turns: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    occurred_at: datetime | None = None


def truncate_to_limits(record: NewRecord) -> NewRecord:
    """Return a record truncated to the limits, as what a model writes may exceed them.

    What a person wrote is never cut: whoever takes it refuses what is too long.
    """
    if is_manual(record.made_by):
        return record
    refs = tuple(ref[:MAX_TITLE_CHARS] for ref in record.refs[:MAX_LIST_ITEMS])
    details = record.details
    lists = {
        name: tuple(item[:MAX_TITLE_CHARS] for item in value[:MAX_LIST_ITEMS])
        for name in details.__struct_fields__
        if isinstance(value := getattr(details, name), tuple)
    }
    return replace(
        record,
        content=record.content[:MAX_CONTENT_CHARS],
        title=record.title[:MAX_TITLE_CHARS],
        kind=record.kind[:MAX_TITLE_CHARS],
        refs=refs,
        details=msgspec.structs.replace(details, status=details.status[:MAX_TITLE_CHARS], **lists),
    )


@dataclass(frozen=True, slots=True)
class Record:
    """A record as stored; `revision` increases with every change.

    `last_source_at` is when the newest of what it was made of was said, None if that is unknown;
    `used` counts the replies whose prompt contained it, `used_at` is the time of the last one.
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
    last_source_at: datetime | None = None

    @property
    def said_at(self) -> datetime:
        """When what it contains was said, however much later it was written or imported."""
        return self.last_source_at or self.updated_at

    @property
    def accessed_at(self) -> datetime:
        """When there was news of it or it was used in a prompt, whichever is later."""
        return self.said_at if self.used_at is None else max(self.said_at, self.used_at)


def of_layer(records: Iterable[Record], layer: RecordLayer) -> list[Record]:
    """Return the records of a layer, in the given order."""
    return [record for record in records if record.layer == layer]


def open_questions(records: Iterable[Record]) -> list[Record]:
    """Return the questions that are still open, in the given order."""
    return [
        question for question in of_layer(records, "questions") if question.details.status == "open"
    ]


def unsettled_questions(records: Iterable[Record]) -> list[Record]:
    """Return the questions that are open or deferred, in the given order."""
    questions = of_layer(records, "questions")
    return [question for question in questions if question.details.status != "settled"]


@dataclass(frozen=True, slots=True)
class Use:
    """How often a record was used in prompts, and when it last was."""

    record_id: int
    times: int
    last: datetime


@dataclass(frozen=True, slots=True)
class Revision:
    """An earlier revision of a record."""

    revision: int
    layer: RecordLayer
    kind: str
    title: str
    content: str
    made_by: MadeBy
    replaced_at: datetime


@dataclass(frozen=True, slots=True)
class LayersState:
    """The state of a relationship's layers besides its records.

    `erasures` counts the erasures in the relationship.
    """

    layers_version: int
    summarised_turn_id: int
    erasures: int
    user_name: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An audit entry: who did what, when; `subject` names a layer and an id, never a text."""

    id: str
    actor: str
    action: str
    subject: str
    happened_at: datetime
