"""A relationship written out whole, and read back, also by another server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta
from pgvector import HalfVector

from foremind.companions import CompanionSettings
from foremind.errors import Conflict, NotFound
from foremind.storage.database import Connection, Database
from foremind.storage.packed_words import pack_words
from foremind.storage.record_changes import RecordChanges
from foremind.storage.records import Details, MadeBy, NewRecord, RecordLayer
from foremind.storage.remembering import MemoryText, Reason
from foremind.storage.turns import Speaker, Status

Vector = npt.NDArray[np.float32]
MemoryType = Literal["conversation", "observation", "event", "relationship"]
MessageId = Annotated[str, Meta(min_length=1, max_length=256)]  # one may be a copy's
UserName = Annotated[str, Meta(min_length=1, max_length=64)]
Share = Annotated[float, Meta(ge=0, le=1)]


class ExportedSession(msgspec.Struct, frozen=True):
    """A session; `id` is known only within the file."""

    id: str
    opened_at: datetime
    active_at: datetime
    closed_at: datetime | None


class ExportedTurn(msgspec.Struct, frozen=True):
    """Something that was said in a session; `reply_to` is the turn that it answers."""

    id: int
    session: str
    speaker: Speaker
    message_id: MessageId | None
    reply_to: int | None
    status: Status
    text: str
    said_at: datetime


class ExportedMemory(msgspec.Struct, frozen=True):
    """A memory of a turn, and of others that said it `again`."""

    id: int
    turn: int
    again: list[int]
    content: str
    speaker: Speaker
    memory_type: MemoryType
    significance: Share
    reasons: list[Reason]
    created_at: datetime
    happened_from: datetime | None
    happened_to: datetime | None
    last_used_at: datetime | None
    superseded_by: int | None


class ExportedRecord(msgspec.Struct, frozen=True):
    """A record of a layer, and the turns and records that it was made of."""

    id: int
    layer: RecordLayer
    kind: str
    title: str
    content: str
    refs: list[str]
    details: Details
    made_by: MadeBy
    session: str | None
    created_at: datetime
    updated_at: datetime
    turns: list[int]
    sources: list[int]


class Progress(msgspec.Struct, frozen=True):
    """Up to which turn each kind of background work is done, and what it may not make again."""

    noted: int = 0
    summarised: int = 0
    told: int = 0
    dismissed: list[str] = []


class Export(msgspec.Struct, frozen=True):
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
    format: Literal["foremind.relationship"] = "foremind.relationship"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class Made:
    """The vectors of an import, made by this server's model: by the ids within the file.

    Unit vectors, float32 [dimension]: of turns' exact texts, and of records; and what memories are
    found by.
    """

    turns: Mapping[int, Vector]
    memories: Mapping[int, MemoryText]
    records: Mapping[int, Vector]


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

            async def rows(name: str) -> Sequence[Any]:
                return await connection.rows(name, relationship_id)

            (progress,) = await rows("export_progress")
            return Export(
                companion=companion,
                user_name=user[0],
                time_zone=user[1],
                exported_at=now,
                settings=settings,
                sessions=[ExportedSession(**dict(row)) for row in await rows("export_sessions")],
                turns=[ExportedTurn(**dict(row)) for row in await rows("export_turns")],
                memories=[
                    ExportedMemory(
                        **(
                            dict(row)
                            | {"reasons": msgspec.json.decode(row["reasons"], type=list[Reason])}
                        )
                    )
                    for row in await rows("export_memories")
                ],
                records=[
                    ExportedRecord(
                        **(
                            dict(row)
                            | {"details": msgspec.json.decode(row["details"], type=Details)}
                        )
                    )
                    for row in await rows("export_records")
                ],
                progress=Progress(**dict(progress)),
            )

    async def write(
        self, user_id: str, companion_id: int, export: Export, made: Made, now: datetime
    ) -> int:
        """Restore an export as a user's relationship with a companion; return its id.

        Raises:
            Conflict: the relationship holds something already.
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
            await writing.records(export, made)
            await writing.progress(export)
            return int(bond["id"])


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
        self._turns: dict[int, int] = {}
        self._memories: dict[int, int] = {}
        self._records: dict[int, int] = {}

    async def sessions(self, export: Export) -> None:
        for each in export.sessions:
            row = await self._one(
                "import_session", self._id, each.opened_at, each.active_at, each.closed_at
            )
            self._sessions[each.id] = row["id"]

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
        )

    async def memories(self, export: Export, made: Made) -> None:
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
            )
            self._memories[each.id] = row["id"]
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
            )
        await self._connection.row("raise_memory_version", self._id)

    async def records(self, export: Export, made: Made) -> None:
        changes = RecordChanges(self._connection, self._id, self._fingerprint, self._now)
        for each in export.records:
            new = await changes.add(
                NewRecord(
                    layer=each.layer,
                    kind=each.kind,
                    title=each.title,
                    content=each.content,
                    refs=tuple(each.refs),
                    details=each.details,
                    made_by=each.made_by,
                    vector=made.records.get(each.id),
                    session_id=None if each.session is None else self._sessions.get(each.session),
                    turns=tuple(self._turns[turn] for turn in each.turns if turn in self._turns),
                    sources=tuple(
                        self._records[source] for source in each.sources if source in self._records
                    ),
                )
            )
            self._records[each.id] = new
            await self._connection.execute(
                "import_dates", self._id, new, each.created_at, each.updated_at
            )
        await changes.audit("user", "import", f"{len(export.turns)} turns")
        await changes.announce()

    async def progress(self, export: Export) -> None:
        def upto(turn_id: int) -> int:
            before = [new for old, new in self._turns.items() if old <= turn_id]
            return max(before, default=0)

        progress = export.progress
        await self._connection.execute(
            "import_progress",
            self._id,
            msgspec.json.encode(export.settings).decode(),
            upto(progress.noted),
            upto(progress.summarised),
            upto(progress.told),
            progress.dismissed,
            self._now,
        )

    async def _one(self, name: str, *args: object) -> Any:
        row = await self._connection.row(name, *args)
        if row is None:
            raise Conflict("The file says something twice.")
        return row
