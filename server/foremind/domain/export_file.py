"""The file that a relationship is written to: its shapes, which are those of its schema."""

from datetime import datetime
from typing import Annotated, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from foremind.domain.companion import CompanionSettings
from foremind.domain.memory import Reason
from foremind.domain.record import MadeBy, RecordLayer
from foremind.domain.session_state import SessionState
from foremind.domain.turn import Speaker, Status

MemoryType = Literal["conversation", "observation", "event", "relationship"]
MessageId = Annotated[str, Meta(min_length=1, max_length=256)]  # one may be a copy's
UserName = Annotated[str, Meta(min_length=1, max_length=64)]
Share = Annotated[float, Meta(ge=0, le=1)]
#: Of a turn, a memory or a record: digits, which are of no use outside the file. Later ones are
#: greater.
Id = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,17})$")]


class ExportedSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session; `id` is known only within the file. `state` is what goes on in it, if anything."""

    id: str
    opened_at: datetime
    active_at: datetime
    closed_at: datetime | None
    state: SessionState | None = None


class ExportedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that was said in a session; `reply_to` is the turn that it answers.

    What was not `judged`, as what the offline voice quotes, is no part of an exchange.
    """

    id: Id
    session: str
    speaker: Speaker
    message_id: MessageId | None
    reply_to: Id | None
    status: Status
    text: str
    said_at: datetime
    kept: bool = True
    judged: bool = True


class ExportedMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A memory of a turn, and of others that said it `again`."""

    id: Id
    turn: Id
    again: list[Id]
    content: str
    speaker: Speaker
    memory_type: MemoryType
    significance: Share
    reasons: list[Reason]
    created_at: datetime
    happened_from: datetime | None
    happened_to: datetime | None
    last_used_at: datetime | None
    superseded_by: Id | None


class ExportedDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of a record beside its text.

    `upto` is the last record of the file that a topic's paragraph was made of; files of earlier
    versions have it as a number. `turn` is the turn of the file in which a value of the profile was
    last stated.
    """

    questions: list[str] = []
    conclusions: list[str] = []
    open_questions: list[str] = []
    topics: list[str] = []
    attempts: int = 0
    status: str = ""
    messages: int = 0
    sessions: int = 0
    upto: Id | Annotated[int, Meta(ge=0, lt=10**18)] = "0"
    slot: str = ""
    rank: Annotated[int, Meta(ge=0, lt=10**6)] = 0
    times: Annotated[int, Meta(ge=0, lt=10**9)] = 0
    turn: Id = "0"


class ExportedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record of a layer, and the turns and records that it was made of."""

    id: Id
    layer: RecordLayer
    kind: str
    title: str
    content: str
    refs: list[str]
    details: ExportedDetails
    made_by: MadeBy
    session: str | None
    created_at: datetime
    updated_at: datetime
    turns: list[Id]
    sources: list[Id]
    used: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    used_at: datetime | None = None


class ExportedRevision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An earlier state of a record of the file."""

    record: Id
    revision: Annotated[int, Meta(ge=1, le=2**31 - 2)]
    kind: str
    title: str
    content: str
    made_by: MadeBy
    replaced_at: datetime


class ExportedChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That a memory was merged with what a turn said, or superseded by it, and why."""

    memory: Id
    change: Literal["merged", "superseded"]
    turn: Id
    reason: Annotated[str, Meta(max_length=300)]
    changed_at: datetime


class ExportedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the audit trail. It is this server's: no other takes it in."""

    actor: str
    action: str
    subject: str
    happened_at: datetime


class ExportedPortion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns whose notes of a layer are to be made again, together."""

    layer: RecordLayer
    turns: list[Id]


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to which turn each kind of background work is done, and what it may not make again.

    `dismissed` are digests, made with `salt`; `remade` turns whose notes are to be made again.
    Without `stated`, what is stated was kept with the notes; without `profiled`, by rules alone.
    """

    stated: Id | None = None
    profiled: Id | None = None
    noted: Id = "0"
    summarised: Id = "0"
    told: Id = "0"
    dismissed: list[str] = []
    salt: UUID | None = None
    remade: list[ExportedPortion] = []


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is known in one relationship."""

    companion: str
    user_name: UserName
    time_zone: str
    exported_at: datetime
    settings: CompanionSettings
    sessions: list[ExportedSession]
    turns: list[ExportedTurn]
    memories: list[ExportedMemory]
    records: list[ExportedRecord]
    progress: Progress = Progress()
    revisions: list[ExportedRevision] = []
    changes: list[ExportedChange] = []
    audit: list[ExportedEntry] = []
    shares_counts: bool = False
    format: Literal["foremind.relationship"] = "foremind.relationship"
    version: Literal[1] = 1


Written = TypeVar("Written", ExportedRecord, ExportedRevision)


def as_told_by_user(export: Export) -> Export:
    """Return an export in which nothing is said to be the developer's, which a file cannot prove.

    What a model or rules made stays theirs: it counts for less than what a user wrote.
    """

    def told(part: Written) -> Written:
        by_user = part.made_by == "developer"
        return msgspec.structs.replace(part, made_by="user") if by_user else part

    return msgspec.structs.replace(
        export,
        records=[told(record) for record in export.records],
        revisions=[told(revision) for revision in export.revisions],
    )
