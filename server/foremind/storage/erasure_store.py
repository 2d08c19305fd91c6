"""What forgetting reads of a relationship, and changes in one transaction under its lock."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol, Self, get_args
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import MemoriesForgotten
from foremind.domain.companion import KINDS
from foremind.domain.erasure import RecordText, ShownState, TranscriptText
from foremind.domain.errors import NotFound
from foremind.domain.memory import Fact, MemoryText
from foremind.domain.record import Details, Status
from foremind.domain.relationship import ChangeSet
from foremind.domain.session_state import SessionState
from foremind.domain.turn import ExchangeTurn
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.ingest_store import exchange_turn
from foremind.storage.job_queue import REMEMBER_TURN
from foremind.storage.memory_version import MemoryVersion
from foremind.storage.record_changes import delete_records, records_made_of
from foremind.storage.state_store import flags_json, state_of
from foremind.text.packed_terms import pack_words

_PORTION = 500  # rows that are read at once
# A notification holds at most 8,000 bytes. The ids only empty a cache that lasts two minutes.
_ANNOUNCED_TURNS = 400

#: Kinds of records that say where one came from, and nothing of what is in it.
_KINDS = frozenset({*KINDS, "stated", "inferred"})
_STATUSES = frozenset(get_args(Status))


class QueryRunner(Protocol):
    """Runs named queries that see one relationship."""

    async def rows(self, name: str, *args: object) -> Sequence[Any]:
        """Return the rows of a query."""

    async def row(self, name: str, *args: object) -> Any:
        """Return the first row of a query."""


class ErasureReader:
    """Reads what was said and recorded in a relationship, some at a time."""

    def __init__(self, data: QueryRunner, relationship_id: int) -> None:
        self._data = data
        self._relationship_id = relationship_id

    async def state(self) -> ShownState:
        """Return how far the relationship has come.

        Raises:
            NotFound: it is gone.
        """
        return _state(await self._data.row("forgetting_state", self._relationship_id))

    async def turns(self) -> AsyncIterator[list[TranscriptText]]:
        """Yield the turns that still say something, some at a time."""
        async for rows in self._pages("said_texts"):
            yield [TranscriptText(**dict(row)) for row in rows]

    async def records(self) -> AsyncIterator[list[RecordText]]:
        """Yield what records say, then what they said earlier, some at a time."""
        async for rows in self._pages("record_texts"):
            yield [_record_text(row) for row in rows]
        async for rows in self._pages("revision_texts"):
            yield [_revision_text(row) for row in rows]

    async def of_memories(self, memories: Collection[int]) -> set[int]:
        """Return the turns that memories were made of."""
        rows = await self._data.rows("turns_behind_memories", self._relationship_id, list(memories))
        return {row["id"] for row in rows}

    async def of_session(self, session_id: str) -> set[int]:
        """Return the turns of a session, those included that say nothing any more."""
        rows = await self._data.rows("turns_of_session", self._relationship_id, session_id)
        return {row["id"] for row in rows}

    async def _pages(self, name: str) -> AsyncIterator[Sequence[Any]]:
        after = 0
        while rows := await self._data.rows(name, self._relationship_id, after, _PORTION):
            yield rows
            after = rows[-1]["id"]


class ErasureTransaction:
    """Removes what says something, and what was made of it, and announces that."""

    def __init__(
        self, connection: DatabaseConnection, relationship_id: int, seen: ShownState
    ) -> None:
        self._connection = connection
        self._relationship_id = relationship_id
        self._version = MemoryVersion(connection, relationship_id)
        #: How far the relationship has come; nothing is added while this transaction lasts.
        self.seen = seen

    @classmethod
    @asynccontextmanager
    async def begin(cls, database: Database, relationship_id: int) -> AsyncIterator[Self]:
        """Begin; nothing of the relationship is remembered meanwhile.

        Raises:
            NotFound: the relationship is gone.
        """
        async with database.transaction(relationship_id) as connection:
            seen = _state(await connection.row("lock_for_forgetting", relationship_id))
            yield cls(connection, relationship_id, seen)

    @property
    def reader(self) -> ErasureReader:
        """Reads within this transaction."""
        return ErasureReader(self._connection, self._relationship_id)

    async def memories_behind(self, turns: Collection[int]) -> set[int]:
        """Return the memories that were made of turns."""
        return await self._ids("memories_behind_turns", list(turns))

    async def remove(self, memories: Collection[int], turns: Collection[int], now: datetime) -> int:
        """Remove memories, and the texts of turns; return how many turns had one."""
        ids, turn_ids = list(memories), list(turns)
        await self._remove_memories(ids, turn_ids)
        row = await self._connection.row("empty_turns", self._relationship_id, turn_ids, now)
        return 0 if row is None else int(row["turns"])

    async def older_turns(self, before: datetime, limit: int) -> list[int]:
        """Return the first turns with a text that were said before a time, at most `limit`."""
        rows = await self._connection.rows("turns_older", self._relationship_id, before, limit)
        return [row["id"] for row in rows]

    async def older_memories(self, memory_type: str, before: datetime, limit: int) -> set[int]:
        """Return memories of a type that were last said before a time, at most `limit`."""
        return await self._ids("memories_of_type", memory_type, before, limit)

    async def expire(self, turns: Collection[int], now: datetime) -> int:
        """Remove the texts of turns; those that became memories keep their vectors."""
        row = await self._connection.row("expire_turns", self._relationship_id, list(turns), now)
        return 0 if row is None else int(row["turns"])

    async def delete(self, turns: Collection[int]) -> tuple[set[int], int]:
        """Delete turns as if they had never been; return their memories and how many were left."""
        turn_ids = list(turns)
        memories = await self.memories_behind(turn_ids)
        await self._remove_memories(list(memories), turn_ids)
        await self._connection.execute("delete_turns", self._relationship_id, turn_ids)
        return memories, len(turn_ids)

    async def first_turns(self, upto: int, limit: int) -> list[int]:
        """Return the first turns, also those without text, at most `limit`, up to one."""
        rows = await self._connection.rows("some_turns", self._relationship_id, upto, limit)
        return [row["id"] for row in rows]

    async def replies_after(self, turn_id: int) -> list[int]:
        """Return the companion's turns after one: what they were made of may be going."""
        rows = await self._connection.rows("replies_after", self._relationship_id, turn_id)
        return [row["id"] for row in rows]

    async def begin_anew(self) -> None:
        """Take settings, digests and cursors back to those of a new relationship."""
        await self._connection.execute("begin_anew", self._relationship_id)

    async def states_of_sessions(self) -> dict[UUID, SessionState]:
        """Return what goes on in sessions; nobody else changes it meanwhile."""
        rows = await self._connection.rows("states_of_relationship", self._relationship_id)
        return {row["session_id"]: state_of(row) for row in rows}

    async def put_state(self, session_id: UUID, state: SessionState) -> None:
        """Put what is left of a session's state in its place."""
        await self._connection.execute(
            "put_state", self._relationship_id, session_id, state.task, flags_json(state)
        )

    async def delete_states(self) -> None:
        """Delete what goes on in sessions."""
        await self._connection.execute("delete_states", self._relationship_id)

    async def delete_closed_sessions(self) -> None:
        """Delete sessions that are over and of which nothing is left; after the last, the name."""
        await self._connection.execute("delete_closed_sessions", self._relationship_id)
        await self._connection.execute("forget_name", self._relationship_id)

    async def made_of(self, turns: Collection[int], records: Collection[int]) -> set[int]:
        """Return the records that were made of turns or records, however far."""
        return await records_made_of(self._connection, self._relationship_id, turns, records)

    async def every_record(self) -> set[int]:
        """Return every record."""
        return await self._ids("every_record")

    async def written_from(self, records: Collection[int]) -> set[int]:
        """Return the topics that are written from some records."""
        return await self._ids("topics_written_from", list(records))

    async def made_of_everything(self) -> set[int]:
        """Return the hot context and what is inferred: they are made of all there is."""
        return await self._ids("made_of_everything")

    async def states(self, records: Collection[int]) -> list[RecordText]:
        """Return what records say, and what they said earlier, in order."""
        ids = list(records)
        now = await self._connection.rows("states_of_records", self._relationship_id, ids)
        before = await self._connection.rows("revisions_of_records", self._relationship_id, ids)
        return [*map(_record_text, now), *map(_revision_text, before)]

    async def sources_left(
        self, records: Collection[int], without: Collection[int]
    ) -> list[ChangeSet]:
        """Return, for each of some records, which turns it was made of are left."""
        rows = await self._connection.rows(
            "sources_left", self._relationship_id, list(records), list(without)
        )
        return [ChangeSet(row["layer"], tuple(row["turns"])) for row in rows]

    async def make_again(self, portions: Sequence[ChangeSet]) -> None:
        """Have records made again of what is left of what some were made of."""
        if portions:
            await self._connection.execute(
                "note_again", self._relationship_id, msgspec.json.encode(portions).decode()
            )

    async def hand_down(self, records: Collection[int]) -> None:
        """Let what was made of records be made of what these were made of."""
        for record in records:
            await self._connection.execute("hand_down_sources", self._relationship_id, [record])

    async def remember_again(self, turns: Collection[int]) -> None:
        """Have turns judged anew, once this transaction commits."""
        for turn in sorted(turns):
            await self._connection.execute("enqueue", REMEMBER_TURN, self._relationship_id, turn)

    async def said_again(self, memories: Collection[int], without: Collection[int]) -> set[int]:
        """Return the turns that said again what memories say, but for some."""
        return await self._ids("said_again", list(memories), list(without))

    async def settle_facts(self, now: datetime, corrected: int | None = None) -> None:
        """Decide anew which memories no longer hold, now that some of them went or changed."""
        if corrected is not None:
            await self._connection.execute(
                "unsettle", self._relationship_id, corrected, await self._version.stamp()
            )
        await self._connection.execute(
            "settle_facts", self._relationship_id, await self._version.stamp(), now
        )

    async def say_in_state(
        self, record_id: int, revision: int, content: str, now: datetime
    ) -> None:
        """Let a state of a record say something else, as if it had never said more."""
        if revision:
            await self._connection.execute(
                "say_in_revision", self._relationship_id, record_id, revision, content
            )
        else:
            await self._connection.execute(
                "say_in_record", self._relationship_id, record_id, content, now
            )

    async def delete_records(self, records: Collection[int]) -> dict[str, int]:
        """Delete records; return how many of each layer."""
        return await delete_records(self._connection, self._relationship_id, records)

    async def take_back(
        self, record_id: int, revision: int, vector: npt.NDArray[np.float32] | None, now: datetime
    ) -> None:
        """Let an earlier state of a record hold again, as if no later one had been."""
        await self._connection.execute(
            "back_to_revision",
            self._relationship_id,
            record_id,
            revision,
            None if vector is None else HalfVector(vector),
            now,
        )

    async def forget_states(self, states: Collection[tuple[int, int]]) -> None:
        """Delete earlier states: record and revision."""
        await self._connection.execute(
            "delete_some_revisions",
            self._relationship_id,
            [record for record, _ in states],
            [revision for _, revision in states],
        )

    async def untie(self, records: Collection[int]) -> None:
        """Let records be made of nothing: somebody wrote them."""
        await self._connection.execute("untie_records", self._relationship_id, list(records))

    async def dismiss(self, digests: Collection[str]) -> None:
        """Note the digests of what no background work may make again."""
        await self._connection.execute("dismiss", self._relationship_id, list(digests))

    async def rebuild(self, now: datetime, *, summary: bool) -> None:
        """Have what is to be made again made soon; with `summary`, that from its beginning."""
        await self._connection.execute("curate_again", self._relationship_id, now, summary)

    async def audit(self, actor: str, action: str, subject: str, now: datetime) -> None:
        """Note what was done; `subject` never holds what was said."""
        await self._connection.execute(
            "add_audit", self._relationship_id, actor, action, subject, now
        )

    async def say_instead(
        self,
        memory_id: int,
        turns: Collection[int],
        content: str,
        vector: npt.NDArray[np.float32],
    ) -> None:
        """Put other words, and their unit vector, in the place of a memory's and its turns'."""
        await self._connection.execute(
            "say_instead",
            self._relationship_id,
            memory_id,
            list(turns),
            content,
            HalfVector(vector),
            await self._version.stamp(),
        )

    async def state_anew(self, memory_id: int, facts: Sequence[Fact]) -> None:
        """Note what a memory states now."""
        await self._connection.execute("unstate_facts", self._relationship_id, memory_id)
        for fact in facts:
            await self._connection.execute(
                "restate_fact", self._relationship_id, memory_id, fact.slot, fact.value
            )

    async def exchanges(
        self, turns: Collection[int]
    ) -> tuple[dict[UUID, list[int]], dict[int, UUID]]:
        """Return what says something in the sessions of some turns, in order, and their sessions.

        That is, turns by session, and the session of every turn in these.
        """
        lines: dict[UUID, list[int]] = {}
        session_of: dict[int, UUID] = {}
        for row in await self._connection.rows(
            "exchanges_of_turns", self._relationship_id, list(turns)
        ):
            session_of[row["id"]] = row["session_id"]
            line = lines.setdefault(row["session_id"], [])
            if row["says"]:
                line.append(row["id"])
        return lines, session_of

    async def exchange_turns(self, turns: Collection[int]) -> dict[int, ExchangeTurn]:
        """Return turns with vector and memory, by id."""
        rows = await self._connection.rows("exchange_turns", self._relationship_id, list(turns))
        return {row["id"]: exchange_turn(row) for row in rows}

    async def rewrite(self, texts: Mapping[int, MemoryText]) -> None:
        """Give memories other texts, and no word of those before."""
        if not texts:
            return
        ids, whose = list(texts), self._relationship_id
        words = [
            (memory_id, term, frequency)
            for memory_id, text in texts.items()
            for term, frequency in text.terms.items()
        ]
        await self._connection.execute("forget_words", whose, ids)
        await self._connection.execute(
            "write_words", whose, *([word[part] for word in words] for part in range(3))
        )
        await self._connection.execute(
            "rewrite_memories",
            whose,
            ids,
            [HalfVector(text.vector) for text in texts.values()],
            [text.length for text in texts.values()],
            [pack_words(text.terms) for text in texts.values()],
            await self._version.stamp(),
        )

    async def announce(self, turns: Collection[int], *, outdated: bool = False) -> None:
        """Tell every process, once this transaction commits.

        What began before is refused from then on, unless what went was only `outdated`.
        """
        row = await self._connection.row(
            "raise_erasures", self._relationship_id, 0 if outdated else 1
        )
        if row is not None:
            few = tuple(sorted(turns)) if len(turns) <= _ANNOUNCED_TURNS else None
            told = MemoriesForgotten(
                self._relationship_id, await self._version.stamp(), turn_ids=few, **dict(row)
            )
            await self._connection.announce(told)

    async def _remove_memories(self, ids: list[int], turn_ids: list[int]) -> None:
        await self._connection.execute(
            "forget_memories", self._relationship_id, ids, turn_ids, await self._version.stamp()
        )
        await self._connection.execute("delete_sources", self._relationship_id, ids, turn_ids)
        await self._connection.execute("delete_memories", self._relationship_id, ids)

    async def _ids(self, name: str, *args: object) -> set[int]:
        rows = await self._connection.rows(name, self._relationship_id, *args)
        return {row["id"] for row in rows}


def _state(row: Any) -> ShownState:
    if row is None:
        raise NotFound("id: expected the id of a relationship", param="id")
    return ShownState(**dict(row))


def _record_text(row: Any) -> RecordText:
    """Read a row of what a record says."""
    known = msgspec.json.decode(row["details"], type=Details)
    named = [] if row["kind"] in _KINDS else [row["kind"]]
    named += [] if known.status in _STATUSES else [known.status]
    lists = (known.questions, known.conclusions, known.open_questions, known.topics)
    listed = [text for list_ in lists for text in list_]
    parts = (row["title"], row["content"], *row["refs"], *named, *listed)
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


def _revision_text(row: Any) -> RecordText:
    """Read a row of what a record said earlier."""
    named = [] if row["kind"] in _KINDS else [row["kind"]]
    text = "\n".join(each for each in (*named, row["title"], row["content"]) if each)
    return RecordText(
        row["id"],
        row["revision"],
        row["made_by"],
        text,
        row["title"],
        row["content"],
        kind=row["kind"],
    )
