"""Reads records, revisions and the audit trail; changes go through `RecordChanges`."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from foremind.domain.errors import NotFound
from foremind.domain.record import (
    MAX_RECORDS,
    AuditEntry,
    Details,
    LayersState,
    Record,
    Revision,
    Use,
)
from foremind.storage.database import Database
from foremind.storage.record_changes import RecordChanges

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
    vector = values.pop("embedding")
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
