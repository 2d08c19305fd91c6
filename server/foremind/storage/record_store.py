"""Reads records, and begins their changes; always within one relationship."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from foremind.domain.errors import NotFound
from foremind.domain.record import (
    MOST_RECORDS,
    AuditEntry,
    Details,
    LayersState,
    Record,
    Revision,
    Use,
)
from foremind.storage.database import Database
from foremind.storage.record_changes import RecordChanges


class RecordStore:
    """Reads records, and begins their changes; always within one relationship."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    async def state(self, relationship_id: int) -> LayersState:
        """Return the version that records read after this call have at least."""
        row = await self._database.row("layers_state", relationship_id)
        if row is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        return LayersState(**dict(row))

    async def all(self, relationship_id: int) -> list[Record]:
        """Return the newest records, at most `MOST_RECORDS`, oldest first."""
        rows = await self._database.of(relationship_id).rows(
            "records_of_relationship", relationship_id, MOST_RECORDS
        )
        return [_record(row) for row in rows]

    async def find(self, relationship_id: int, record_id: int) -> Record:
        """Return one record.

        Raises:
            NotFound: the relationship has none of that id.
        """
        for each in await self.all(relationship_id):
            if each.id == record_id:
                return each
        raise NotFound("record: expected the id of a record here", param="record")

    async def used(self, relationship_id: int, uses: Sequence[Use]) -> None:
        """Note that records stood in prompts; those that are gone by now are passed over.

        Raises:
            StorageUnavailable: nothing was noted.
        """
        await self._database.of(relationship_id).execute(
            "note_uses",
            relationship_id,
            [use.record_id for use in uses],
            [use.times for use in uses],
            [use.last for use in uses],
        )

    async def revisions(self, relationship_id: int, record_id: int) -> list[Revision]:
        """Return the earlier states of a record, oldest first."""
        rows = await self._database.of(relationship_id).rows(
            "revisions_of_record", relationship_id, record_id
        )
        return [Revision(**dict(row)) for row in rows]

    async def history(self, relationship_id: int) -> dict[int, list[Revision]]:
        """Return the earlier states of all records, by record, oldest first."""
        rows = await self._database.of(relationship_id).rows(
            "revisions_of_relationship", relationship_id
        )
        found: dict[int, list[Revision]] = {}
        for row in rows:
            values = dict(row)
            found.setdefault(values.pop("record_id"), []).append(Revision(**values))
        return found

    async def audit(self, relationship_id: int, after: int, limit: int) -> list[AuditEntry]:
        """Return at most `limit` entries of the audit trail after one of them."""
        rows = await self._database.of(relationship_id).rows(
            "audit_of_relationship", relationship_id, after, limit
        )
        return [AuditEntry(**dict(row)) for row in rows]

    async def note(
        self, relationship_id: int, actor: str, action: str, subject: str, now: datetime
    ) -> None:
        """Note in the audit trail that somebody looked at something."""
        await self._database.of(relationship_id).execute(
            "add_audit", relationship_id, actor, action, subject, now
        )

    async def others_with_topics(self, relationship_id: int) -> dict[str, int]:
        """Count, by folded title, other users who have a topic too; nothing else is told of them.

        Only where the companion's owner and each user agreed, and from three on.
        """
        async with self._database.transaction(relationship_id) as connection:
            await connection.counting()
            rows = await connection.rows("others_with_topics", relationship_id)
        return {row["title"]: row["others"] for row in rows}

    def changing(
        self, relationship_id: int, now: datetime, erasures: int | None = None
    ) -> AbstractAsyncContextManager[RecordChanges]:
        """Change records in one transaction under the relationship's lock, then announce it.

        Where `erasures` tells when what is to be written was read, it is refused (Conflict) if
        something was forgotten or corrected since.
        """
        return RecordChanges.begin(
            self._database, relationship_id, self._fingerprint, now, erasures
        )


def _record(row: Any) -> Record:
    values = dict(row)
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
