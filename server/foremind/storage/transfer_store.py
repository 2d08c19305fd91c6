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
from foremind.domain.background_step import RULES_PLACE
from foremind.domain.errors import Conflict
from foremind.domain.export_file import (
    Export,
    ExportedChange,
    ExportedChangeSet,
    ExportedDetails,
    ExportedEntry,
    ExportedMemory,
    ExportedRecord,
    ExportedRevision,
    ExportedSession,
    ExportedTurn,
    Progress,
)
from foremind.domain.memory import Fact, MemoryText, NewMemory, Reason
from foremind.domain.policy import overlay_settings
from foremind.domain.record import Details, NewRecord
from foremind.domain.relationship import ChangeSet, Relationship, relationship_id_of
from foremind.domain.settings.settings import RelationshipSettings
from foremind.domain.user import User
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.memory_store import store_memories
from foremind.storage.record_store import RecordChanges
from foremind.storage.relationship_store import flags_json, state_of
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.storage.user_store import find_or_create_user

Part = TypeVar("Part")


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


def _exported_details(stored: str) -> ExportedDetails:
    details = msgspec.json.decode(stored, type=Details)
    fields = msgspec.to_builtins(details)  # without defaults
    fields |= {name: str(fields[name]) for name in ("upto", "turn") if name in fields}
    return msgspec.convert(fields, ExportedDetails)


Vector = npt.NDArray[np.float32]

_BATCH_SIZE = 500  # memories that one statement stores


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

    async def read(self, relationship: Relationship, now: datetime) -> Export:
        """Return everything that is stored of a relationship."""
        settings = relationship.settings
        # Nothing is erased or ingested meanwhile.
        async with RelationshipTransaction.begin(self._database, relationship.id) as transaction:
            connection = transaction.connection

            async def read_all(name: str, convert: Callable[[Any], Part]) -> list[Part]:
                parts: list[Part] = []
                async for rows in connection.batches(name, _BATCH_SIZE, relationship.id):
                    parts.extend(map(convert, rows))
                return parts

            (row,) = await connection.rows("export_progress", relationship.id)
            progress = dict(row)
            remade = [
                ExportedChangeSet(change_set.layer, [str(turn) for turn in change_set.turns])
                for change_set in msgspec.json.decode(progress.pop("remade"), type=list[ChangeSet])
            ]
            return Export(
                companion=relationship.companion,
                user_name=relationship.user_name,
                time_zone=relationship.time_zone,
                language=relationship.language,
                exported_at=now,
                settings=overlay_settings(settings.operator, settings.user),
                sessions=await read_all("export_sessions", _session),
                turns=await read_all("export_turns", lambda row: ExportedTurn(**row)),
                memories=await read_all("export_memories", _memory),
                records=await read_all("export_records", _record),
                progress=Progress(**progress, remade=remade),
                revisions=await read_all("export_revisions", lambda row: ExportedRevision(**row)),
                changes=await read_all("export_changes", lambda row: ExportedChange(**row)),
                audit=await read_all("export_audit", lambda row: ExportedEntry(**row)),
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
        program: str = "",
    ) -> int:
        """Restore an export as a user's relationship with a companion; return its id.

        Of an import that fails nothing remains; in a sharded database, the user may.

        Args:
            own: the relationship's settings, limited to what the importing user may set.
            actor: the importing user, for the audit trail.
            program: another one, if that has written what is imported: turns are then ingested
                as if they had been said here.

        Raises:
            Conflict: the relationship is not empty.
            TooLarge: the records exceed the limit of a relationship.
        """
        if self._database.sharded:  # which lets only one transaction at a time write users
            await self._check_empty(user_id, companion_id)
            await _find_or_create_user(self._database, user_id, export)
        async with self._database.transaction() as connection:
            user = await _find_or_create_user(connection, user_id, export)
            id_ = relationship_id_of(user.id, companion_id)
            await connection.execute("ensure_relationship", id_, user.id, companion_id)
            await connection.scope_to(id_)
            transaction = await RelationshipTransaction.lock(connection, id_)
            if await connection.row("data_of_relationship", id_) is not None:
                raise _not_empty()
            writer = _ExportWriter(transaction, user.id, self._fingerprint, now)
            await writer.sessions(export)
            await writer.turns(export, made)
            if program:
                await writer.enqueue()
            await writer.memories(export, made)
            await writer.records(export, made, actor, program)
            await writer.progress(export, own)
            await writer.expired(made)  # last: records cannot be derived from expired turns
            await transaction.finish()
            return id_

    async def _check_empty(self, user_id: str, companion_id: int) -> None:
        """Check, before anything of an import is stored, that a relationship is empty or new.

        Raises:
            Conflict: it is not.
        """
        row = await self._database.row("find_user", user_id)
        if row is None:
            return
        id_ = relationship_id_of(row["id"], companion_id)
        if await self._database.for_relationship(id_).row("data_of_relationship", id_) is not None:
            raise _not_empty()


async def _find_or_create_user(
    connection: Database | DatabaseConnection, user_id: str, export: Export
) -> User:
    return await find_or_create_user(
        connection, user_id, export.user_name, export.time_zone, export.language
    )


def _not_empty() -> Conflict:
    return Conflict("companion: expected one with whom nothing was said yet", param="companion")


class _ExportWriter:
    """Writes an export, giving everything new ids."""

    def __init__(
        self,
        transaction: RelationshipTransaction,
        user_id: int,
        fingerprint: str,
        now: datetime,
    ) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._id = transaction.relationship_id
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

    async def enqueue(self) -> None:
        turns = sorted(self._turns.values())
        await self._connection.execute(
            "enqueue_turns", self._id, "ingest", turns, RULES_PLACE, self._now
        )

    async def expired(self, made: CreatedRelationship) -> None:
        turns = [self._turns[turn_id] for turn_id in made.expired]
        await self._connection.execute("import_expired", self._id, turns, self._now)

    async def memories(self, export: Export, made: CreatedRelationship) -> None:
        for first in range(0, len(export.memories), _BATCH_SIZE):
            await self._insert_memories(export.memories[first : first + _BATCH_SIZE], made)
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
                await self._transaction.memory_version(),
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

    async def records(
        self, export: Export, made: CreatedRelationship, actor: str, program: str
    ) -> None:
        changes = RecordChanges(self._transaction, self._fingerprint, self._now)
        for record in export.records:
            self._records[record.id] = await self._add_record(record, made, changes)
        revisions_of: dict[str, list[ExportedRevision]] = {}
        for revision in export.revisions:
            revisions_of.setdefault(revision.record, []).append(revision)
        # Sources last: a topic may be derived from episodes that follow it in the file.
        for record in export.records:
            await self._complete_record(record, revisions_of.get(record.id, []), changes)
        await changes.check_total_size("records")
        await changes.audit(
            actor, "import", f"{len(export.turns)} turns" + (f" of {program}" if program else "")
        )
        await changes.finish()

    async def progress(self, export: Export, own: RelationshipSettings) -> None:
        progress = export.progress
        row = await self._connection.row(
            "import_progress",
            self._id,
            msgspec.json.encode(own.user).decode(),
            _cursor(self._turns, progress.noted),
            _cursor(self._turns, progress.summarised),
            _cursor(self._turns, progress.narrated),
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
        )
        assert row is not None  # it is locked
        self._connection.announce(SettingsChanged(self._id, row["version"]))

    async def _insert_turn(
        self, turn: ExportedTurn, message_id: str | None, made: CreatedRelationship
    ) -> Any:
        return await self._connection.row(
            "import_turn",
            self._id,
            None if turn.session is None else self._sessions[turn.session],
            self._user_id,
            turn.speaker,
            message_id,
            None if turn.reply_to is None else self._turns.get(turn.reply_to),
            turn.status,
            turn.text,
            turn.said_at,
            HalfVector(made.turns[turn.id]) if turn.id in made.turns else None,
            turn.kept,
            turn.event_id,
            turn.event_type,
        )

    async def _insert_memories(
        self, memories: Sequence[ExportedMemory], made: CreatedRelationship
    ) -> None:
        new = [
            NewMemory(
                turn_id=self._turns[memory.turn],
                created_at=memory.created_at,
                speaker=memory.speaker,
                content=memory.content,
                memory_type=memory.memory_type,
                significance=memory.significance,
                reasons=msgspec.json.encode(memory.reasons).decode(),
                text=made.memories[memory.id],
                happened=(
                    None
                    if memory.happened_from is None or memory.happened_to is None
                    else (memory.happened_from, memory.happened_to)
                ),
                facts=made.facts.get(memory.id, ()),
            )
            for memory in memories
        ]
        length = sum(memory.text.length for memory in new)
        stored = (await store_memories(self._transaction, self._fingerprint, new, {}, length)).ids
        self._memories |= {memory.id: stored[self._turns[memory.turn]] for memory in memories}
        for memory in memories:
            for turn_id in memory.again:
                await self._connection.execute(
                    "import_source", self._turns[turn_id], self._memories[memory.id], self._id
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


def _cursor(new_ids: Mapping[str, int], old_id: str) -> int:
    """Return the new id of the last element up to an id in the file; 0 if there is none."""
    last = int(old_id)
    return max((new for old, new in new_ids.items() if int(old) <= last), default=0)


def _stored_details(details: ExportedDetails, turn: int) -> Details:
    """Return details for storage, except `upto`, which refers to another record of the file."""
    return msgspec.convert(msgspec.to_builtins(details) | {"upto": 0, "turn": turn}, Details)
