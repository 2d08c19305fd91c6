"""What forgetting and correcting share: finding all that holds something, and removing it."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from foremind.embedding.service import EmbeddingService
from foremind.memory.exchange import REACH, Vector, read_in_exchange
from foremind.memory.holding import Gone, Said
from foremind.memory.records_left import fate_of
from foremind.memory.state_left import left_of
from foremind.storage.database import Database
from foremind.storage.forgetting import (
    ForgettingReader,
    ForgettingTransaction,
    RecordText,
    SaidText,
)
from foremind.storage.records import FOUND_BY_MEANING, RecordLayer, found_by
from foremind.storage.remembering import ExchangeTurn, MemoryText
from foremind.storage.session_state import NO_STATE
from foremind.storage.turns import Speaker

_ATTEMPTS = 3  # without holding the relationship's lock
_MOST_EMBEDDED = 50  # turns that were not judged yet; of more, only the words are looked at
_REREAD_AT_ONCE = 100

Names = Mapping[Speaker, Vector]
Decide = Callable[[Said], Gone]
Prepare = Callable[[ForgettingReader], Awaitable[Decide]]


@dataclass(slots=True)
class Tally:
    """What was removed so far; records by layer, `reread` memories beside."""

    memories: set[int] = field(default_factory=set)
    turns: int = 0
    records: Counter[str] = field(default_factory=Counter)
    reread: set[int] = field(default_factory=set)


@asynccontextmanager
async def found_and_locked(
    database: Database, relationship_id: int, embedder: EmbeddingService, prepare: Prepare
) -> AsyncIterator[tuple[ForgettingTransaction, Said, Gone]]:
    """Find what goes, and begin the transaction in which it does.

    Everything is read and compared before the relationship is locked, some of it at a time and in
    a thread; where something came on top meanwhile, again.

    Args:
        prepare: reads what is named, and returns what decides, in a thread, what goes with it.
    """
    reader = ForgettingReader(database.of(relationship_id), relationship_id)
    for _ in range(_ATTEMPTS):
        seen = await reader.state()
        said, gone = await _find(reader, embedder, prepare)
        async with ForgettingTransaction.begin(database, relationship_id) as transaction:
            if transaction.seen == seen:
                yield transaction, said, gone
                return
    async with ForgettingTransaction.begin(database, relationship_id) as transaction:
        said, gone = await _find(transaction.reader, embedder, prepare)
        yield transaction, said, gone


async def _find(
    reader: ForgettingReader, embedder: EmbeddingService, prepare: Prepare
) -> tuple[Said, Gone]:
    decide = await prepare(reader)
    said = Said()
    unread: list[SaidText] = []
    async for turns in reader.turns():
        unread += [each for each in turns if each.vector is None and each.content.strip()]
        await asyncio.to_thread(said.add_turns, turns)
    async for records in reader.records():
        await asyncio.to_thread(said.add_records, records)
    for each in unread[-_MOST_EMBEDDED:]:
        vector = await embedder.embed_passage(each.content)
        said.turns[each.id] = replace(each, vector=bytes(4) + vector.astype(">f2").tobytes())
    return said, await asyncio.to_thread(decide, said)


class Eraser:
    """Removes turns, and what was made of them, within one transaction.

    Args:
        names: the vectors of both names; None where memories are read alone.
    """

    def __init__(
        self,
        transaction: ForgettingTransaction,
        embedder: EmbeddingService,
        names: Names | None,
        now: datetime,
        tally: Tally,
    ) -> None:
        self._transaction = transaction
        self._embedder = embedder
        self._names = names
        self._now = now
        self._tally = tally

    async def remove(
        self,
        turns: Collection[int],
        written: Collection[tuple[int, int]] = (),
        records: Collection[int] = (),
        *,
        corrected: Collection[int] = (),
        again: bool = True,
    ) -> None:
        """Remove turns with their memories, and everything that was made of them.

        Args:
            written: states of records that hold what they say: record and revision, 0 for now.
            records: those that go whatever they hold.
            corrected: turns whose text is another one now, and what was made of the former goes.
            again: whether what was made of them is made anew from what is left.
        """
        transaction, touched = self._transaction, {*turns, *corrected}
        left = await self._remove_records(touched, turns, written, records)
        memories = await transaction.memories_behind(turns)
        self._tally.memories |= memories
        self._tally.turns += await transaction.remove(memories, turns, self._now)
        if self._names is not None:
            await self._read_anew(touched, self._names)
        if again:
            await transaction.note_again(left)
            starts = [*touched, *(each for _, sources in left for each in sources)]
            await transaction.rebuild(min(starts, default=None), self._now)

    async def clear_states(
        self, said: Said, gone: Gone, about: str | None = None, session: str | None = None
    ) -> int:
        """Take what holds it out of what goes on in sessions; return of how many.

        Args:
            about: words that go where all of them stand together.
            session: one of which nothing stays.
        """
        spoken = {said.turns[each].content for each in gone.turns if each in said.turns}
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

    async def _remove_records(
        self,
        touched: Collection[int],
        turns: Collection[int],
        written: Collection[tuple[int, int]],
        named: Collection[int],
    ) -> list[tuple[RecordLayer, frozenset[int]]]:
        """Remove what holds it or was made of it; return what is left of what that was made of."""
        transaction = self._transaction
        holding = {record for record, revision in written if revision == 0}
        made = await transaction.made_of(touched, {*holding, *named}) | await transaction.hot()
        concerned = {*made, *named, *(record for record, _ in written)}
        states: dict[int, list[RecordText]] = {}
        for each in await transaction.states(concerned):
            states.setdefault(each.id, []).append(each)
        deleted = {each for each in named if each in states}
        dropped: set[tuple[int, int]] = set()
        back: dict[int, int] = {}
        kept: set[int] = set()
        for record_id in states.keys() - deleted:
            holds = {revision for record, revision in written if record == record_id}
            fate = fate_of(states[record_id], holds, made_of_it=record_id in made)
            dropped |= {(record_id, each) for each in fate.dropped}
            if fate.deleted:
                deleted.add(record_id)
            elif fate.back_to is not None:
                back[record_id] = fate.back_to
            elif record_id in made:
                kept.add(record_id)
        left = await transaction.sources_left({*deleted, *back}, turns)
        if any(states[each][0].layer == "hot" for each in (*deleted, *back)):
            left.append(("hot", frozenset()))
        for record_id, revision in back.items():
            state = next(each for each in states[record_id] if each.revision == revision)
            layer = states[record_id][0].layer
            vector = (
                await self._embedder.embed_passage(found_by(state.title, state.content))
                if layer in FOUND_BY_MEANING
                else None
            )
            await transaction.take_back(record_id, revision, vector, self._now)
        await transaction.forget_states(dropped)
        await transaction.untie({*back, *kept})
        self._tally.records.update(await transaction.delete_records(deleted))
        return left

    async def _read_anew(self, turns: Collection[int], names: Names) -> None:
        """Read the memories beside turns anew, as if these had not been said, or are by now."""
        lines, session_of = await self._transaction.exchanges(turns)
        touched: set[int] = set()
        for each in turns:
            line = lines[session_of[each]]
            place = bisect_left(line, each)
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
