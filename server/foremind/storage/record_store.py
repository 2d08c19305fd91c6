"""A relationship's records: read with their revisions, and changed within one transaction."""

import hashlib
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import LayersChanged, SummaryApplied
from foremind.domain.errors import Conflict, ModelMismatch, NotFound, TooLarge
from foremind.domain.record import (
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    MAX_REVISIONS,
    AuditEntry,
    Cursor,
    Details,
    LayersState,
    NewRecord,
    Record,
    RecordLayer,
    Revision,
    Use,
    truncate_to_limits,
)
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.relationship_transaction import RelationshipTransaction

_CURSORS: tuple[Cursor, ...] = ("stated", "noted", "summarised", "narrated")
_GONE = "Some of the turns were erased meanwhile."


class RecordChanges:
    """Adds, changes and removes records; a changed text is kept as a revision."""

    def __init__(
        self, transaction: RelationshipTransaction, fingerprint: str, now: datetime
    ) -> None:
        self._transaction = transaction
        self.connection = transaction.connection
        self.relationship_id = transaction.relationship_id
        self._fingerprint = fingerprint
        self._now = now
        self._changed = False
        # Where cursors are moved to, and where they were when the work began, None for anywhere.
        self._cursors: dict[Cursor, tuple[int, int | None]] = {}
        self._summary: SummaryApplied | None = None

    @classmethod
    @asynccontextmanager
    async def begin(
        cls,
        database: Database,
        relationship_id: int,
        fingerprint: str,
        now: datetime,
        erasures: int | None,
    ) -> AsyncIterator[Self]:
        """Begin under the relationship's lock; on leaving, announce changes.

        Args:
            erasures: the number of erasures when the sources were read; None skips the check.

        Raises:
            Conflict: sources were erased or a record was changed meanwhile.
            NotFound: there is no such relationship.
            StorageUnavailable: nothing was changed; try again later.
        """
        async with RelationshipTransaction.begin(
            database, relationship_id, erasures=erasures
        ) as transaction:
            changes = cls(transaction, fingerprint, now)
            yield changes
            await changes.finish()

    async def forget_prompts(self) -> None:
        """Delete the prompts of replies: what somebody wrote over was perhaps in them."""
        await self.connection.execute("delete_prompts", self.relationship_id)

    async def add(self, record: NewRecord) -> int:
        """Store a record and return its id.

        Raises:
            Conflict: it is derived from turns that were erased meanwhile.
            ModelMismatch: the store belongs to another embedding model.
        """
        record = truncate_to_limits(record)
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
            record.occurred_at or self._now,
            self._fingerprint,
            *_columns(record.turns, record.sources),
        )
        assert row is not None
        if row["gone"]:
            raise Conflict(_GONE)
        if row["id"] is None:
            raise ModelMismatch("The store belongs to another embedding model by now.")
        self._changed = True
        return int(row["id"])

    async def change(self, record_id: int, into: NewRecord, expected: int = 0) -> None:
        """Change a record; keep the former state as a revision, and its sources.

        Args:
            expected: the revision that the change is based on, 0 for any.

        Raises:
            Conflict: the record has another revision, or no longer exists.
        """
        into = truncate_to_limits(into)
        row = await self.connection.row(
            "change_record",
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
            *_columns(into.turns, into.sources),
            MAX_REVISIONS,
        )
        assert row is not None
        if row["gone"]:
            raise Conflict(_GONE)
        if row["revision"] is None:
            raise Conflict("The record was changed meanwhile: read it again.", param="revision")
        self._changed = True

    async def check_total_size(self, param: str) -> None:
        """Check the total size of the relationship's records.

        Raises:
            TooLarge: it exceeds the limit, and the transaction must be rolled back; names `param`.
        """
        row = await self.connection.row("records_size", self.relationship_id)
        if row is not None and row["bytes"] > MAX_RECORD_BYTES:
            raise TooLarge(
                f"{param}: the records of a relationship take at most {MAX_RECORD_BYTES} bytes; "
                "remove some first",
                param=param,
            )

    async def update_details(self, record_id: int, details: Details) -> None:
        """Replace a record's details, without a new revision."""
        await self.connection.execute(
            "update_details", self.relationship_id, record_id, _json(details)
        )
        self._changed = True

    async def remove(self, record_ids: Collection[int]) -> int:
        """Delete records with their revisions; return how many there were.

        What was derived from them inherits their sources.
        """
        for record_id in record_ids:
            await self.connection.execute("inherit_sources", self.relationship_id, [record_id])
        removed = await delete_records(self.connection, self.relationship_id, record_ids)
        self._changed |= bool(removed)
        return sum(removed.values())

    async def add_sources(
        self, record_id: int, turns: Collection[int], sources: Collection[int]
    ) -> None:
        """Add turns and records that a record is derived from, which date it."""
        if turns or sources:
            await self.connection.execute(
                "add_sources", self.relationship_id, record_id, *_columns(turns, sources)
            )
            self._changed = True

    async def remove_change_set(self, change_set: msgspec.Struct) -> None:
        """Remove a change set whose records were regenerated."""
        encoded = msgspec.json.encode(change_set).decode()
        await self.connection.execute("remove_change_set", self.relationship_id, encoded)

    async def records_in_layers(self, layers: Collection[RecordLayer]) -> set[int]:
        """Return the ids of all records of some layers."""
        rows = await self.connection.rows("records_of_layers", self.relationship_id, list(layers))
        return {row["id"] for row in rows}

    def advance(self, cursor: Cursor, turn_id: int, after: int | None = None) -> None:
        """Advance a cursor to a turn when this transaction commits.

        That is refused (Conflict) if the cursor was moved meanwhile.

        Args:
            after: where the cursor was when the work began, None for anywhere.
        """
        self._cursors[cursor] = (turn_id, after)
        self._changed |= cursor == "summarised"

    async def audit(self, actor: str, action: str, subject: str) -> None:
        """Add to the audit trail; `subject` names a layer and an id, never text."""
        await self.connection.execute(
            "add_audit", self.relationship_id, actor, action, subject, self._now
        )

    def summarised(self, applied: SummaryApplied) -> None:
        """Include a summary of turns in the announcement."""
        self._summary = applied

    async def finish(self) -> None:
        """Advance cursors, and announce the changes, if there are any, when this commits.

        Raises:
            Conflict: a cursor was moved meanwhile.
        """
        if not self._cursors and not self._changed:
            return
        moves = [self._cursors.get(cursor, (None, None)) for cursor in _CURSORS]
        row = await self.connection.row(
            "advance_cursors",
            self.relationship_id,
            *(to for to, _ in moves),
            *(after for _, after in moves),
            int(self._changed and self._transaction.raised_layers_version is None),
        )
        if row is None:
            raise Conflict("A cursor was advanced meanwhile.")
        if self._changed:
            self._transaction.raised_layers_version = row["version"]
            self._transaction.announce(
                LayersChanged(self.relationship_id, row["version"], self._summary)
            )


async def records_made_of(
    connection: DatabaseConnection,
    relationship_id: int,
    turns: Collection[int],
    records: Collection[int],
) -> set[int]:
    """Return the records derived from turns or records, directly or indirectly."""
    rows = await connection.rows("derived_records", relationship_id, list(turns), list(records))
    return {row["id"] for row in rows}


async def delete_records(
    connection: DatabaseConnection, relationship_id: int, record_ids: Collection[int]
) -> dict[str, int]:
    """Delete records with their sources and revisions; return the number of each layer."""
    rows = await connection.rows("delete_records", relationship_id, list(record_ids))
    return dict(Counter(row["layer"] for row in rows))


def digest_of(salt: UUID, layer: RecordLayer, key: str) -> str:
    """Return the digest of a removed record, by which it is recognised if it is written again.

    `salt` is the relationship's own, so that digests of two cannot be compared.
    """
    message = f"{layer}:{key.casefold().strip()}".encode()
    return hmac.new(salt.bytes, message, hashlib.sha256).hexdigest()[:32]


def _columns(
    turns: Collection[int], sources: Collection[int]
) -> tuple[list[int | None], list[int | None]]:
    """Return sources as two columns: of each, the turn or the record, the other being None."""
    return [*turns, *[None] * len(sources)], [*[None] * len(turns), *sources]


def _json(details: Details) -> str:
    return msgspec.json.encode(details).decode()


def _halfvec(vector: npt.NDArray[np.float32] | None) -> HalfVector | None:
    return None if vector is None else HalfVector(vector)


_STATE = [field.name for field in fields(LayersState)]


class RecordStore:
    """Reads records of one relationship at a time, and begins changes to them."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    async def state(self, relationship_id: int) -> LayersState:
        """Return the layers' state."""
        row = await self._database.row("layers_state", relationship_id)
        if row is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        return LayersState(**dict(row))

    async def all(self, relationship_id: int) -> list[Record]:
        """Return the newest records, at most `MAX_RECORDS`, oldest first."""
        return [record for _, record in await self._read(relationship_id) if record is not None]

    async def layers(self, relationship_id: int) -> tuple[LayersState, list[Record]]:
        """Return the layers' state, and the records that `all` returns, of one moment.

        Raises:
            NotFound: there is no such relationship.
        """
        rows = await self._read(relationship_id)
        if not rows:
            raise NotFound("id: expected the id of a relationship", param="id")
        return rows[0][0], [record for _, record in rows if record is not None]

    async def find(self, relationship_id: int, record_id: int) -> Record:
        """Return one record.

        Raises:
            NotFound: the relationship has no record with that id.
        """
        row = await self._database.for_relationship(relationship_id).row(
            "find_record", relationship_id, record_id
        )
        if row is None:
            raise NotFound("record: expected the id of a record here", param="record")
        return _record(dict(row))

    async def add_uses(self, relationship_id: int, uses: Sequence[Use]) -> None:
        """Count uses of records in prompts; records that no longer exist are ignored.

        Raises:
            StorageUnavailable: nothing was counted.
        """
        await self._database.for_relationship(relationship_id).execute(
            "add_uses",
            relationship_id,
            [use.record_id for use in uses],
            [use.times for use in uses],
            [use.last for use in uses],
        )

    async def revisions(self, relationship_id: int, record_id: int) -> list[Revision]:
        """Return the revisions of a record, oldest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "revisions_of_record", relationship_id, record_id
        )
        return [Revision(**dict(row)) for row in rows]

    async def history(self, relationship_id: int) -> dict[int, list[Revision]]:
        """Return the revisions of all records by record id, oldest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "revisions_of_relationship", relationship_id
        )
        revisions: dict[int, list[Revision]] = {}
        for row in rows:
            values = dict(row)
            revisions.setdefault(values.pop("record_id"), []).append(Revision(**values))
        return revisions

    async def audit(self, relationship_id: int, after: int, limit: int) -> list[AuditEntry]:
        """Return at most `limit` entries of the audit trail after a cursor."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "audit_of_relationship", relationship_id, after, limit
        )
        return [AuditEntry(**dict(row)) for row in rows]

    async def add_audit_entry(
        self, relationship_id: int, actor: str, action: str, subject: str, now: datetime
    ) -> None:
        """Add an access to the audit trail."""
        await self._database.for_relationship(relationship_id).execute(
            "add_audit", relationship_id, actor, action, subject, now
        )

    async def _read(self, relationship_id: int) -> list[tuple[LayersState, Record | None]]:
        rows = await self._database.for_relationship(relationship_id).rows(
            "records_of_relationship", relationship_id, MAX_RECORDS
        )
        return [_layers_row(row) for row in rows]

    def begin_changes(
        self, relationship_id: int, now: datetime, erasures: int | None = None
    ) -> AbstractAsyncContextManager[RecordChanges]:
        """Begin a transaction that changes records under the relationship's lock.

        `erasures` is the number of erasures when the sources were read: if something was erased
        or corrected since, the change is refused (Conflict).
        """
        return RecordChanges.begin(
            self._database, relationship_id, self._fingerprint, now, erasures
        )


def _layers_row(row: Any) -> tuple[LayersState, Record | None]:
    values = dict(row)
    state = LayersState(**{name: values.pop(name) for name in _STATE})
    return state, None if values["id"] is None else _record(values)


def _record(values: dict[str, Any]) -> Record:
    vector = values.pop("vector")
    return Record(
        **(
            values
            | {
                "refs": tuple(values["refs"]),
                "details": msgspec.json.decode(values["details"], type=Details),
                "vector": None if vector is None else np.asarray(vector.to_numpy(), np.float32),
            }
        )
    )
