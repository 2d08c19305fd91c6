"""Letting go what is older than it may be kept: the same promise as forgetting, by the calendar."""

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime

from foremind.domain.clock import Clock
from foremind.memory.erasure_steps import ErasureCounts, ErasureSteps, Names
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureTransaction

_AT_ONCE = 200  # memories or turns that one transaction lets go

_LetGo = tuple[str, Collection[int]]  # what went, in numbers, and the turns that said it


class RetentionEnforcer:
    """Lets go of records, memories and texts of turns whose days are over.

    What is only old is not taken back: replies that spoke of it have days of their own.
    """

    def __init__(
        self,
        database: Database,
        rememberer: MemoryIngester,
        embedder: EmbeddingService,
        clock: Clock,
    ) -> None:
        self._database = database
        self._rememberer = rememberer
        self._embedder = embedder
        self._clock = clock

    async def records(self, relationship_id: int, records: Collection[int]) -> None:
        """Let go of records, and what was written from them.

        Raises:
            StorageUnavailable: try again later; nothing was half done.
        """
        tally = ErasureCounts()
        async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
            await self._eraser(transaction, None, tally).let_go(records)
            subject = f"{tally.records.total()} records"
            await transaction.audit("server", "retention", subject, self._clock.now())
            await transaction.announce((), outdated=True)

    async def memories(
        self, relationship_id: int, names: tuple[str, str], memory_type: str, before: datetime
    ) -> None:
        """Let go of memories of a type that were last said before a time.

        Raises:
            StorageUnavailable: try again later.
        """

        async def some(transaction: ErasureTransaction, eraser: ErasureSteps) -> _LetGo:
            old = await transaction.older_memories(memory_type, before, _AT_ONCE)
            turns = await transaction.reader.of_memories(old) if old else set()
            if turns:
                await eraser.remove(turns)
            return f"{len(old)} memories", turns

        await self._by_portions(relationship_id, names, some)

    async def transcript(
        self, relationship_id: int, names: tuple[str, str], before: datetime
    ) -> None:
        """Erase the texts of turns that were said before a time.

        Raises:
            StorageUnavailable: try again later.
        """

        async def some(transaction: ErasureTransaction, eraser: ErasureSteps) -> _LetGo:
            turns = await transaction.older_turns(before, _AT_ONCE)
            if turns:
                await eraser.expire(turns)
            return f"{len(turns)} turns", turns

        await self._by_portions(relationship_id, names, some)

    async def _by_portions(
        self,
        relationship_id: int,
        names: tuple[str, str],
        some: Callable[[ErasureTransaction, ErasureSteps], Awaitable[_LetGo]],
    ) -> None:
        """Let go of some at a time, each in a transaction of its own, until none are left."""
        vectors = await self._rememberer.name_vectors(*names)
        while True:
            async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
                eraser = self._eraser(transaction, vectors, ErasureCounts())
                subject, turns = await some(transaction, eraser)
                if not turns:
                    return
                await transaction.audit("server", "retention", subject, self._clock.now())
                await transaction.announce(turns, outdated=True)

    def _eraser(
        self, transaction: ErasureTransaction, names: Names | None, tally: ErasureCounts
    ) -> ErasureSteps:
        return ErasureSteps(transaction, self._embedder, names, self._clock.now(), tally)
