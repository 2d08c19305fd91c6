"""What one transaction changes of a relationship's records."""

import hashlib
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Self
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import LayersChanged, SummaryApplied
from foremind.domain.errors import Conflict, ModelMismatch, TooLarge
from foremind.domain.record import (
    MOST_RECORD_BYTES,
    MOST_REVISIONS,
    Cursor,
    Details,
    NewRecord,
    RecordLayer,
    within_limits,
)
from foremind.storage.database import Database, DatabaseConnection

_ADVANCE: dict[Cursor, str] = {
    "stated": "advance_stated",
    "profiled": "advance_profiled",
    "noted": "advance_noted",
    "summarised": "advance_summarised",
    "told": "advance_told",
}


class RecordChanges:
    """Adds, changes and removes records; every change of a text keeps the earlier one."""

    def __init__(
        self, connection: DatabaseConnection, relationship_id: int, fingerprint: str, now: datetime
    ) -> None:
        self.connection = connection
        self.relationship_id = relationship_id
        self._fingerprint = fingerprint
        self._now = now
        self._changed = False
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
        """Begin, under the relationship's lock; on leaving, what changed is announced.

        Args:
            erasures: how often something had been erased when what is to be written was read.

        Raises:
            Conflict: what a record was to be made of was removed meanwhile, or it was changed.
            StorageUnavailable: try again later; nothing was half done.
        """
        async with database.transaction(relationship_id) as connection:
            await connection.execute("lock_relationship", relationship_id)
            if erasures is not None:
                row = await connection.row("erasures_of", relationship_id)
                if row is None or row["erasures"] != erasures:
                    raise Conflict("Something was forgotten or corrected meanwhile.")
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
        record = within_limits(record)
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
        await self.add_sources(row["id"], record.turns, record.sources)
        self._changed = True
        return int(row["id"])

    async def change(self, record_id: int, into: NewRecord, expected: int = 0) -> None:
        """Change a record and keep what it was; what it was made of before stays noted.

        Args:
            expected: the revision that the change was made for, 0 for any.

        Raises:
            Conflict: the record has another revision by now, or is gone.
        """
        into = within_limits(into)
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
        await self.add_sources(record_id, into.turns, into.sources)
        self._changed = True

    async def check_room(self, param: str) -> None:
        """Make sure that the relationship's records take no more than they may.

        Raises:
            TooLarge: they do, and nothing of this transaction is to be kept; names `param`.
        """
        row = await self.connection.row("records_size", self.relationship_id)
        if row is not None and row["bytes"] > MOST_RECORD_BYTES:
            raise TooLarge(
                f"{param}: the records of a relationship take at most {MOST_RECORD_BYTES} bytes; "
                "remove some first",
                param=param,
            )

    async def touch(self, record_id: int, details: Details) -> None:
        """Change what is known beside a record's text."""
        await self.connection.execute(
            "touch_details", self.relationship_id, record_id, _json(details)
        )
        self._changed = True

    async def let_be_found(self, record_id: int, vector: npt.NDArray[np.float32]) -> None:
        """Give a record the vector that it is found by, where it has none."""
        await self.connection.execute(
            "let_record_be_found", self.relationship_id, record_id, _halfvec(vector)
        )
        self._changed = True

    async def remove(self, record_ids: Collection[int]) -> int:
        """Delete records with their earlier states; return how many there were.

        What was made of them is from now on made of what they were made of.
        """
        for record_id in record_ids:
            await self.connection.execute("hand_down_sources", self.relationship_id, [record_id])
        removed = await delete_records(self.connection, self.relationship_id, record_ids)
        self._changed |= bool(removed)
        return sum(removed.values())

    async def add_sources(
        self, record_id: int, turns: Collection[int], sources: Collection[int]
    ) -> None:
        """Note more turns and records that a record was made of."""
        if turns or sources:
            await self.connection.execute(
                "add_sources", self.relationship_id, record_id, list(turns), list(sources)
            )

    async def noted_again(self, portion: msgspec.Struct) -> None:
        """Note that notes were made again of a portion of turns."""
        written = msgspec.json.encode(portion).decode()
        await self.connection.execute("noted_again", self.relationship_id, written)

    async def of_layers(self, layers: Collection[RecordLayer]) -> set[int]:
        """Return the ids of all records in some layers."""
        rows = await self.connection.rows("records_of_layers", self.relationship_id, list(layers))
        return {row["id"] for row in rows}

    async def advance(self, cursor: Cursor, turn_id: int, after: int | None = None) -> None:
        """Note up to which turn a kind of work is done.

        Args:
            after: the turn up to which it was done when this began, None for any.

        Raises:
            Conflict: others went on from there meanwhile.
        """
        row = await self.connection.row(_ADVANCE[cursor], self.relationship_id, turn_id, after)
        if row is None:
            raise Conflict("Others have gone on with it meanwhile.")
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
        told = LayersChanged(self.relationship_id, version, self._summary)
        await self.connection.announce(told)


async def records_made_of(
    connection: DatabaseConnection,
    relationship_id: int,
    turns: Collection[int],
    records: Collection[int],
) -> set[int]:
    """Return the records that were made of turns or records, however far."""
    rows = await connection.rows("records_made_of", relationship_id, list(turns), list(records))
    return {row["id"] for row in rows}


async def delete_records(
    connection: DatabaseConnection, relationship_id: int, record_ids: Collection[int]
) -> dict[str, int]:
    """Delete records with their sources and earlier states; return how many of each layer."""
    ids = list(record_ids)
    for name in ("delete_record_sources", "delete_revisions"):
        await connection.execute(name, relationship_id, ids)
    rows = await connection.rows("delete_records", relationship_id, ids)
    return dict(Counter(row["layer"] for row in rows))


def digest_of(salt: UUID, layer: RecordLayer, key: str) -> str:
    """Return what is kept of a removed record, so that it is not made again.

    `salt` is the relationship's own: digests of two say nothing of each other.
    """
    told = f"{layer}:{key.casefold().strip()}".encode()
    return hmac.new(salt.bytes, told, hashlib.sha256).hexdigest()[:32]


def _json(details: Details) -> str:
    return msgspec.json.encode(details).decode()


def _halfvec(vector: npt.NDArray[np.float32] | None) -> HalfVector | None:
    return None if vector is None else HalfVector(vector)
