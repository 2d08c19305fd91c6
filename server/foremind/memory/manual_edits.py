"""Manual edits: records written, changed and removed by users, developers and games."""

import asyncio
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import msgspec

from foremind.domain.clock import Clock
from foremind.domain.companion_rules import PROFILE_SLOTS
from foremind.domain.errors import Conflict, InvalidMessage, NotFound
from foremind.domain.record import (
    SINGLE_RECORD_LAYERS,
    STATUSES,
    VECTOR_SEARCHED_LAYERS,
    Details,
    MadeBy,
    NewRecord,
    Record,
    Status,
    of_layer,
    search_text,
)
from foremind.memory.erasure.eraser import Eraser, ErasureReceipt
from foremind.memory.profile import Slots, removal_key, replaced_by_manual
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.background_store import BackgroundStore
from foremind.storage.record_store import RecordStore, digest_of
from foremind.text.tokenization import terms_key, words_of


class RecordRemover:
    """Erases records together with everything that was made of them."""

    def __init__(
        self, records: RecordStore, background_store: BackgroundStore, eraser: Eraser
    ) -> None:
        self._records = records
        self._background_store = background_store
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
        relationship = await self._background_store.relationship_state(relationship_id, now)
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


_ATTEMPTS = 5  # to change a record that is being changed concurrently


class ManualEdit(msgspec.Struct, frozen=True):
    """Changes to a record; None keeps a field. `revision`: what it is based on, 0 for any."""

    content: str | None = None
    title: str | None = None
    kind: str | None = None
    status: Status | None = None
    revision: int = 0


class ManualEditor:
    """Writes records on behalf of an actor, and adds each edit to the audit trail."""

    def __init__(self, records: RecordStore, embedder: EmbeddingService, clock: Clock) -> None:
        self._records = records
        self._embedder = embedder
        self._clock = clock

    async def write(
        self,
        relationship_id: int,
        actor: str,
        record: NewRecord,
        slots: Slots = PROFILE_SLOTS,
    ) -> int:
        """Store a record, replacing that of a single-record layer or slot; return its id.

        Args:
            slots: the slots of the profile.

        Raises:
            TooLarge: the relationship's records would exceed their byte limit.
        """
        record = replace(
            record,
            kind=record.kind or ("stated" if record.layer == "profile" else ""),
            refs=tuple(" ".join(words_of(ref)) for ref in record.refs),
            details=Details(status="open" if record.layer == "questions" else ""),
        )
        record = await self._with_vector(record)
        replaced: list[int] = []
        if record.layer == "profile":
            entries = of_layer(await self._records.all(relationship_id), "profile")
            replaced = await asyncio.to_thread(replaced_by_manual, entries, record, slots)
        async with self._records.begin_changes(relationship_id, self._clock.now()) as changes:
            if record.layer in SINGLE_RECORD_LAYERS:
                replaced = list(await changes.records_in_layers([record.layer]))
            await changes.remove(replaced)
            if replaced:
                await changes.forget_prompts()
            record_id = await changes.add(record)
            await changes.check_total_size("content")
            await changes.audit(actor, "write", f"{record.layer} {record_id}")
        return record_id

    async def change(
        self, relationship_id: int, actor: str, record_id: int, change: ManualEdit, by: MadeBy
    ) -> None:
        """Change a record and re-embed it.

        Fields that the edit leaves out keep their latest value, even if changed concurrently.

        Raises:
            InvalidMessage: records of its layer have no such status.
            NotFound: the relationship has no such record.
            Conflict: the record has another revision than the edit is based on.
            TooLarge: the relationship's records would exceed their byte limit.
        """
        attempts = 1 if change.revision else _ATTEMPTS
        for attempt in range(1, attempts + 1):
            try:
                await self._change(relationship_id, actor, record_id, change, by)
            except Conflict:
                if attempt == attempts:
                    raise
            else:
                return

    async def _change(
        self, relationship_id: int, actor: str, record_id: int, change: ManualEdit, by: MadeBy
    ) -> None:
        before = await self._records.find(relationship_id, record_id)
        details = before.details
        if change.status is not None:
            _check_status(before, change.status)
            details = msgspec.structs.replace(details, status=change.status)
        new = NewRecord(
            layer=before.layer,
            kind=before.kind if change.kind is None else change.kind,
            title=before.title if change.title is None else change.title,
            content=before.content if change.content is None else change.content,
            refs=before.refs,
            details=details,
            made_by=by,
        )
        expected = change.revision or before.revision
        await self._store(relationship_id, actor, before, new, expected, "correct")

    async def restore(
        self, relationship_id: int, actor: str, record_id: int, revision: int
    ) -> None:
        """Restore an earlier revision of a record; the present one is kept in its history.

        Raises:
            NotFound: there is no such record, or no such earlier revision.
        """
        erasures = (await self._records.state(relationship_id)).erasures
        before = await self._records.find(relationship_id, record_id)
        revisions = await self._records.revisions(relationship_id, record_id)
        wanted = next((earlier for earlier in revisions if earlier.revision == revision), None)
        if wanted is None:
            raise NotFound("revision: expected one of the earlier revisions", param="revision")
        new = NewRecord(
            layer=before.layer,
            kind=wanted.kind,
            title=wanted.title,
            content=wanted.content,
            refs=before.refs,
            details=before.details,
            made_by=wanted.made_by,
        )
        await self._store(relationship_id, actor, before, new, before.revision, "restore", erasures)

    async def _store(
        self,
        relationship_id: int,
        actor: str,
        before: Record,
        new: NewRecord,
        expected: int,
        action: str,
        erasures: int | None = None,
    ) -> None:
        new = await self._with_vector(new)
        now = self._clock.now()
        async with self._records.begin_changes(relationship_id, now, erasures) as changes:
            await changes.change(before.id, new, expected)
            await changes.check_total_size("content")
            await changes.audit(actor, action, f"{before.layer} {before.id}")

    async def _with_vector(self, record: NewRecord) -> NewRecord:
        """Return the record with its vector, if its layer is searched by meaning."""
        if record.layer not in VECTOR_SEARCHED_LAYERS:
            return record
        text = search_text(record.title, record.content)
        return replace(record, vector=await self._embedder.embed_passage(text))


def _check_status(record: Record, status: Status) -> None:
    known = STATUSES.get(record.layer, ())
    if status not in known:
        expected = f"one of {', '.join(known)}" if known else f"none: {record.layer} have no status"
        raise InvalidMessage(f"status: expected {expected}", param="status")
