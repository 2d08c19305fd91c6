"""Reads a whole relationship for an export."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from foremind.domain.companion import CompanionSettings
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
from foremind.domain.memory import Reason
from foremind.domain.record import Details
from foremind.domain.relationship import ChangeSet
from foremind.storage.database import Database
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.storage.state_store import state_of

Part = TypeVar("Part")

_BATCH_SIZE = 500  # rows converted at once, which takes some milliseconds


async def read_export(
    database: Database,
    relationship_id: int,
    companion: str,
    user: tuple[str, str, str | None],
    settings: CompanionSettings,
    now: datetime,
) -> Export:
    """Return everything that is stored; `user` is name, time zone and language."""
    # Nothing is erased or ingested meanwhile.
    async with RelationshipTransaction.begin(database, relationship_id) as transaction:
        connection = transaction.connection

        async def read_all(name: str, convert: Callable[[Any], Part]) -> list[Part]:
            parts: list[Part] = []
            async for rows in connection.batches(name, _BATCH_SIZE, relationship_id):
                parts.extend(map(convert, rows))
            return parts

        (row,) = await connection.rows("export_progress", relationship_id)
        progress = dict(row)
        remade = [
            ExportedChangeSet(change_set.layer, [str(turn) for turn in change_set.turns])
            for change_set in msgspec.json.decode(progress.pop("remade"), type=list[ChangeSet])
        ]
        return Export(
            companion=companion,
            user_name=user[0],
            time_zone=user[1],
            language=user[2],
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
        )


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
