"""Export and import of a whole relationship, also between servers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import SettingsChanged
from foremind.domain.companion import CompanionSettings, RelationshipSettings
from foremind.domain.errors import Conflict, NotFound
from foremind.domain.export_file import (
    Export,
    ExportedChange,
    ExportedDetails,
    ExportedEntry,
    ExportedMemory,
    ExportedPortion,
    ExportedRecord,
    ExportedRevision,
    ExportedSession,
    ExportedTurn,
    Progress,
)
from foremind.domain.memory import Fact, MemoryText, Reason
from foremind.domain.record import Details, NewRecord
from foremind.domain.relationship import ChangeSet
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.memory_version import MemoryVersion
from foremind.storage.record_changes import RecordChanges
from foremind.storage.state_store import flags_json, state_of
from foremind.text.packed_terms import pack_words

Vector = npt.NDArray[np.float32]
Part = TypeVar("Part")

_BATCH_SIZE = 500  # rows converted at once, which takes some milliseconds


@dataclass(frozen=True, slots=True)
class CreatedRelationship:
    """What an import computed with this server's model, by the ids within the file.

    Vectors of turns' exact texts and of records are unit vectors, float32 [dimension]; `memories`
    are the searchable texts of memories, `facts` what they state. `expired` are turns without text
    that memories or records are derived from.
    """

    turns: Mapping[str, Vector]
    memories: Mapping[str, MemoryText]
    records: Mapping[str, Vector]
    facts: Mapping[str, Sequence[Fact]]
    expired: Collection[str]


class TransferStore:
    """Reads a whole relationship, or writes one into an empty one, in one transaction."""

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
        """Return everything that is stored; `user` is the name and the time zone."""
        async with self._database.transaction(relationship_id) as connection:
            # Nothing is erased or ingested meanwhile.
            await connection.execute("lock_relationship", relationship_id)

            async def read_all(name: str, convert: Callable[[Any], Part]) -> list[Part]:
                parts: list[Part] = []
                async for rows in connection.batches(name, _BATCH_SIZE, relationship_id):
                    parts.extend(map(convert, rows))
                return parts

            (row,) = await connection.rows("export_progress", relationship_id)
            progress = dict(row)
            shares_counts = progress.pop("shares_counts")
            remade = [
                ExportedPortion(change_set.layer, [str(turn) for turn in change_set.turns])
                for change_set in msgspec.json.decode(progress.pop("remade"), type=list[ChangeSet])
            ]
            return Export(
                companion=companion,
                user_name=user[0],
                time_zone=user[1],
                exported_at=now,
                settings=settings,
                sessions=await read_all("export_sessions", _session),
                turns=await read_all("export_turns", lambda row: ExportedTurn(**row)),
                memories=await read_all("export_memories", _memory),
                records=await read_all("export_records", _record),
                progress=Progress(**progress, remade=remade),
                revisions=await read_all("export_revisions", lambda row: ExportedRevision(**row)),
                changes=await read_all("export_changes", lambda row: ExportedChange(**row)),
                audit=await read_all("export_audit", lambda row: ExportedEntry(**row)),
                shares_counts=shares_counts,
            )

    async def write(
        self,
        user_id: str,
        companion_id: int,
        export: Export,
        own: RelationshipSettings,
        made: CreatedRelationship,
        actor: str,
        now: datetime,
    ) -> int:
        """Restore an export as a user's relationship with a companion; return its id.

        Args:
            own: the relationship's settings, limited to what the importing user may set.
            actor: the importing user, for the audit trail.

        Raises:
            Conflict: the relationship is not empty.
            TooLarge: the records exceed the limit of a relationship.
        """
        async with self._database.transaction() as connection:
            relationship = await connection.row(
                "ensure_relationship", user_id, export.user_name, export.time_zone, companion_id
            )
            if relationship is None:
                raise NotFound("companion: expected a known companion", param="companion")
            id_ = int(relationship["id"])
            await connection.scope_to(id_)
            await connection.execute("lock_relationship", id_)
            has_data = await connection.row("has_data", id_)
            if has_data is None or has_data[0]:
                raise Conflict("companion: expected one with whom nothing was said yet")
            writer = _ExportWriter(connection, id_, relationship["user_id"], self._fingerprint, now)
            await writer.sessions(export)
            await writer.turns(export, made)
            await writer.memories(export, made)
            await writer.records(export, made, actor)
            await writer.progress(export, own)
            await writer.expired(made)  # last: records cannot be derived from expired turns
            return id_


def _session(row: Any) -> ExportedSession:
    values = dict(row)
    state = None if values["task"] is None else state_of(values)
    del values["task"], values["flags"]
    return ExportedSession(**values, state=state)


def _memory(row: Any) -> ExportedMemory:
    reasons = msgspec.json.decode(row["reasons"], type=list[Reason])
    return ExportedMemory(**(dict(row) | {"reasons": reasons}))


def _record(row: Any) -> ExportedRecord:
    return ExportedRecord(**(dict(row) | {"details": _exported_details(row["details"])}))


class _ExportWriter:
    """Writes an export, giving everything new ids."""

    def __init__(
        self,
        connection: DatabaseConnection,
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
        # New ids by those in the file.
        self._sessions: dict[str, UUID] = {}
        self._turns: dict[str, int] = {}
        self._memories: dict[str, int] = {}
        self._records: dict[str, int] = {}

    async def sessions(self, export: Export) -> None:
        for session in export.sessions:
            row = await self._insert(
                "import_session", self._id, session.opened_at, session.active_at, session.closed_at
            )
            self._sessions[session.id] = row["id"]
            if session.state is not None and session.closed_at is None:
                await self._connection.execute(
                    "import_state",
                    self._id,
                    row["id"],
                    session.state.task,
                    flags_json(session.state),
                    self._now,
                )

    async def turns(self, export: Export, made: CreatedRelationship) -> None:
        for turn in export.turns:
            row = await self._insert_turn(turn, turn.message_id, made)
            if row is None:  # this user has used the message id with another companion
                row = await self._insert_turn(turn, f"{turn.message_id}~{self._id}", made)
            if row is None:
                raise Conflict("The file contains something twice.")
            self._turns[turn.id] = row["id"]

    async def expired(self, made: CreatedRelationship) -> None:
        turns = [self._turns[turn_id] for turn_id in made.expired]
        await self._connection.execute("import_expired", self._id, turns, self._now)

    async def memories(self, export: Export, made: CreatedRelationship) -> None:
        version = MemoryVersion(self._connection, self._id)
        for memory in export.memories:
            await self._insert_memory(memory, made, version)
        for memory in export.memories:
            superseded_by = (
                None if memory.superseded_by is None else self._memories.get(memory.superseded_by)
            )
            await self._connection.execute(
                "import_usage",
                self._id,
                self._memories[memory.id],
                memory.last_used_at,
                superseded_by,
                memory.created_at,
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

    async def records(self, export: Export, made: CreatedRelationship, actor: str) -> None:
        changes = RecordChanges(self._connection, self._id, self._fingerprint, self._now)
        for record in export.records:
            self._records[record.id] = await self._add_record(record, made, changes)
        revisions_of: dict[str, list[ExportedRevision]] = {}
        for revision in export.revisions:
            revisions_of.setdefault(revision.record, []).append(revision)
        # Sources last: a topic may be derived from episodes that follow it in the file.
        for record in export.records:
            await self._complete_record(record, revisions_of.get(record.id, []), changes)
        await changes.check_room("records")
        await changes.audit(actor, "import", f"{len(export.turns)} turns")
        await changes.announce()

    async def progress(self, export: Export, own: RelationshipSettings) -> None:
        progress = export.progress
        await self._connection.execute(
            "import_progress",
            self._id,
            msgspec.json.encode(own.user).decode(),
            _cursor(self._turns, progress.noted),
            _cursor(self._turns, progress.summarised),
            _cursor(self._turns, progress.told),
            progress.dismissed,
            self._now,
            progress.salt,
            msgspec.json.encode(
                [
                    {
                        "layer": change_set.layer,
                        "turns": [
                            self._turns[turn] for turn in change_set.turns if turn in self._turns
                        ],
                    }
                    for change_set in progress.remade
                ]
            ).decode(),
            msgspec.json.encode(own.operator).decode(),
            _cursor(self._turns, progress.stated or progress.noted),
            _cursor(self._turns, progress.profiled or progress.stated or progress.noted),
        )
        await self._connection.announce(SettingsChanged(self._id))

    async def _insert_turn(
        self, turn: ExportedTurn, message_id: str | None, made: CreatedRelationship
    ) -> Any:
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

    async def _insert_memory(
        self, memory: ExportedMemory, made: CreatedRelationship, version: MemoryVersion
    ) -> None:
        text = made.memories[memory.id]
        row = await self._insert(
            "insert_memory",
            self._id,
            memory.created_at,
            self._turns[memory.turn],
            memory.significance,
            text.length,
            memory.memory_type,
            memory.speaker,
            HalfVector(text.vector),
            memory.content,
            list(text.terms),
            list(text.terms.values()),
            self._fingerprint,
            msgspec.json.encode(memory.reasons).decode(),
            memory.happened_from,
            memory.happened_to,
            pack_words(text.terms),
            await version.stamp(),
        )
        self._memories[memory.id] = row["id"]
        for fact in made.facts.get(memory.id, ()):
            await self._connection.execute(
                "insert_memory_fact", self._id, row["id"], fact.slot, fact.value
            )
        for turn_id in memory.again:
            await self._connection.execute(
                "import_source", self._turns[turn_id], row["id"], self._id
            )

    async def _add_record(
        self, record: ExportedRecord, made: CreatedRelationship, changes: RecordChanges
    ) -> int:
        session_id = None if record.session is None else self._sessions.get(record.session)
        return await changes.add(
            NewRecord(
                layer=record.layer,
                kind=record.kind,
                title=record.title,
                content=record.content,
                refs=tuple(record.refs),
                details=_stored_details(record.details, _cursor(self._turns, record.details.turn)),
                made_by=record.made_by,
                vector=made.records.get(record.id),
                session_id=session_id,
                turns=tuple(self._turns[turn] for turn in record.turns if turn in self._turns),
            )
        )

    async def _complete_record(
        self,
        record: ExportedRecord,
        revisions: Sequence[ExportedRevision],
        changes: RecordChanges,
    ) -> None:
        """Add what refers to other records, the revisions and the dates."""
        record_id = self._records[record.id]
        sources = [self._records[source] for source in record.sources if source in self._records]
        await changes.add_sources(record_id, (), sources)
        if upto := _cursor(self._records, record.details.upto):
            await self._connection.execute("import_upto", self._id, record_id, upto)
        for revision in revisions:
            await self._connection.execute(
                "import_revision",
                self._id,
                record_id,
                revision.revision,
                record.layer,
                revision.kind,
                revision.title,
                revision.content,
                revision.made_by,
                revision.replaced_at,
            )
        await self._connection.execute(
            "import_dates",
            self._id,
            record_id,
            record.created_at,
            record.updated_at,
            1 + max((revision.revision for revision in revisions), default=0),
            record.used,
            record.used_at,
        )

    async def _insert(self, name: str, *args: object) -> Any:
        row = await self._connection.row(name, *args)
        if row is None:
            raise Conflict("The file contains something twice.")
        return row


def _cursor(new_ids: Mapping[str, int], old_id: str | int) -> int:
    """Return the new id of the last element up to an id in the file; 0 if there is none."""
    last = int(old_id)
    return max((new for old, new in new_ids.items() if int(old) <= last), default=0)


def _exported_details(stored: str) -> ExportedDetails:
    details = msgspec.json.decode(stored, type=Details)
    fields = msgspec.to_builtins(details)  # without defaults
    fields |= {name: str(fields[name]) for name in ("upto", "turn") if name in fields}
    return msgspec.convert(fields, ExportedDetails)


def _stored_details(details: ExportedDetails, turn: int) -> Details:
    """Return details for storage, except `upto`, which refers to another record of the file."""
    return msgspec.convert(msgspec.to_builtins(details) | {"upto": 0, "turn": turn}, Details)
