"""A relationship written out whole, and read back, also by another server."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta
from pgvector import HalfVector

from foremind.companions import CompanionSettings, RelationshipSettings
from foremind.errors import Conflict, NotFound
from foremind.storage.curation import Portion
from foremind.storage.database import Connection, Database
from foremind.storage.memory_version import MemoryVersion
from foremind.storage.packed_words import pack_words
from foremind.storage.record_changes import RecordChanges
from foremind.storage.records import Details, MadeBy, NewRecord, RecordLayer
from foremind.storage.relationships import SettingsChanged
from foremind.storage.remembering import Fact, MemoryText, Reason
from foremind.storage.session_state import SessionState, flags_json, state_of
from foremind.storage.turns import Speaker, Status

Vector = npt.NDArray[np.float32]
MemoryType = Literal["conversation", "observation", "event", "relationship"]
MessageId = Annotated[str, Meta(min_length=1, max_length=256)]  # one may be a copy's
UserName = Annotated[str, Meta(min_length=1, max_length=64)]
Part = TypeVar("Part")
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

_PORTION = 500  # rows that are made parts of an export at once: some milliseconds


def as_told_by_user(export: Export) -> Export:
    """Return an export in which nothing is said to be the developer's, which a file cannot prove.

    What a model or rules made stays theirs: it counts for less than what a user wrote.
    """

    def told(part: Written) -> Written:
        by_user = part.made_by == "developer"
        return msgspec.structs.replace(part, made_by="user") if by_user else part

    return msgspec.structs.replace(
        export,
        records=[told(each) for each in export.records],
        revisions=[told(each) for each in export.revisions],
    )


@dataclass(frozen=True, slots=True)
class Made:
    """The vectors of an import, made by this server's model: by the ids within the file.

    Unit vectors, float32 [dimension]: of turns' exact texts, and of records; and what memories are
    found by, and what these state; `expired` are turns whose text is gone, but something is left.
    """

    turns: Mapping[str, Vector]
    memories: Mapping[str, MemoryText]
    records: Mapping[str, Vector]
    facts: Mapping[str, Sequence[Fact]]
    expired: Collection[str]


class TransferStore:
    """Reads a relationship whole, and writes one into an empty one, in one transaction."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    async def read(
        self,
        relationship_id: int,
        companion: str,
        user: tuple[str, str],
        settings: CompanionSettings,
        now: datetime,
    ) -> Export:
        """Return everything that is known; `user` is the name and the time zone."""
        async with self._database.transaction(relationship_id) as connection:
            # Nothing is forgotten or remembered while it is read.
            await connection.execute("lock_relationship", relationship_id)

            async def all_of(name: str, shape: Callable[[Any], Part]) -> list[Part]:
                parts: list[Part] = []
                async for rows in connection.portions(name, _PORTION, relationship_id):
                    parts.extend(map(shape, rows))
                return parts

            (found,) = await connection.rows("export_progress", relationship_id)
            progress = dict(found)
            shares_counts = progress.pop("shares_counts")
            remade = [
                ExportedPortion(each.layer, [str(turn) for turn in each.turns])
                for each in msgspec.json.decode(progress.pop("remade"), type=list[Portion])
            ]
            return Export(
                companion=companion,
                user_name=user[0],
                time_zone=user[1],
                exported_at=now,
                settings=settings,
                sessions=await all_of("export_sessions", _session),
                turns=await all_of("export_turns", lambda row: ExportedTurn(**row)),
                memories=await all_of("export_memories", _memory),
                records=await all_of("export_records", _record),
                progress=Progress(**progress, remade=remade),
                revisions=await all_of("export_revisions", lambda row: ExportedRevision(**row)),
                changes=await all_of("export_changes", lambda row: ExportedChange(**row)),
                audit=await all_of("export_audit", lambda row: ExportedEntry(**row)),
                shares_counts=shares_counts,
            )

    async def write(
        self,
        user_id: str,
        companion_id: int,
        export: Export,
        own: RelationshipSettings,
        made: Made,
        actor: str,
        now: datetime,
    ) -> int:
        """Restore an export as a user's relationship with a companion; return its id.

        Args:
            own: the relationship's settings, as whoever restores it may set them.
            actor: who asked for it, for the audit trail.

        Raises:
            Conflict: the relationship holds something already.
            TooLarge: the records would take more than those of a relationship may.
        """
        async with self._database.transaction() as connection:
            bond = await connection.row(
                "ensure_relationship", user_id, export.user_name, export.time_zone, companion_id
            )
            if bond is None:
                raise NotFound("companion: expected a known companion", param="companion")
            await connection.within(bond["id"])
            await connection.execute("lock_relationship", bond["id"])
            held = await connection.row("holds_anything", bond["id"])
            if held is None or held[0]:
                raise Conflict("companion: expected one with whom nothing was said yet")
            writing = _Writing(connection, bond["id"], bond["user_id"], self._fingerprint, now)
            await writing.sessions(export)
            await writing.turns(export, made)
            await writing.memories(export, made)
            await writing.records(export, made, actor)
            await writing.progress(export, own)
            await writing.expired(made)  # last: nothing is made of a turn whose text is gone
            return int(bond["id"])


def _session(row: Any) -> ExportedSession:
    values = dict(row)
    state = None if values["task"] is None else state_of(values)
    del values["task"], values["flags"]
    return ExportedSession(**values, state=state)


def _memory(row: Any) -> ExportedMemory:
    reasons = msgspec.json.decode(row["reasons"], type=list[Reason])
    return ExportedMemory(**(dict(row) | {"reasons": reasons}))


def _record(row: Any) -> ExportedRecord:
    return ExportedRecord(**(dict(row) | {"details": _exported(row["details"])}))


class _Writing:
    """Writes an export, giving everything new ids."""

    def __init__(
        self,
        connection: Connection,
        relationship_id: int,
        user_id: int,
        fingerprint: str,
        now: datetime,
    ) -> None:
        self._connection = connection
        self._id = relationship_id
        self._user_id = user_id
        self._fingerprint = fingerprint
        self._now = now
        self._sessions: dict[str, UUID] = {}
        self._turns: dict[str, int] = {}
        self._memories: dict[str, int] = {}
        self._records: dict[str, int] = {}

    async def sessions(self, export: Export) -> None:
        for each in export.sessions:
            row = await self._one(
                "import_session", self._id, each.opened_at, each.active_at, each.closed_at
            )
            self._sessions[each.id] = row["id"]
            if each.state is not None and each.closed_at is None:
                await self._connection.execute(
                    "import_state",
                    self._id,
                    row["id"],
                    each.state.task,
                    flags_json(each.state),
                    self._now,
                )

    async def turns(self, export: Export, made: Made) -> None:
        for each in export.turns:
            row = await self._turn(each, each.message_id, made)
            if row is None:  # this user used the id with another companion
                row = await self._turn(each, f"{each.message_id}~{self._id}", made)
            if row is None:
                raise Conflict("The file says something twice.")
            self._turns[each.id] = row["id"]

    async def _turn(self, turn: ExportedTurn, message_id: str | None, made: Made) -> Any:
        return await self._connection.row(
            "import_turn",
            self._id,
            self._sessions[turn.session],
            self._user_id,
            turn.speaker,
            message_id,
            None if turn.reply_to is None else self._turns.get(turn.reply_to),
            turn.status,
            turn.text,
            turn.said_at,
            HalfVector(made.turns[turn.id]) if turn.id in made.turns else None,
            turn.kept,
        )

    async def expired(self, made: Made) -> None:
        turns = [self._turns[each] for each in made.expired]
        await self._connection.execute("import_expired", self._id, turns, self._now)

    async def memories(self, export: Export, made: Made) -> None:
        version = MemoryVersion(self._connection, self._id)
        for each in export.memories:
            text = made.memories[each.id]
            row = await self._one(
                "insert_memory",
                self._id,
                each.created_at,
                self._turns[each.turn],
                each.significance,
                text.length,
                each.memory_type,
                each.speaker,
                HalfVector(text.vector),
                each.content,
                list(text.terms),
                list(text.terms.values()),
                self._fingerprint,
                msgspec.json.encode(each.reasons).decode(),
                each.happened_from,
                each.happened_to,
                pack_words(text.terms),
                await version.stamp(),
            )
            self._memories[each.id] = row["id"]
            for fact in made.facts.get(each.id, ()):
                await self._connection.execute(
                    "restate_fact", self._id, row["id"], fact.slot, fact.value
                )
            for again in each.again:
                await self._connection.execute(
                    "import_source", self._turns[again], row["id"], self._id
                )
        for each in export.memories:
            newer = None if each.superseded_by is None else self._memories.get(each.superseded_by)
            await self._connection.execute(
                "import_marks",
                self._id,
                self._memories[each.id],
                each.last_used_at,
                newer,
                each.created_at,
                await version.stamp(),
            )
        for change in export.changes:
            if change.memory in self._memories and change.turn in self._turns:
                await self._connection.execute(
                    "import_change",
                    self._id,
                    self._memories[change.memory],
                    change.change,
                    self._turns[change.turn],
                    change.reason,
                    change.changed_at,
                )
        await version.announce()

    async def records(self, export: Export, made: Made, actor: str) -> None:
        changes = RecordChanges(self._connection, self._id, self._fingerprint, self._now)
        for each in export.records:
            new = await changes.add(
                NewRecord(
                    layer=each.layer,
                    kind=each.kind,
                    title=each.title,
                    content=each.content,
                    refs=tuple(each.refs),
                    details=_restored(each.details, _upto(self._turns, each.details.turn)),
                    made_by=each.made_by,
                    vector=made.records.get(each.id),
                    session_id=None if each.session is None else self._sessions.get(each.session),
                    turns=tuple(self._turns[turn] for turn in each.turns if turn in self._turns),
                )
            )
            self._records[each.id] = new
        # Records may be made of later ones: a topic that is written anew is made of new episodes.
        earlier_of: dict[str, list[ExportedRevision]] = {}
        for old in export.revisions:
            earlier_of.setdefault(old.record, []).append(old)
        for each in export.records:
            new = self._records[each.id]
            sources = [self._records[one] for one in each.sources if one in self._records]
            await changes.add_sources(new, (), sources)
            if upto := _upto(self._records, each.details.upto):
                await self._connection.execute("import_upto", self._id, new, upto)
            earlier = earlier_of.get(each.id, [])
            for old in earlier:
                await self._connection.execute(
                    "import_revision",
                    self._id,
                    new,
                    old.revision,
                    each.layer,
                    old.kind,
                    old.title,
                    old.content,
                    old.made_by,
                    old.replaced_at,
                )
            revision = 1 + max((old.revision for old in earlier), default=0)
            await self._connection.execute(
                "import_dates",
                self._id,
                new,
                each.created_at,
                each.updated_at,
                revision,
                each.used,
                each.used_at,
            )
        await changes.check_room("records")
        await changes.audit(actor, "import", f"{len(export.turns)} turns")
        await changes.announce()

    async def progress(self, export: Export, own: RelationshipSettings) -> None:
        progress = export.progress
        await self._connection.execute(
            "import_progress",
            self._id,
            msgspec.json.encode(own.user).decode(),
            _upto(self._turns, progress.noted),
            _upto(self._turns, progress.summarised),
            _upto(self._turns, progress.told),
            progress.dismissed,
            self._now,
            progress.salt,
            msgspec.json.encode(
                [
                    {
                        "layer": each.layer,
                        "turns": [self._turns[old] for old in each.turns if old in self._turns],
                    }
                    for each in progress.remade
                ]
            ).decode(),
            msgspec.json.encode(own.operator).decode(),
            _upto(self._turns, progress.stated or progress.noted),
            _upto(self._turns, progress.profiled or progress.stated or progress.noted),
        )
        await self._connection.announce(SettingsChanged(self._id))

    async def _one(self, name: str, *args: object) -> Any:
        row = await self._connection.row(name, *args)
        if row is None:
            raise Conflict("The file says something twice.")
        return row


def _upto(known: Mapping[str, int], old_id: str | int) -> int:
    """Return what the id of the file's last one up to another is here; 0 for none."""
    last = int(old_id)
    return max((new for old, new in known.items() if int(old) <= last), default=0)


def _exported(stored: str) -> ExportedDetails:
    details = msgspec.json.decode(stored, type=Details)
    known = msgspec.to_builtins(details)  # without what nothing is known of
    known |= {name: str(known[name]) for name in ("upto", "turn") if name in known}
    return msgspec.convert(known, ExportedDetails)


def _restored(details: ExportedDetails, turn: int) -> Details:
    """Return details as they are stored, but for what names a record by its id in the file."""
    return msgspec.convert(msgspec.to_builtins(details) | {"upto": 0, "turn": turn}, Details)
