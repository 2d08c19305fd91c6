"""A relationship written out whole, and read back, also by another server."""

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

_PORTION = 500  # rows that are made parts of an export at once: some milliseconds


@dataclass(frozen=True, slots=True)
class CreatedRelationship:
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
                for each in msgspec.json.decode(progress.pop("remade"), type=list[ChangeSet])
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
        made: CreatedRelationship,
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
            writing = _ExportWriter(connection, bond["id"], bond["user_id"], self._fingerprint, now)
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
        self._sessions: dict[str, UUID] = {}
        self._turns: dict[str, int] = {}
        self._memories: dict[str, int] = {}
        self._records: dict[str, int] = {}

    async def sessions(self, export: Export) -> None:
        for session in export.sessions:
            row = await self._one(
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
            row = await self._turn(turn, turn.message_id, made)
            if row is None:  # this user used the id with another companion
                row = await self._turn(turn, f"{turn.message_id}~{self._id}", made)
            if row is None:
                raise Conflict("The file says something twice.")
            self._turns[turn.id] = row["id"]

    async def _turn(
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

    async def expired(self, made: CreatedRelationship) -> None:
        turns = [self._turns[each] for each in made.expired]
        await self._connection.execute("import_expired", self._id, turns, self._now)

    async def memories(self, export: Export, made: CreatedRelationship) -> None:
        version = MemoryVersion(self._connection, self._id)
        for memory in export.memories:
            text = made.memories[memory.id]
            row = await self._one(
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
                    "restate_fact", self._id, row["id"], fact.slot, fact.value
                )
            for again in memory.again:
                await self._connection.execute(
                    "import_source", self._turns[again], row["id"], self._id
                )
        for memory in export.memories:
            newer = (
                None if memory.superseded_by is None else self._memories.get(memory.superseded_by)
            )
            await self._connection.execute(
                "import_marks",
                self._id,
                self._memories[memory.id],
                memory.last_used_at,
                newer,
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
            new = await changes.add(
                NewRecord(
                    layer=record.layer,
                    kind=record.kind,
                    title=record.title,
                    content=record.content,
                    refs=tuple(record.refs),
                    details=_restored(record.details, _upto(self._turns, record.details.turn)),
                    made_by=record.made_by,
                    vector=made.records.get(record.id),
                    session_id=None
                    if record.session is None
                    else self._sessions.get(record.session),
                    turns=tuple(self._turns[turn] for turn in record.turns if turn in self._turns),
                )
            )
            self._records[record.id] = new
        # Records may be made of later ones: a topic that is written anew is made of new episodes.
        earlier_of: dict[str, list[ExportedRevision]] = {}
        for old in export.revisions:
            earlier_of.setdefault(old.record, []).append(old)
        for record in export.records:
            new = self._records[record.id]
            sources = [
                self._records[source] for source in record.sources if source in self._records
            ]
            await changes.add_sources(new, (), sources)
            if upto := _upto(self._records, record.details.upto):
                await self._connection.execute("import_upto", self._id, new, upto)
            earlier = earlier_of.get(record.id, [])
            for old in earlier:
                await self._connection.execute(
                    "import_revision",
                    self._id,
                    new,
                    old.revision,
                    record.layer,
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
                record.created_at,
                record.updated_at,
                revision,
                record.used,
                record.used_at,
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
