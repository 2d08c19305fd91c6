"""Retention: removes what is older than it may be kept, as thoroughly as an erasure."""

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime

from foremind.domain.clock import Clock
from foremind.memory.erasure_steps import ErasureCounts, ErasureSteps, Names
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureTransaction

_BATCH_SIZE = 200  # memories or turns that one transaction removes

_Removal = tuple[str, Collection[int]]  # a summary for the audit trail, and the turns affected


class RetentionEnforcer:
    """Removes expired records, memories and texts of turns.

    Unlike an erasure, it leaves replies that mention them: replies expire by themselves.
    """

    def __init__(
        self,
        database: Database,
        ingester: MemoryIngester,
        embedder: EmbeddingService,
        clock: Clock,
    ) -> None:
        self._database = database
        self._ingester = ingester
        self._embedder = embedder
        self._clock = clock

    async def expire_records(self, relationship_id: int, records: Collection[int]) -> None:
        """Remove records, and what was written from them.

        Raises:
            StorageUnavailable: try again later; nothing was half done.
        """
        counts = ErasureCounts()
        async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
            await self._steps(transaction, None, counts).expire_records(records)
            subject = f"{counts.records.total()} records"
            await transaction.audit("server", "retention", subject, self._clock.now())
            await transaction.announce((), outdated=True)

    async def expire_memories(
        self, relationship_id: int, names: tuple[str, str], memory_type: str, before: datetime
    ) -> None:
        """Remove memories of a type that were last said before a time.

        Raises:
            StorageUnavailable: try again later.
        """

        async def remove_batch(transaction: ErasureTransaction, steps: ErasureSteps) -> _Removal:
            expired = await transaction.older_memories(memory_type, before, _BATCH_SIZE)
            turns = await transaction.reader.turns_of_memories(expired) if expired else set()
            if turns:
                await steps.remove(turns)
            return f"{len(expired)} memories", turns

        await self._in_batches(relationship_id, names, remove_batch)

    async def expire_transcript(
        self, relationship_id: int, names: tuple[str, str], before: datetime
    ) -> None:
        """Remove the texts of turns that were said before a time.

        Raises:
            StorageUnavailable: try again later.
        """

        async def remove_batch(transaction: ErasureTransaction, steps: ErasureSteps) -> _Removal:
            turns = await transaction.older_turns(before, _BATCH_SIZE)
            if turns:
                await steps.expire_texts(turns)
            return f"{len(turns)} turns", turns

        await self._in_batches(relationship_id, names, remove_batch)

    async def _in_batches(
        self,
        relationship_id: int,
        names: tuple[str, str],
        remove_batch: Callable[[ErasureTransaction, ErasureSteps], Awaitable[_Removal]],
    ) -> None:
        """Remove batches, each in a transaction of its own, until nothing is left to remove."""
        vectors = await self._ingester.name_vectors(*names)
        while True:
            async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
                steps = self._steps(transaction, vectors, ErasureCounts())
                subject, turns = await remove_batch(transaction, steps)
                if not turns:
                    return
                await transaction.delete_alternatives()
                await transaction.audit("server", "retention", subject, self._clock.now())
                await transaction.announce(turns, outdated=True)

    def _steps(
        self, transaction: ErasureTransaction, names: Names | None, counts: ErasureCounts
    ) -> ErasureSteps:
        return ErasureSteps(transaction, self._embedder, names, self._clock.now(), counts)
