"""What one transaction changes of a relationship's records."""

import hashlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.errors import Conflict, ModelMismatch
from foremind.storage.database import Connection, Database
from foremind.storage.records import (
    MOST_REVISIONS,
    Cursor,
    Details,
    LayersChanged,
    NewRecord,
    RecordLayer,
    SummaryApplied,
)

_ADVANCE: dict[Cursor, str] = {
    "noted": "advance_noted",
    "summarised": "advance_summarised",
    "told": "advance_told",
}


class RecordChanges:
    """Adds, changes and removes records; every change of a text keeps the earlier one."""

    def __init__(
        self, connection: Connection, relationship_id: int, fingerprint: str, now: datetime
    ) -> None:
        self.connection = connection
        self.relationship_id = relationship_id
        self._fingerprint = fingerprint
        self._now = now
        self._changed = False
        self._summary: SummaryApplied | None = None
        self._forgotten = False

    @classmethod
    @asynccontextmanager
    async def begin(
        cls, database: Database, relationship_id: int, fingerprint: str, now: datetime
    ) -> AsyncIterator[Self]:
        """Begin, under the relationship's lock; on leaving, what changed is announced.

        Raises:
            Conflict: what a record was to be made of was removed meanwhile, or it was changed.
            StorageUnavailable: try again later; nothing was half done.
        """
        async with database.transaction(relationship_id) as connection:
            await connection.execute("lock_relationship", relationship_id)
            changes = cls(connection, relationship_id, fingerprint, now)
            yield changes
            await changes.announce()

    async def check_turns(self, turn_ids: Collection[int]) -> None:
        """Make sure that nothing is made of turns that were forgotten meanwhile.

        Raises:
            Conflict: some were.
        """
        row = await self.connection.row("missing_turns", self.relationship_id, list(turn_ids))
        if row is not None and row["count"]:
            raise Conflict("Some of what was said was forgotten meanwhile.")

    async def add(self, record: NewRecord) -> int:
        """Store a record and return its id.

        Raises:
            Conflict: it was made of turns that were forgotten meanwhile.
            ModelMismatch: its vector is not of the model this store belongs to.
        """
        await self.check_turns(record.turns)
        row = await self.connection.row(
            "insert_record",
            self.relationship_id,
            record.layer,
            record.kind,
            record.title,
            record.content,
            list(record.refs),
            _json(record.details),
            _halfvec(record.vector),
            record.made_by,
            record.session_id,
            record.told_at or self._now,
            self._fingerprint,
        )
        if row is None:
            raise ModelMismatch("The store was given to another embedding model meanwhile.")
        await self._add_sources(row["id"], record)
        self._changed = True
        return int(row["id"])

    async def change(self, record_id: int, into: NewRecord, expected: int = 0) -> None:
        """Change a record and keep what it was; what it was made of before stays noted.

        Args:
            expected: the revision that the change was made for, 0 for any.

        Raises:
            Conflict: the record has another revision by now, or is gone.
        """
        await self.check_turns(into.turns)
        await self.connection.execute("keep_revision", self.relationship_id, record_id, self._now)
        row = await self.connection.row(
            "update_record",
            self.relationship_id,
            record_id,
            into.kind,
            into.title,
            into.content,
            list(into.refs),
            _json(into.details),
            _halfvec(into.vector),
            into.made_by,
            self._now,
            expected,
        )
        if row is None:
            raise Conflict("The record was changed meanwhile: read it again.", param="revision")
        await self.connection.execute(
            "drop_old_revisions", self.relationship_id, record_id, MOST_REVISIONS
        )
        await self._add_sources(record_id, into)
        self._changed = True

    async def touch(self, record_id: int, details: Details) -> None:
        """Change what is known beside a record's text."""
        await self.connection.execute(
            "touch_details", self.relationship_id, record_id, _json(details)
        )
        self._changed = True

    async def remove(self, record_ids: Collection[int]) -> int:
        """Delete records with their earlier states; return how many there were."""
        removed = await delete_records(self.connection, self.relationship_id, record_ids)
        self._changed |= removed > 0
        return removed

    async def made_of(self, turns: Collection[int], records: Collection[int]) -> set[int]:
        """Return the records that were made of turns or records, however far, or quote them."""
        return await records_made_of(self.connection, self.relationship_id, turns, records)

    async def of_layers(self, layers: Collection[RecordLayer]) -> set[int]:
        """Return the ids of all records in some layers."""
        rows = await self.connection.rows("records_of_layers", self.relationship_id, list(layers))
        return {row["id"] for row in rows}

    async def forget(self, record_ids: Collection[int], layer: RecordLayer, key: str) -> int:
        """Delete records for good; return how many there were.

        No background work makes one of this layer and key again; what it said is not kept.
        """
        self._forgotten = True
        if key:
            digest = digest_of(layer, key)
            await self.connection.execute("dismiss", self.relationship_id, [digest])
        return await self.remove(record_ids)

    async def advance(self, cursor: Cursor, turn_id: int) -> None:
        """Note up to which turn a kind of work is done."""
        await self.connection.execute(_ADVANCE[cursor], self.relationship_id, turn_id)
        self._changed |= cursor == "summarised"

    async def audit(self, actor: str, action: str, subject: str) -> None:
        """Add to the audit trail; `subject` names a layer and an id, never a text."""
        await self.connection.execute(
            "add_audit", self.relationship_id, actor, action, subject, self._now
        )

    def summarised(self, applied: SummaryApplied) -> None:
        """Have it announced that turns were summarised."""
        self._summary = applied

    async def announce(self) -> None:
        """Tell every process, once this transaction commits, if anything changed."""
        if not self._changed:
            return
        row = await self.connection.row("raise_layers_version", self.relationship_id)
        version = 0 if row is None else row["layers_version"]
        told = LayersChanged(self.relationship_id, version, self._summary, self._forgotten)
        await self.connection.announce(told)

    async def _add_sources(self, record_id: int, record: NewRecord) -> None:
        if record.turns or record.sources:
            await self.connection.execute(
                "add_sources",
                self.relationship_id,
                record_id,
                list(record.turns),
                list(record.sources),
            )


async def records_made_of(
    connection: Connection,
    relationship_id: int,
    turns: Collection[int],
    records: Collection[int],
) -> set[int]:
    """Return the records that were made of turns or records, however far, or quote the turns."""
    said = list(turns)
    rows = [
        *await connection.rows("records_made_of", relationship_id, said, list(records)),
        *await connection.rows("records_quoting", relationship_id, said),
    ]
    return {row["id"] for row in rows}


async def delete_records(
    connection: Connection, relationship_id: int, record_ids: Collection[int]
) -> int:
    """Delete records with their sources and earlier states; return how many there were."""
    ids = list(record_ids)
    for name in ("delete_record_sources", "delete_revisions"):
        await connection.execute(name, relationship_id, ids)
    return len(await connection.rows("delete_records", relationship_id, ids))


def digest_of(layer: RecordLayer, key: str) -> str:
    """Return what is kept of a removed record, so that it is not made again."""
    return hashlib.sha256(f"{layer}:{key.casefold().strip()}".encode()).hexdigest()[:32]


def _json(details: Details) -> str:
    return msgspec.json.encode(details).decode()


def _halfvec(vector: npt.NDArray[np.float32] | None) -> HalfVector | None:
    return None if vector is None else HalfVector(vector)
