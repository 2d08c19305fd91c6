"""What erasure reads of a relationship: its transcript and records, in batches."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Protocol, get_args
from uuid import UUID

import msgspec

from foremind.domain.companion import KINDS
from foremind.domain.erasure import RecordText, ShownState, TranscriptText
from foremind.domain.errors import NotFound
from foremind.domain.exchange import LastExchange
from foremind.domain.record import Details, Status
from foremind.storage.exchange_store import is_stored, read_last_exchange

_BATCH_SIZE = 500  # rows per query

#: Kinds that say where a record came from, and nothing about its content.
_NEUTRAL_KINDS = frozenset({*KINDS, "stated", "inferred"})
_STATUSES = frozenset(get_args(Status))


class QueryRunner(Protocol):
    """Runs named queries on the rows of one relationship."""

    async def rows(self, name: str, *args: object) -> Sequence[Any]:
        """Run a named query and return its rows."""

    async def row(self, name: str, *args: object) -> Any:
        """Run a named query and return its first row."""


class ErasureReader:
    """Reads the transcript and the records of a relationship, in batches."""

    def __init__(self, data: QueryRunner, relationship_id: int) -> None:
        self._data = data
        self._relationship_id = relationship_id

    async def state(self) -> ShownState:
        """Return the relationship's versions and cursors, by which later changes are noticed.

        Raises:
            NotFound: it no longer exists.
        """
        return shown_state(await self._data.row("erasure_state", self._relationship_id))

    async def turns(self) -> AsyncIterator[list[TranscriptText]]:
        """Yield batches of the turns that have a text or a memory."""
        async for rows in self._pages("transcript_texts"):
            yield [TranscriptText(**dict(row)) for row in rows]

    async def records(self) -> AsyncIterator[list[RecordText]]:
        """Yield batches of the records' texts, then of those of their earlier revisions."""
        async for rows in self._pages("record_texts"):
            yield [record_text(row) for row in rows]
        async for rows in self._pages("revision_texts"):
            yield [revision_text(row) for row in rows]

    async def turns_of_memories(self, memories: Collection[int]) -> set[int]:
        """Return the turns that memories were derived from."""
        rows = await self._data.rows("turns_of_memories", self._relationship_id, list(memories))
        return {row["id"] for row in rows}

    async def last_exchange(self, session_id: UUID) -> LastExchange | None:
        """Return the last exchange of a session; None if there is none."""
        return await read_last_exchange(self._data, self._relationship_id, session_id)

    async def knows_message(self, user_id: int, message_id: str) -> bool:
        """Return whether a message id is used."""
        return await is_stored(self._data, self._relationship_id, user_id, message_id)

    async def turns_of_session(self, session_id: str) -> set[int]:
        """Return the turns of a session, including those without a text."""
        rows = await self._data.rows("turns_of_session", self._relationship_id, session_id)
        return {row["id"] for row in rows}

    async def _pages(self, name: str) -> AsyncIterator[Sequence[Any]]:
        after = 0
        while rows := await self._data.rows(name, self._relationship_id, after, _BATCH_SIZE):
            yield rows
            after = rows[-1]["id"]


def shown_state(row: Any) -> ShownState:
    """Decode a row of `erasure_state`.

    Raises:
        NotFound: there is no such row.
    """
    if row is None:
        raise NotFound("id: expected the id of a relationship", param="id")
    return ShownState(**dict(row))


def record_text(row: Any) -> RecordText:
    """Decode a row of `record_texts`."""
    details = msgspec.json.decode(row["details"], type=Details)
    labels = [] if row["kind"] in _NEUTRAL_KINDS else [row["kind"]]
    labels += [] if details.status in _STATUSES else [details.status]
    lists = (details.questions, details.conclusions, details.open_questions, details.topics)
    items = [text for list_ in lists for text in list_]
    parts = (row["title"], row["content"], *row["refs"], *labels, *items)
    return RecordText(
        row["id"],
        0,
        row["made_by"],
        "\n".join(part for part in parts if part),
        row["title"],
        row["content"],
        row["layer"],
        row["kind"],
        frozenset(row["turns"]),
    )


def revision_text(row: Any) -> RecordText:
    """Decode a row of `revision_texts`."""
    labels = [] if row["kind"] in _NEUTRAL_KINDS else [row["kind"]]
    text = "\n".join(part for part in (*labels, row["title"], row["content"]) if part)
    return RecordText(
        row["id"],
        row["revision"],
        row["made_by"],
        text,
        row["title"],
        row["content"],
        kind=row["kind"],
    )
