"""Removes a record permanently, so that background work does not make it again."""

from datetime import datetime
from uuid import UUID

from foremind.domain.errors import NotFound
from foremind.domain.record import Record
from foremind.memory.erase import Eraser
from foremind.memory.erasure_request import ErasureReceipt
from foremind.memory.profile import removal_key
from foremind.storage.curation_store import CurationStore
from foremind.storage.record_changes import digest_of
from foremind.storage.record_store import RecordStore
from foremind.text.tokenization import terms_key


class RecordRemover:
    """Erases records together with everything that was made of them."""

    def __init__(self, records: RecordStore, curation_store: CurationStore, eraser: Eraser) -> None:
        self._records = records
        self._curation_store = curation_store
        self._eraser = eraser

    async def remove(
        self, relationship_id: int, actor: str, record_id: int, now: datetime
    ) -> ErasureReceipt:
        """Erase a record and everything that was made of it.

        Args:
            actor: who is named in the audit trail.

        Raises:
            NotFound: the relationship has no such record.
        """
        record = await self._records.find(relationship_id, record_id)
        relationship = await self._curation_store.relationship_state(relationship_id, now)
        if relationship is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        if record.layer == "episodes":
            of_session = [
                episode
                for episode in await self._records.all(relationship_id)
                if episode.layer == "episodes" and episode.session_id == record.session_id
            ]
            only_one = len(of_session) == 1
            keys = episode_keys(record.session_id, record.title, only_one=only_one)
        else:
            keys = [_removal_key(record)]
        digests = [digest_of(relationship.salt, record.layer, key) for key in keys if key]
        subject = f"{record.layer} {record.id}"
        return await self._eraser.erase_record(
            relationship_id, record_id, subject, actor=actor, digests=digests
        )


def episode_keys(session_id: UUID | None, title: str, *, only_one: bool) -> list[str]:
    """Return the keys by which a removed episode is recognised, so that it stays removed.

    Args:
        only_one: it is the only remaining episode of its session.
    """
    return [f"{session_id} {terms_key(title)}", *([f"{session_id}"] if only_one else [])]


def _removal_key(record: Record) -> str:
    """Return the key by which background work recognises a removed record."""
    if record.layer == "topics":
        return terms_key(record.title)
    if record.layer in ("scratchpad", "questions"):
        return record.content
    return removal_key(record) if record.layer == "profile" else record.title
