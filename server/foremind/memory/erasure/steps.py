"""What erasure and correction share: finding all that contains something, and removing it."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial

from foremind.domain.erasure_texts import RecordText, TranscriptText
from foremind.domain.memory import MemoryText
from foremind.domain.record import VECTOR_SEARCHED_LAYERS, search_text
from foremind.domain.session_state import NO_STATE
from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.memory.contextual_embedding import WINDOW_RADIUS, Vector, contextual_text
from foremind.memory.erasure.records import (
    RecordOutcome,
    change_sets_to_regenerate,
    decide_outcome,
    regenerated_layers,
    remaining_state,
)
from foremind.memory.erasure.scope import NOTHING, ErasedContent, RelationshipTexts
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureReader, ErasureTransaction
from foremind.text.mentions import Mention
from foremind.text.tokenization import count_terms

_OPTIMISTIC_ATTEMPTS = 3  # without holding the relationship's lock
_MAX_EMBEDDED = 50  # turns that have no vector yet; beyond these, only terms are compared
_REEMBED_BATCH_SIZE = 100

Names = Mapping[Speaker, Vector]
Decide = Callable[[RelationshipTexts], ErasedContent]
Prepare = Callable[[ErasureReader], Awaitable[Decide]]


@dataclass(slots=True)
class ErasureCounts:
    """What was removed so far; records are counted by layer.

    `regenerated` are those of the records that are written again from what remains, `shortened`
    records that lost lines only, `reembedded` neighbouring memories.
    """

    memories: set[int] = field(default_factory=set)
    turns: int = 0
    records: Counter[str] = field(default_factory=Counter)
    regenerated: Counter[str] = field(default_factory=Counter)
    shortened: set[int] = field(default_factory=set)
    reembedded: set[int] = field(default_factory=set)


@asynccontextmanager
async def find_and_lock(
    database: Database, relationship_id: int, embedder: EmbeddingService, prepare: Prepare
) -> AsyncIterator[tuple[ErasureTransaction, RelationshipTexts, ErasedContent]]:
    """Find what is to be erased, and begin the transaction in which it is.

    Everything is read and compared before the relationship is locked, page by page and in a
    thread. If something was added in the meantime, this is repeated; the last attempt holds the
    lock.

    Args:
        prepare: reads what is named, and returns the function that decides, in a thread, what
            else is erased with it.
    """
    reader = ErasureReader(database.for_relationship(relationship_id), relationship_id)
    for _ in range(_OPTIMISTIC_ATTEMPTS):
        seen = await reader.state()
        texts, erased = await _find(reader, embedder, prepare)
        async with ErasureTransaction.begin(database, relationship_id) as transaction:
            if transaction.seen == seen:
                yield transaction, texts, erased
                return
    async with ErasureTransaction.begin(database, relationship_id) as transaction:
        texts, erased = await _find(transaction.reader, embedder, prepare)
        yield transaction, texts, erased


async def _find(
    reader: ErasureReader, embedder: EmbeddingService, prepare: Prepare
) -> tuple[RelationshipTexts, ErasedContent]:
    decide = await prepare(reader)
    texts = RelationshipTexts()
    without_vector: list[TranscriptText] = []
    async for turns in reader.turns():
        without_vector += [turn for turn in turns if turn.vector is None and turn.content.strip()]
        await asyncio.to_thread(texts.add_turns, turns)
    async for records in reader.records():
        await asyncio.to_thread(texts.add_records, records)
    for turn in without_vector[-_MAX_EMBEDDED:]:
        vector = await embedder.embed_passage(turn.content)
        texts.turns[turn.id] = replace(turn, vector=bytes(4) + vector.astype(">f2").tobytes())
    return texts, await asyncio.to_thread(decide, texts)


class ErasureSteps:
    """Removes turns and what was derived from them, within one transaction.

    Args:
        names: the vectors of both speakers' names; None if memories are embedded without their
            neighbours.
    """

    def __init__(
        self,
        transaction: ErasureTransaction,
        embedder: EmbeddingService,
        names: Names | None,
        now: datetime,
        counts: ErasureCounts,
    ) -> None:
        self._transaction = transaction
        self._embedder = embedder
        self._names = names
        self._now = now
        self._counts = counts

    async def remove(
        self,
        turns: Collection[int],
        erased: ErasedContent = NOTHING,
        records: Collection[int] = (),
        *,
        corrected: Collection[int] = (),
    ) -> None:
        """Remove turns with their memories, and everything that was derived from them.

        What was also derived from other turns is regenerated from these; named records are not.

        Args:
            erased: states of records that contain what the turns say.
            records: records to remove whatever they contain.
            corrected: turns whose text has been replaced; what was derived from the former text
                is removed.
        """
        transaction, touched = self._transaction, {*turns, *corrected}
        for (record, revision), remaining in erased.shortened.items():
            await transaction.replace_state_text(record, revision, remaining, self._now)
            self._counts.shortened.add(record)
        containing = {record for record, revision in erased.states if revision == 0}
        derived = await transaction.derived_records(touched, {*containing, *records})
        derived |= await transaction.records_of_whole_history()
        derived -= erased.corrected
        await self._remove_records(derived, turns, erased.states, records)
        await self._remove_memories(turns)
        if self._names is not None:
            await self._reembed(touched, self._names)

    async def clear_states(
        self,
        texts: RelationshipTexts,
        erased: ErasedContent,
        about: Mention | None = None,
        session: str | None = None,
    ) -> int:
        """Remove erased content from the states of sessions; return how many changed.

        Args:
            about: parts that mention this are removed.
            session: the id of a session whose state is removed as a whole.
        """
        contents = {texts.turns[turn].content for turn in erased.turns if turn in texts.turns}
        cleared = 0
        for session_id, state in (await self._transaction.states_of_sessions()).items():
            remaining = (
                NO_STATE
                if str(session_id) == session
                else await asyncio.to_thread(remaining_state, state, about, contents)
            )
            if remaining != state:
                cleared += 1
                await self._transaction.put_state(session_id, remaining)
        if cleared:
            self._counts.records["state"] += cleared
        return cleared

    async def expire_texts(self, turns: Collection[int]) -> None:
        """Remove the texts of turns; their memories, and what was derived from them, stay."""
        self._counts.turns += await self._transaction.expire(turns, self._now)
        if self._names is not None:
            await self._reembed(turns, self._names)

    async def expire_memories(self, memories: Collection[int]) -> set[int]:
        """Remove memories; their turns, and what was derived from these, stay.

        Returns:
            The turns that they were made of.
        """
        transaction = self._transaction
        turns = await transaction.reader.turns_of_memories(memories)
        await transaction.remove_memories(memories)
        await transaction.recompute_superseded(self._now)
        textless = await transaction.drop_vectors_without_text(turns)
        if textless and self._names is not None:
            await self._reembed(textless, self._names)
        return turns

    async def _remove_memories(self, turns: Collection[int]) -> None:
        """Remove turns with their memories; other turns that said the same are ingested again."""
        transaction = self._transaction
        memories = await transaction.memories_of_turns(turns)
        repeating = await transaction.repeating_turns(memories, turns)
        self._counts.memories |= memories
        self._counts.turns += await transaction.remove(memories, turns, self._now)
        await transaction.enqueue_ingest(repeating, self._now)
        if memories:
            await transaction.recompute_superseded(self._now)

    async def _remove_records(
        self,
        derived: Collection[int],
        turns: Collection[int],
        containing: Collection[tuple[int, int]],
        named: Collection[int],
    ) -> None:
        """Remove the named records, and states derived from or containing erased content.

        All but the named records are regenerated, and of these the core memory and the summary.
        """
        transaction = self._transaction
        affected = {*derived, *(record for record, _ in containing)}.difference(named)
        states = await self._states_by_record(affected)
        outcomes = _outcomes(states, derived, containing)
        erased = [
            states[record][0] for record, outcome in outcomes.items() if outcome.present_erased
        ]
        # These are regenerated even when they are removed by name: prompts are built on them.
        removed = await transaction.record_texts(named)
        for layer in ("hot", "summary"):
            erased += [state for state in removed if state.layer == layer][:1]
        remaining = await transaction.remaining_sources([record.id for record in erased], turns)
        for record, outcome in outcomes.items():
            if outcome.back_to is not None:
                await self._revert(states[record], outcome.back_to)
        await transaction.delete_revisions(
            {
                (record, revision)
                for record, outcome in outcomes.items()
                for revision in outcome.dropped
            }
        )
        deleted = {record for record, outcome in outcomes.items() if outcome.deleted}
        await transaction.detach_sources(
            {record for record in outcomes if record in derived and record not in deleted}
        )
        self._counts.records.update(await transaction.delete_records({*named, *deleted}))
        self._counts.regenerated.update(regenerated_layers(remaining, erased))
        await transaction.schedule_regeneration(change_sets_to_regenerate(remaining, erased))
        summary = any(record.layer == "summary" for record in erased)
        await transaction.schedule_rebuild(self._now, summary=summary)

    async def _states_by_record(self, records: Collection[int]) -> dict[int, list[RecordText]]:
        """Return all states of records: the present one first, then the earlier ones in order."""
        states: dict[int, list[RecordText]] = {}
        for state in await self._transaction.record_texts(records):
            states.setdefault(state.id, []).append(state)
        return states

    async def _revert(self, states: Sequence[RecordText], revision: int) -> None:
        """Restore a revision that somebody wrote, as if nothing had replaced it since."""
        state = next(state for state in states if state.revision == revision)
        vector = (
            await self._embedder.embed_passage(search_text(state.title, state.content))
            if states[0].layer in VECTOR_SEARCHED_LAYERS
            else None
        )
        await self._transaction.revert_record(state.id, revision, vector, self._now)

    async def _reembed(self, turns: Collection[int], names: Names) -> None:
        """Re-embed the memories whose context window includes turns that changed or were erased."""
        sessions, session_of = await self._transaction.sessions_of_turns(turns)
        affected: set[int] = set()
        for turn in session_of.keys() & turns:  # events stand alone
            session = sessions[session_of[turn]]
            affected |= set(_window(session, bisect_left(session, turn)))
        windows = {
            turn: _window(session, position)
            for session in sessions.values()
            for position, turn in enumerate(session)
            if turn in affected
        }
        for first in range(0, len(windows), _REEMBED_BATCH_SIZE):
            batch = dict(list(windows.items())[first : first + _REEMBED_BATCH_SIZE])
            known = await self._transaction.load_window_turns(
                {turn for window in batch.values() for turn in window}
            )
            language = self._transaction.seen.language
            texts = await asyncio.to_thread(_contextual_texts, batch, known, names, language)
            await self._transaction.reembed_memories(texts)
            self._counts.reembedded |= texts.keys()


def _outcomes(
    states: Mapping[int, Sequence[RecordText]],
    derived: Collection[int],
    containing: Collection[tuple[int, int]],
) -> dict[int, RecordOutcome]:
    """Decide what becomes of each record; arguments as of `_remove_records`."""
    return {
        record: decide_outcome(
            states[record],
            {revision for other, revision in containing if other == record},
            derived=record in derived,
        )
        for record in states
    }


def _window(session: list[int], position: int) -> list[int]:
    """Return the turns of a session in the context window around a position."""
    return session[max(0, position - WINDOW_RADIUS) : position + WINDOW_RADIUS + 1]


def _contextual_texts(
    windows: Mapping[int, list[int]],
    known: Mapping[int, ExchangeTurn],
    names: Names,
    language: str,
) -> dict[int, MemoryText]:
    """Return new texts by memory id, given the window around each turn.

    Args:
        language: the player's, in which a text is that does not tell.
    """
    count = cache(partial(count_terms, fallback=language))  # each turn is part of several windows
    texts: dict[int, MemoryText] = {}
    for turn_id, window in windows.items():
        turn = known.get(turn_id)
        if turn is None or turn.memory_id is None or turn.vector is None:
            continue
        neighbours = [known[neighbour] for neighbour in window if neighbour in known]
        texts[turn.memory_id] = contextual_text(neighbours, neighbours.index(turn), names, count)
    return texts
