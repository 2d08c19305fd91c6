"""Retention: removes what is older than it may be kept, and nothing that was made of it."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime

from foremind.domain.clock import Clock
from foremind.domain.settings.setting_definitions import ExpiringName
from foremind.memory.erasure.steps import ErasureCounts, ErasureSteps
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureTransaction

_BATCH_SIZE = 200  # memories or turns that one transaction removes

_Removal = tuple[str, Collection[int]]  # a summary for the audit trail, and the turns affected


class RetentionEnforcer:
    """Removes expired records, memories and texts of turns.

    Unlike an erasure, it leaves what was derived from them and replies that mention them: these
    expire by themselves.
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
        """Remove records; what was derived from them now counts as derived from their sources.

        Raises:
            StorageUnavailable: try again later; nothing was half done.
        """
        async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
            await transaction.inherit_sources(records)
            removed = sum((await transaction.delete_records(records)).values())
            await transaction.audit("server", "retention", f"{removed} records", self._clock.now())
            await transaction.announce((), outdated=True)

    async def expire_memories(
        self, relationship_id: int, names: tuple[str, str], before: Mapping[ExpiringName, datetime]
    ) -> None:
        """Remove memories that were last said before the time given for their type.

        Raises:
            StorageUnavailable: try again later.
        """

        async def remove_batch(
            transaction: ErasureTransaction, steps: ErasureSteps
        ) -> _Removal | None:
            expired = await transaction.older_memories(before, _BATCH_SIZE)
            if not expired:
                return None
            return f"{len(expired)} memories", await steps.expire_memories(expired)

        await self._in_batches(relationship_id, names, remove_batch)

    async def expire_transcript(
        self, relationship_id: int, names: tuple[str, str], before: datetime
    ) -> None:
        """Remove the texts of turns that were said before a time.

        Raises:
            StorageUnavailable: try again later.
        """

        async def remove_batch(
            transaction: ErasureTransaction, steps: ErasureSteps
        ) -> _Removal | None:
            turns = await transaction.older_turns(before, _BATCH_SIZE)
            if not turns:
                return None
            await transaction.delete_alternatives()
            await steps.expire_texts(turns)
            return f"{len(turns)} turns", turns

        await self._in_batches(relationship_id, names, remove_batch)

    async def _in_batches(
        self,
        relationship_id: int,
        names: tuple[str, str],
        remove_batch: Callable[[ErasureTransaction, ErasureSteps], Awaitable[_Removal | None]],
    ) -> None:
        """Remove batches, each in a transaction of its own, until nothing is left to remove."""
        vectors = await self._ingester.name_vectors(*names)
        while True:
            now = self._clock.now()
            async with ErasureTransaction.begin(self._database, relationship_id) as transaction:
                steps = ErasureSteps(transaction, self._embedder, vectors, now, ErasureCounts())
                removal = await remove_batch(transaction, steps)
                if removal is None:
                    return
                subject, turns = removal
                await transaction.audit("server", "retention", subject, now)
                await transaction.announce(turns, outdated=True)
