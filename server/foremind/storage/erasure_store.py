"""What erasure and retention find and change of a relationship, in one locked transaction."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol, Self, get_args
from uuid import UUID, uuid4

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import MemoriesForgotten, RelationshipDeleted
from foremind.domain.background_step import RULES_PLACE
from foremind.domain.companion_rules import KINDS
from foremind.domain.erasure_texts import RecordText, ShownState, TranscriptText
from foremind.domain.errors import NotFound
from foremind.domain.memory import Fact, MemoryText
from foremind.domain.record import Details, Status
from foremind.domain.relationship import ChangeSet
from foremind.domain.session_state import SessionState
from foremind.domain.settings.setting_definitions import ExpiringName
from foremind.domain.turn import ExchangeTurn, LastExchange
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.memory_store import decode_exchange_turn
from foremind.storage.record_store import delete_records, records_made_of
from foremind.storage.relationship_store import flags_json, state_of
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.storage.turn_store import is_stored, read_last_exchange
from foremind.storage.user_store import reset_user_without_data
from foremind.text.tokenization import pack_terms

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


# A notification holds at most 8,000 bytes. The ids only clear a cache that lasts two minutes.
_MAX_ANNOUNCED_TURNS = 400


class ErasureTransaction:
    """Erases turns, memories and records, and announces it."""

    def __init__(self, transaction: RelationshipTransaction, seen: ShownState) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._relationship_id = transaction.relationship_id
        #: The relationship's state; nothing is added to it while this transaction lasts.
        self.seen = seen

    @classmethod
    @asynccontextmanager
    async def begin(cls, database: Database, relationship_id: int) -> AsyncIterator[Self]:
        """Begin, and lock the relationship, so that nothing is ingested in it.

        Raises:
            NotFound: the relationship no longer exists.
        """
        async with RelationshipTransaction.begin(database, relationship_id) as transaction:
            row = await transaction.connection.row("erasure_state", relationship_id)
            yield cls(transaction, shown_state(row))

    @property
    def reader(self) -> ErasureReader:
        """A reader within this transaction."""
        return ErasureReader(self._connection, self._relationship_id)

    @property
    def connection(self) -> DatabaseConnection:
        """The connection, for what is stored in place of what is erased."""
        return self._connection

    async def delete_alternatives(self) -> None:
        """Delete the replies that do not stand: they may contain what is erased."""
        await self._connection.execute("delete_alternatives", self._relationship_id)

    async def memories_of_turns(self, turns: Collection[int]) -> set[int]:
        """Return the memories derived from turns."""
        return await self._ids("memories_of_turns", list(turns))

    async def remove(self, memories: Collection[int], turns: Collection[int], now: datetime) -> int:
        """Delete memories and the texts of turns; return how many turns had a text."""
        turn_ids = list(turns)
        await self.remove_memories(memories, turn_ids)
        row = await self._connection.row("erase_turns", self._relationship_id, turn_ids, now)
        return 0 if row is None else int(row["turns"])

    async def older_turns(self, before: datetime, limit: int) -> list[int]:
        """Return the oldest turns with a text from before a time, at most `limit`."""
        rows = await self._connection.rows("older_turns", self._relationship_id, before, limit)
        return [row["id"] for row in rows]

    async def older_memories(self, before: Mapping[ExpiringName, datetime], limit: int) -> set[int]:
        """Return memories that were last said before the time of their type, at most `limit`."""
        return await self._ids("older_memories", list(before), list(before.values()), limit)

    async def expire(self, turns: Collection[int], now: datetime) -> int:
        """Delete the texts of turns; those that became memories keep their vectors.

        Returns:
            How many turns had a text.
        """
        row = await self._connection.row("expire_turns", self._relationship_id, list(turns), now)
        return 0 if row is None else int(row["turns"])

    async def delete(self, turns: Collection[int]) -> tuple[set[int], int]:
        """Delete turns altogether, with their memories; return these, and the number of turns."""
        turn_ids = list(turns)
        memories = await self.memories_of_turns(turn_ids)
        await self.remove_memories(memories, turn_ids)
        await self._connection.execute("delete_turns", self._relationship_id, turn_ids)
        return memories, len(turn_ids)

    async def delete_relationship(self) -> dict[str, int]:
        """Delete the relationship itself; count it, its sessions and its audit entries."""
        row = await self._connection.row("delete_relationship", self._relationship_id)
        assert row is not None  # it is locked
        self._transaction.announce(RelationshipDeleted(self._relationship_id))
        return dict(row)

    async def first_turns(self, upto: int, limit: int) -> list[int]:
        """Return the oldest turns up to one, with or without a text, at most `limit`."""
        rows = await self._connection.rows("first_turns", self._relationship_id, upto, limit)
        return [row["id"] for row in rows]

    async def replies_after(self, turn_id: int) -> list[int]:
        """Return the companion's turns after one; they may be based on what is erased."""
        rows = await self._connection.rows("replies_after", self._relationship_id, turn_id)
        return [row["id"] for row in rows]

    async def reset_relationship(self) -> None:
        """Reset settings, digests and cursors to those of a new relationship."""
        await self._connection.execute("reset_relationship", self._relationship_id, uuid4())

    async def states_of_sessions(self) -> dict[UUID, SessionState]:
        """Return the states of all sessions, and lock them."""
        rows = await self._connection.rows("states_of_relationship", self._relationship_id)
        return {row["session_id"]: state_of(row) for row in rows}

    async def put_state(self, session_id: UUID, state: SessionState) -> None:
        """Replace a session's state."""
        await self._connection.execute(
            "put_state", self._relationship_id, session_id, state.task, flags_json(state)
        )

    async def delete_states(self) -> None:
        """Delete the states of all sessions."""
        await self._connection.execute("delete_states", self._relationship_id)

    async def delete_closed_sessions(self) -> None:
        """Delete closed sessions without turns; with the last one, reset the user's name."""
        await self._connection.execute("delete_closed_sessions", self._relationship_id)
        await reset_user_without_data(self._connection, self._relationship_id)

    async def derived_records(self, turns: Collection[int], records: Collection[int]) -> set[int]:
        """Return the records derived from turns or records, directly or indirectly."""
        return await records_made_of(self._connection, self._relationship_id, turns, records)

    async def every_record(self) -> set[int]:
        """Return the ids of all records."""
        return await self._ids("all_records")

    async def records_of_whole_history(self) -> set[int]:
        """Return core memory and inferred records: they are derived from the whole history."""
        return await self._ids("records_of_whole_history")

    async def record_texts(self, records: Collection[int]) -> list[RecordText]:
        """Return the texts of records, then those of their earlier revisions in order."""
        ids = list(records)
        present = await self._connection.rows("record_states", self._relationship_id, ids)
        earlier = await self._connection.rows("revisions_of_records", self._relationship_id, ids)
        return [*map(record_text, present), *map(revision_text, earlier)]

    async def remaining_sources(
        self, records: Collection[int], without: Collection[int]
    ) -> list[ChangeSet]:
        """Return, for each record, the turns it was derived from that remain `without` some."""
        rows = await self._connection.rows(
            "remaining_sources", self._relationship_id, list(records), list(without)
        )
        return [ChangeSet(row["layer"], tuple(row["turns"])) for row in rows]

    async def schedule_regeneration(self, change_sets: Sequence[ChangeSet]) -> None:
        """Schedule records to be regenerated from the turns that remain."""
        if change_sets:
            await self._connection.execute(
                "add_change_sets", self._relationship_id, msgspec.json.encode(change_sets).decode()
            )

    async def inherit_sources(self, records: Collection[int]) -> None:
        """Give what was derived from records the sources of these instead."""
        for record in records:
            await self._connection.execute("inherit_sources", self._relationship_id, [record])

    async def enqueue_ingest(self, turns: Collection[int], now: datetime) -> None:
        """Have turns ingested again once this transaction commits."""
        if turns:
            await self._connection.execute(
                "enqueue_turns", self._relationship_id, "ingest", sorted(turns), RULES_PLACE, now
            )

    async def repeating_turns(
        self, memories: Collection[int], without: Collection[int]
    ) -> set[int]:
        """Return the turns that repeat memories, except some."""
        return await self._ids("repeating_turns", list(memories), list(without))

    async def recompute_superseded(self, now: datetime, corrected: int | None = None) -> None:
        """Recompute which memories are superseded, after some were deleted or corrected."""
        if corrected is not None:
            await self._connection.execute(
                "clear_supersession",
                self._relationship_id,
                corrected,
                await self._transaction.memory_version(),
            )
        await self._connection.execute(
            "supersede_contradicted",
            self._relationship_id,
            await self._transaction.memory_version(),
            now,
        )

    async def replace_state_text(
        self,
        record_id: int,
        revision: int,
        content: str,
        now: datetime,
        vector: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Replace the text of a record, or of one of its revisions, without keeping the former.

        Args:
            vector: of the new text, if its layer is searched by meaning.
        """
        if revision:
            await self._connection.execute(
                "replace_revision_text", self._relationship_id, record_id, revision, content
            )
        else:
            await self._connection.execute(
                "replace_record_text",
                self._relationship_id,
                record_id,
                content,
                now,
                None if vector is None else HalfVector(vector),
            )

    async def delete_records(self, records: Collection[int]) -> dict[str, int]:
        """Delete records; return the number of each layer."""
        return await delete_records(self._connection, self._relationship_id, records)

    async def revert_record(
        self, record_id: int, revision: int, vector: npt.NDArray[np.float32] | None, now: datetime
    ) -> None:
        """Revert a record to an earlier revision, without keeping the later ones."""
        await self._connection.execute(
            "revert_record",
            self._relationship_id,
            record_id,
            revision,
            None if vector is None else HalfVector(vector),
            now,
        )

    async def delete_revisions(self, states: Collection[tuple[int, int]]) -> None:
        """Delete revisions, given as record and revision."""
        await self._connection.execute(
            "delete_some_revisions",
            self._relationship_id,
            [record for record, _ in states],
            [revision for _, revision in states],
        )

    async def detach_sources(self, records: Collection[int]) -> None:
        """Detach records from their sources: somebody wrote them."""
        await self._connection.execute(
            "detach_record_sources", self._relationship_id, list(records)
        )

    async def add_dismissed(self, digests: Collection[str]) -> None:
        """Add digests of what background work must not create again."""
        await self._connection.execute("add_dismissed", self._relationship_id, list(digests))

    async def schedule_rebuild(self, now: datetime, *, summary: bool) -> None:
        """Schedule the regeneration; with `summary`, that of the summary from the first turn."""
        await self._connection.execute("schedule_rebuild", self._relationship_id, now, summary)

    async def audit(self, actor: str, action: str, subject: str, now: datetime) -> None:
        """Add to the audit trail; `subject` never contains what was said."""
        await self._connection.execute(
            "add_audit", self._relationship_id, actor, action, subject, now
        )

    async def correct_memory(
        self,
        memory_id: int,
        turns: Collection[int],
        content: str,
        vector: npt.NDArray[np.float32],
    ) -> None:
        """Replace the text, and its unit vector, of a memory and its turns."""
        await self._connection.execute(
            "correct_memory",
            self._relationship_id,
            memory_id,
            list(turns),
            content,
            HalfVector(vector),
            await self._transaction.memory_version(),
        )

    async def replace_facts(self, memory_id: int, facts: Sequence[Fact]) -> None:
        """Replace the facts that a memory states."""
        await self._connection.execute("delete_facts", self._relationship_id, memory_id)
        await self._connection.execute(
            "insert_memory_facts",
            self._relationship_id,
            [memory_id] * len(facts),
            [fact.slot for fact in facts],
            [fact.value for fact in facts],
        )

    async def sessions_of_turns(
        self, turns: Collection[int]
    ) -> tuple[dict[UUID, list[int]], dict[int, UUID]]:
        """Return the sessions of some turns.

        Returns:
            The turns with a text or a memory of each session, in order; and the session of every
            turn in these sessions.
        """
        sessions: dict[UUID, list[int]] = {}
        session_of: dict[int, UUID] = {}
        for row in await self._connection.rows(
            "sessions_of_turns", self._relationship_id, list(turns)
        ):
            session_of[row["id"]] = row["session_id"]
            session = sessions.setdefault(row["session_id"], [])
            if row["says"]:
                session.append(row["id"])
        return sessions, session_of

    async def load_window_turns(self, turns: Collection[int]) -> dict[int, ExchangeTurn]:
        """Return turns by id, with vector and memory."""
        rows = await self._connection.rows("window_turns", self._relationship_id, list(turns))
        return {row["id"]: decode_exchange_turn(row) for row in rows}

    async def reembed_memories(self, texts: Mapping[int, MemoryText]) -> None:
        """Replace the vectors and terms of memories."""
        if not texts:
            return
        ids, relationship_id = list(texts), self._relationship_id
        terms = [
            (memory_id, term, frequency)
            for memory_id, text in texts.items()
            for term, frequency in text.terms.items()
        ]
        await self._connection.execute("delete_terms", relationship_id, ids)
        await self._connection.execute(
            "insert_terms",
            relationship_id,
            *([row[column] for row in terms] for column in range(3)),
        )
        await self._connection.execute(
            "reembed_memories",
            relationship_id,
            ids,
            [HalfVector(text.vector) for text in texts.values()],
            [text.length for text in texts.values()],
            [pack_terms(text.terms) for text in texts.values()],
            await self._transaction.memory_version(),
        )

    async def announce(
        self, turns: Collection[int], *, outdated: bool = False, since: int = 0
    ) -> None:
        """Announce the erasure when this transaction commits, and delete the prompts of replies.

        Work that began before is refused from then on, unless only `outdated` data was removed.

        Args:
            since: nothing was removed that was known before this turn; the prompts until then stay.
        """
        transaction = self._transaction
        raised = await self._connection.row(
            "raise_erasures", self._relationship_id, not outdated, since
        )
        assert raised is not None  # it is locked
        transaction.announce(
            MemoriesForgotten(
                self._relationship_id,
                await transaction.memory_version(),
                await transaction.layers_version(),
                raised["erasures"],
                tuple(sorted(turns)) if len(turns) <= _MAX_ANNOUNCED_TURNS else None,
                raised["removals"],
            )
        )

    async def drop_vectors_without_text(self, turns: Collection[int]) -> set[int]:
        """Delete the vectors of those turns that have neither a text nor a memory any more.

        Returns:
            These turns.
        """
        return await self._ids("drop_vectors_without_text", list(turns))

    async def remove_memories(self, memories: Collection[int], turns: Collection[int] = ()) -> None:
        """Delete memories, and the links from turns to memories."""
        ids, turn_ids = list(memories), list(turns)
        await self._connection.execute(
            "delete_memory_data",
            self._relationship_id,
            ids,
            turn_ids,
            await self._transaction.memory_version(),
        )
        await self._connection.execute(
            "delete_memory_sources", self._relationship_id, ids, turn_ids
        )
        await self._connection.execute("delete_memories", self._relationship_id, ids)

    async def _ids(self, name: str, *args: object) -> set[int]:
        rows = await self._connection.rows(name, self._relationship_id, *args)
        return {row["id"] for row in rows}
