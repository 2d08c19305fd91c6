"""Removing a record for good, so that no background work makes it again."""

from foremind.curation.extract import key_of
from foremind.curation.profile import removal_key
from foremind.errors import NotFound
from foremind.memory.forget import Forgetter, Receipt
from foremind.storage.curation import CurationStore
from foremind.storage.record_changes import digest_of
from foremind.storage.record_store import RecordStore
from foremind.storage.records import Record


class Remover:
    """Forgets records with what was made of them."""

    def __init__(self, records: RecordStore, due: CurationStore, forgetter: Forgetter) -> None:
        self._records = records
        self._due = due
        self._forgetter = forgetter

    async def remove(self, relationship_id: int, actor: str, record_id: int) -> Receipt:
        """Remove a record and what was made of it.

        Raises:
            NotFound: the relationship has no such record.
        """
        record = await self._records.find(relationship_id, record_id)
        bond = await self._due.bond(relationship_id)
        if bond is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        key = _key_of(record)
        digest = digest_of(bond.salt, record.layer, key) if key else None
        subject = f"{record.layer} {record.id}"
        return await self._forgetter.forget_record(
            relationship_id, record_id, subject, actor=actor, digest=digest
        )


def _key_of(record: Record) -> str:
    """Return by what background work knows a record that it would make again."""
    if record.layer == "topics":
        return key_of(record.title)
    if record.layer == "scratchpad":
        return record.content
    return removal_key(record) if record.layer == "profile" else record.title
