"""The export files of a relationship and of a user; these structs define its JSON schema.

Garbage collections need not look at sessions and turns: there are up to 50,000, and no cycle is in
them.
"""

from datetime import datetime
from typing import Annotated, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from foremind.domain.memory import Reason
from foremind.domain.record import MadeBy, RecordLayer
from foremind.domain.session_state import SessionState
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.turn import MemoryType, Speaker, Status
from foremind.domain.user import ExportedEvent, ExportedRevocation

MessageId = Annotated[str, Meta(min_length=1, max_length=256)]  # may be that of a copy
UserName = Annotated[str, Meta(min_length=1, max_length=64)]
Share = Annotated[float, Meta(ge=0, le=1)]
#: The id of a turn, memory or record: digits, meaningful within the file only. Later ids are
#: greater.
Id = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,17})$")]


class ExportedSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A session; `id` is local to the file. `state` is the session state, if any."""

    id: str
    opened_at: datetime
    active_at: datetime
    closed_at: datetime | None
    state: SessionState | None = None


class ExportedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A turn of a session; `reply_to` is the turn that it answers.

    Turns that were not `judged`, such as replies of the offline model, are not part of any context
    window. What happened, which a game reported, has an `event_id` and an `event_type`, and no
    session.
    """

    id: Id
    session: str | None
    speaker: Speaker
    message_id: MessageId | None
    reply_to: Id | None
    status: Status
    text: str
    said_at: datetime
    kept: bool = True
    judged: bool = True
    event_id: MessageId | None = None
    event_type: MemoryType | None = None


class ExportedMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A memory of a turn, and of the turns that repeated it (`again`)."""

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
    """The details of a record besides its text.

    `upto` is the last record of the file that a topic's paragraph was made of, `turn` the turn of
    the file in which a profile value was last stated.
    """

    questions: list[str] = []
    conclusions: list[str] = []
    open_questions: list[str] = []
    topics: list[str] = []
    attempts: int = 0
    status: str = ""
    messages: int = 0
    sessions: int = 0
    upto: Id = "0"
    slot: str = ""
    rank: Annotated[int, Meta(ge=0, lt=10**6)] = 0
    times: Annotated[int, Meta(ge=0, lt=10**9)] = 0
    turn: Id = "0"


class ExportedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record of a layer, and its source turns and records."""

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
    """An earlier revision of a record in the file."""

    record: Id
    revision: Annotated[int, Meta(ge=1, le=2**31 - 2)]
    kind: str
    title: str
    content: str
    made_by: MadeBy
    replaced_at: datetime


class ExportedChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A memory was merged with a turn or superseded by it, and why."""

    memory: Id
    change: Literal["merged", "superseded"]
    turn: Id
    reason: Annotated[str, Meta(max_length=300)]
    changed_at: datetime


class ExportedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the audit trail. It belongs to this server: other servers do not import it."""

    actor: str
    action: str
    subject: str
    happened_at: datetime


class ExportedChangeSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns whose records of a layer must be rebuilt together."""

    layer: RecordLayer
    turns: list[Id]


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cursors of background work, and what it must not write again.

    Each cursor is the last turn processed; that of episodes is `told` in the file. `dismissed` are
    digests, salted with `salt`; `remade` are turns whose records must be rebuilt. A missing
    `stated` equals `noted`.
    """

    stated: Id | None = None
    noted: Id = "0"
    summarised: Id = "0"
    narrated: Id = msgspec.field(default="0", name="told")
    dismissed: list[str] = []
    salt: UUID | None = None
    remade: list[ExportedChangeSet] = []


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All data of one relationship."""

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
    language: str | None = None
    format: Literal["foremind.relationship"] = "foremind.relationship"
    version: Literal[1] = 1


Authored = TypeVar("Authored", ExportedRecord, ExportedRevision)


def with_user_as_author(export: Export) -> Export:
    """Return an export with the user as author of all manual records.

    A file cannot prove that a developer wrote a record. What a model or rules wrote is kept as
    such: it has less authority than what a user wrote.
    """

    def by_user(part: Authored) -> Authored:
        from_developer = part.made_by == "developer"
        return msgspec.structs.replace(part, made_by="user") if from_developer else part

    return msgspec.structs.replace(
        export,
        records=[by_user(record) for record in export.records],
        revisions=[by_user(revision) for revision in export.revisions],
    )


class PlayerInWorld(msgspec.Struct, frozen=True):
    """What a player witnessed in a world, and the minds that characters have of the player there.

    Of a world that was saved or rolled back there are several.
    """

    world: str
    witnessed: list[ExportedEvent]
    minds: list[Export]


class UserExport(msgspec.Struct, frozen=True):
    """Everything stored about a user, with every companion and in every world."""

    user: str
    name: str
    time_zone: str
    exported_at: datetime
    revocations: list[ExportedRevocation]
    relationships: list[Export]
    worlds: list[PlayerInWorld] = []
    language: str | None = None
    format: Literal["foremind.user"] = "foremind.user"
    version: Literal[1] = 1
