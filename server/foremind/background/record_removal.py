"""Removing a record for good, so that no background work makes it again."""

from foremind.background.episodes import removal_keys
from foremind.background.extractive_summary import key_of
from foremind.background.profile import removal_key
from foremind.domain.errors import NotFound
from foremind.domain.record import Record
from foremind.memory.erase import Eraser, ErasureReceipt
from foremind.storage.curation_store import CurationStore
from foremind.storage.record_changes import digest_of
from foremind.storage.record_store import RecordStore


class RecordRemover:
    """Forgets records with what was made of them."""

    def __init__(self, records: RecordStore, due: CurationStore, forgetter: Eraser) -> None:
        self._records = records
        self._due = due
        self._forgetter = forgetter

    async def remove(self, relationship_id: int, actor: str, record_id: int) -> ErasureReceipt:
        """Remove a record and what was made of it.

        Raises:
            NotFound: the relationship has no such record.
        """
        record = await self._records.find(relationship_id, record_id)
        bond = await self._due.bond(relationship_id)
        if bond is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        if record.layer == "episodes":
            others = [
                each
                for each in await self._records.all(relationship_id)
                if each.layer == "episodes" and each.session_id == record.session_id
            ]
            alone = len(others) == 1
            keys = removal_keys(record.session_id, record.title, alone=alone)
        else:
            keys = [_key_of(record)]
        digests = [digest_of(bond.salt, record.layer, key) for key in keys if key]
        subject = f"{record.layer} {record.id}"
        return await self._forgetter.forget_record(
            relationship_id, record_id, subject, actor=actor, digests=digests
        )


def _key_of(record: Record) -> str:
    """Return by what background work knows a record that it would make again."""
    if record.layer == "topics":
        return key_of(record.title)
    if record.layer in ("scratchpad", "questions"):
        return record.content
    return removal_key(record) if record.layer == "profile" else record.title
