"""Forgetting for good: what a user takes back is in no table, index or cache afterwards."""

import msgspec
import structlog

from foremind.clock import Clock
from foremind.errors import NotFound
from foremind.memory.exchange import reread
from foremind.memory.remember import Rememberer
from foremind.storage.database import Database
from foremind.storage.forgetting import ForgettingTransaction
from foremind.storage.remembering import MemoryText

_log = structlog.get_logger("foremind.memory")


class Receipt(msgspec.Struct, frozen=True):
    """What was removed: memories, the texts of turns; and memories that were read anew without."""

    memories: tuple[int, ...]
    turns: int
    reread: int


class Forgetter:
    """Removes memories together with everything that holds what they say.

    That is: the turns they were made of, every turn that quotes one of these word for word (such
    as a reply that reminded of it) and its memory, facts, traces and vectors. Memories of the turns
    beside are read anew, since they shared words and vector.
    """

    def __init__(self, database: Database, rememberer: Rememberer, clock: Clock) -> None:
        self._database = database
        self._rememberer = rememberer
        self._clock = clock

    async def forget(
        self,
        relationship_id: int,
        names: tuple[str, str],
        memory_id: int | None,
        *,
        read_in_exchange: bool,
    ) -> Receipt:
        """Forget one memory of a relationship, or with None everything.

        Args:
            names: the user's and the companion's.
            read_in_exchange: whether the companion's memories share with those beside them.

        Raises:
            NotFound: the relationship has no such memory.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        vectors = await self._rememberer.name_vectors(*names)
        async with ForgettingTransaction.begin(self._database, relationship_id) as transaction:
            if memory_id is None:
                turns = await transaction.all_turns()
                memories = await transaction.memories_behind(turns)
            else:
                memories, turns = await _everything_that_holds(transaction, memory_id)
            emptied = await transaction.remove(memories, turns, self._clock.now())
            texts: dict[int, MemoryText] = {}
            # Of everything, nothing is left beside it.
            for turn in turns if read_in_exchange and memory_id is not None else ():
                around = await transaction.exchange(turn)
                texts |= {
                    each: reading.text for each, reading in reread(around, turn, vectors).items()
                }
            for each_id, text in texts.items():
                await transaction.rewrite(each_id, text)
            await transaction.announce(turns)
        _log.info("memories.forgotten", relationship_id=relationship_id, memories=len(memories))
        return Receipt(tuple(sorted(memories)), emptied, len(texts))


async def _everything_that_holds(
    transaction: ForgettingTransaction, memory_id: int
) -> tuple[set[int], set[int]]:
    """Return the memories and turns that hold what a memory says."""
    memories: set[int] = {memory_id}
    turns: set[int] = set()
    while True:
        found = await transaction.turns_behind(memories)
        if not found:
            raise NotFound("memory: expected the id of a memory here", param="memory")
        more = memories | await transaction.memories_behind(found)
        if found == turns and more == memories:
            return memories, turns
        memories, turns = more, found
