"""What forgetting and correcting share: finding all that holds something, and removing it."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from foremind.domain.erasure import RecordText, TranscriptText
from foremind.domain.memory import MemoryText
from foremind.domain.record import FOUND_BY_MEANING, found_by
from foremind.domain.session_state import NO_STATE
from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.memory.context_window import REACH, Vector, read_in_exchange
from foremind.memory.erasure_scope import NOTHING, ErasedContent, ErasedTexts
from foremind.memory.record_erasure import fate_of, portions_again, remade_of
from foremind.memory.state_erasure import left_of
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureReader, ErasureTransaction

_ATTEMPTS = 3  # without holding the relationship's lock
_MOST_EMBEDDED = 50  # turns that were not judged yet; of more, only the words are looked at
_REREAD_AT_ONCE = 100

Names = Mapping[Speaker, Vector]
Decide = Callable[[ErasedTexts], ErasedContent]
Prepare = Callable[[ErasureReader], Awaitable[Decide]]


@dataclass(slots=True)
class ErasureCounts:
    """What was removed so far; records by layer, of these those that are `remade` of what is left.

    `reread` are memories beside, `shortened` records that lost lines.
    """

    memories: set[int] = field(default_factory=set)
    turns: int = 0
    records: Counter[str] = field(default_factory=Counter)
    remade: Counter[str] = field(default_factory=Counter)
    shortened: set[int] = field(default_factory=set)
    reread: set[int] = field(default_factory=set)


@asynccontextmanager
async def found_and_locked(
    database: Database, relationship_id: int, embedder: EmbeddingService, prepare: Prepare
) -> AsyncIterator[tuple[ErasureTransaction, ErasedTexts, ErasedContent]]:
    """Find what goes, and begin the transaction in which it does.

    Everything is read and compared before the relationship is locked, some of it at a time and in
    a thread; where something came on top meanwhile, again.

    Args:
        prepare: reads what is named, and returns what decides, in a thread, what goes with it.
    """
    reader = ErasureReader(database.of(relationship_id), relationship_id)
    for _ in range(_ATTEMPTS):
        seen = await reader.state()
        said, gone = await _find(reader, embedder, prepare)
        async with ErasureTransaction.begin(database, relationship_id) as transaction:
            if transaction.seen == seen:
                yield transaction, said, gone
                return
    async with ErasureTransaction.begin(database, relationship_id) as transaction:
        said, gone = await _find(transaction.reader, embedder, prepare)
        yield transaction, said, gone


async def _find(
    reader: ErasureReader, embedder: EmbeddingService, prepare: Prepare
) -> tuple[ErasedTexts, ErasedContent]:
    decide = await prepare(reader)
    said = ErasedTexts()
    unread: list[TranscriptText] = []
    async for turns in reader.turns():
        unread += [turn for turn in turns if turn.vector is None and turn.content.strip()]
        await asyncio.to_thread(said.add_turns, turns)
    async for records in reader.records():
        await asyncio.to_thread(said.add_records, records)
    for each in unread[-_MOST_EMBEDDED:]:
        vector = await embedder.embed_passage(each.content)
        said.turns[each.id] = replace(each, vector=bytes(4) + vector.astype(">f2").tobytes())
    return said, await asyncio.to_thread(decide, said)


class ErasureSteps:
    """Removes turns, and what was made of them, within one transaction.

    Args:
        names: the vectors of both names; None where memories are read alone.
    """

    def __init__(
        self,
        transaction: ErasureTransaction,
        embedder: EmbeddingService,
        names: Names | None,
        now: datetime,
        tally: ErasureCounts,
    ) -> None:
        self._transaction = transaction
        self._embedder = embedder
        self._names = names
        self._now = now
        self._tally = tally

    async def remove(
        self,
        turns: Collection[int],
        gone: ErasedContent = NOTHING,
        records: Collection[int] = (),
        *,
        corrected: Collection[int] = (),
    ) -> None:
        """Remove turns with their memories, and everything that was made of them.

        What was made of more than these is made anew of what is left; what is named is not.

        Args:
            gone: states of records that hold what the turns say.
            records: those that go whatever they hold.
            corrected: turns whose text is another one now, and what was made of the former goes.
        """
        transaction, touched = self._transaction, {*turns, *corrected}
        for (record, revision), rest in gone.shortened.items():
            await transaction.say_in_state(record, revision, rest, self._now)
            self._tally.shortened.add(record)
        holding = {record for record, revision in gone.written if revision == 0}
        made = await transaction.made_of(touched, {*holding, *records})
        made |= await transaction.made_of_everything()
        await self._remove_records(made, turns, gone.written, records)
        await self._remove_memories(turns)
        if self._names is not None:
            await self._read_anew(touched, self._names)

    async def let_go(self, records: Collection[int]) -> None:
        """Remove records whose days are over.

        What is written from such records is made anew; what was made beside them has days of its
        own, and stays tied to what they were made of.
        """
        transaction = self._transaction
        made = await transaction.written_from(records)
        await transaction.hand_down(records)
        await self._remove_records(made | await transaction.made_of_everything(), (), (), records)

    async def clear_states(
        self,
        said: ErasedTexts,
        gone: ErasedContent,
        about: str | None = None,
        session: str | None = None,
    ) -> int:
        """Take what holds it out of what goes on in sessions; return of how many.

        Args:
            about: words that go where all of them stand together.
            session: one of which nothing stays.
        """
        spoken = {said.turns[turn].content for turn in gone.turns if turn in said.turns}
        cleared = 0
        for session_id, state in (await self._transaction.states_of_sessions()).items():
            left = (
                NO_STATE
                if str(session_id) == session
                else await asyncio.to_thread(left_of, state, about, spoken)
            )
            if left != state:
                cleared += 1
                await self._transaction.put_state(session_id, left)
        if cleared:
            self._tally.records["state"] += cleared
        return cleared

    async def expire(self, turns: Collection[int]) -> None:
        """Remove the texts of turns; what was remembered of them, or made of them, stays."""
        self._tally.turns += await self._transaction.expire(turns, self._now)
        if self._names is not None:
            await self._read_anew(turns, self._names)

    async def _remove_memories(self, turns: Collection[int]) -> None:
        """Remove turns with their memories; what others said again is remembered by these."""
        transaction = self._transaction
        memories = await transaction.memories_behind(turns)
        again = await transaction.said_again(memories, turns)
        self._tally.memories |= memories
        self._tally.turns += await transaction.remove(memories, turns, self._now)
        await transaction.remember_again(again)
        if memories:
            await transaction.settle_facts(self._now)

    async def _remove_records(
        self,
        made: Collection[int],
        turns: Collection[int],
        written: Collection[tuple[int, int]],
        named: Collection[int],
    ) -> None:
        """Remove what is named, holds it or was made of it; have the others made anew."""
        transaction = self._transaction
        states: dict[int, list[RecordText]] = {}
        concerned = {*made, *(record for record, _ in written)}.difference(named)
        for state in await transaction.states(concerned):
            states.setdefault(state.id, []).append(state)
        fates = {
            record: fate_of(
                states[record],
                {revision for one, revision in written if one == record},
                made_of_it=record in made,
            )
            for record in states
        }
        went = [states[each][0] for each, fate in fates.items() if fate.goes]
        # Whoever removes the hot context has it written anew.
        went += [state for state in await transaction.states(named) if state.layer == "hot"][:1]
        left = await transaction.sources_left([each.id for each in went], turns)
        back = {each: fate.back_to for each, fate in fates.items() if fate.back_to is not None}
        for record, revision in back.items():
            await self._take_back(states[record], revision)
        await transaction.forget_states(
            {(record, each) for record, fate in fates.items() for each in fate.dropped}
        )
        kept = {each for each, fate in fates.items() if each in made and not fate.deleted}
        await transaction.untie(kept)
        deleted = {*named, *(each for each, fate in fates.items() if fate.deleted)}
        self._tally.records.update(await transaction.delete_records(deleted))
        self._tally.remade.update(remade_of(left, went))
        await transaction.make_again(portions_again(left, went))
        summary = any(each.layer == "summary" for each in went)
        await transaction.rebuild(self._now, summary=summary)

    async def _take_back(self, states: Sequence[RecordText], revision: int) -> None:
        """Let what somebody wrote hold again, as if nothing had been made of it since."""
        state = next(each for each in states if each.revision == revision)
        vector = (
            await self._embedder.embed_passage(found_by(state.title, state.content))
            if states[0].layer in FOUND_BY_MEANING
            else None
        )
        await self._transaction.take_back(state.id, revision, vector, self._now)

    async def _read_anew(self, turns: Collection[int], names: Names) -> None:
        """Read the memories beside turns anew, as if these had not been said, or are by now."""
        lines, session_of = await self._transaction.exchanges(turns)
        touched: set[int] = set()
        for turn in turns:
            line = lines[session_of[turn]]
            place = bisect_left(line, turn)
            touched |= set(line[max(0, place - REACH) : place + REACH + 1])
        around = {
            each: line[max(0, place - REACH) : place + REACH + 1]
            for line in lines.values()
            for place, each in enumerate(line)
            if each in touched
        }
        for first in range(0, len(around), _REREAD_AT_ONCE):
            part = dict(list(around.items())[first : first + _REREAD_AT_ONCE])
            known = await self._transaction.exchange_turns(
                {one for w in part.values() for one in w}
            )
            texts = await asyncio.to_thread(_read, part, known, names)
            await self._transaction.rewrite(texts)
            self._tally.reread |= texts.keys()


def _read(
    around: Mapping[int, list[int]], known: Mapping[int, ExchangeTurn], names: Names
) -> dict[int, MemoryText]:
    """Read memories with the turns around them."""
    texts: dict[int, MemoryText] = {}
    for turn_id, line in around.items():
        here = known.get(turn_id)
        if here is None or here.memory_id is None or here.vector is None:
            continue
        window = [known[each] for each in line if each in known]
        texts[here.memory_id] = read_in_exchange(window, window.index(here), names)
    return texts
