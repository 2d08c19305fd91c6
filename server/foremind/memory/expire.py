"""Letting go what is older than it may be kept: the same promise as forgetting, by the calendar."""

from collections.abc import Collection
from datetime import datetime

from foremind.clock import Clock
from foremind.embedding.service import EmbeddingService
from foremind.memory.erasing import Eraser, Names, Tally
from foremind.memory.remember import Rememberer
from foremind.storage.database import Database
from foremind.storage.forgetting import ForgettingTransaction

_AT_ONCE = 200  # memories or turns that one transaction lets go


class Expirer:
    """Lets go of records, memories and texts of turns whose days are over.

    What is only old is not taken back: replies that spoke of it have days of their own.
    """

    def __init__(
        self,
        database: Database,
        rememberer: Rememberer,
        embedder: EmbeddingService,
        clock: Clock,
    ) -> None:
        self._database = database
        self._rememberer = rememberer
        self._embedder = embedder
        self._clock = clock

    async def records(self, relationship_id: int, records: Collection[int]) -> int:
        """Let go of records, and what was written from them; return how many.

        Raises:
            StorageUnavailable: try again later; nothing was half done.
        """
        tally = Tally()
        async with ForgettingTransaction.begin(self._database, relationship_id) as transaction:
            await self._eraser(transaction, None, tally).let_go(records)
            count = tally.records.total()
            await transaction.audit("server", "retention", f"{count} records", self._clock.now())
            await transaction.announce((), outdated=True)
        return count

    async def memories(
        self, relationship_id: int, names: tuple[str, str], memory_type: str, before: datetime
    ) -> int:
        """Let go of memories of a type that were last said before a time; return how many.

        Raises:
            StorageUnavailable: try again later.
        """
        vectors = await self._rememberer.name_vectors(*names)
        tally = Tally()
        while True:
            async with ForgettingTransaction.begin(self._database, relationship_id) as transaction:
                old = await transaction.older_memories(memory_type, before, _AT_ONCE)
                if not old:
                    return len(tally.memories)
                turns = await transaction.reader.of_memories(old)
                await self._eraser(transaction, vectors, tally).remove(turns)
                subject = f"{len(old)} memories"
                await transaction.audit("server", "retention", subject, self._clock.now())
                await transaction.announce(turns, outdated=True)

    async def transcript(
        self, relationship_id: int, names: tuple[str, str], before: datetime
    ) -> int:
        """Erase the texts of turns that were said before a time; return how many.

        Raises:
            StorageUnavailable: try again later.
        """
        vectors = await self._rememberer.name_vectors(*names)
        tally = Tally()
        while True:
            async with ForgettingTransaction.begin(self._database, relationship_id) as transaction:
                turns = await transaction.older_turns(before, _AT_ONCE)
                if not turns:
                    return tally.turns
                await self._eraser(transaction, vectors, tally).expire(turns)
                subject = f"{len(turns)} turns"
                await transaction.audit("server", "retention", subject, self._clock.now())
                await transaction.announce(turns, outdated=True)

    def _eraser(
        self, transaction: ForgettingTransaction, names: Names | None, tally: Tally
    ) -> Eraser:
        return Eraser(transaction, self._embedder, names, self._clock.now(), tally)
