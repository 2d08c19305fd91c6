"""Correcting what is remembered: said differently, embedded and indexed anew at once."""

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import NotFound
from foremind.domain.turn import ExchangeTurn
from foremind.memory.context_window import read_alone
from foremind.memory.erasure_scope import ErasedContent, ErasedTexts, Similarity, all_that_holds
from foremind.memory.erasure_steps import Decide, ErasureCounts, ErasureSteps, found_and_locked
from foremind.memory.exclusive_facts import facts_in
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureReader

_log = structlog.get_logger("foremind.memory")


class Corrector:
    """Puts other words in the place of a memory's, everywhere.

    The turns that it was made of read as corrected; what else holds the old words, replies that
    speak of them included, goes as if they were forgotten, and what was made of them is made anew.
    """

    def __init__(
        self,
        database: Database,
        embedder: EmbeddingService,
        rememberer: MemoryIngester,
        clock: Clock,
        near: Similarity,
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._rememberer = rememberer
        self._clock = clock
        self._near = near

    async def correct(
        self,
        relationship_id: int,
        names: tuple[str, str],
        memory_id: int,
        content: str,
        *,
        actor: str,
        in_exchange: bool,
    ) -> None:
        """Correct a memory of a relationship.

        Args:
            names: the user's and the companion's.
            in_exchange: whether the companion's memories are read with those beside them.

        Raises:
            NotFound: the relationship has no such memory.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        vector = await self._embedder.embed_passage(content)
        vectors = await self._rememberer.name_vectors(*names)
        corrected: set[int] = set()

        async def prepare(reader: ErasureReader) -> Decide:
            corrected.clear()
            corrected.update(await reader.of_memories([memory_id]))
            if not corrected:
                raise NotFound("memory: expected the id of a memory here", param="memory")

            def decide(said: ErasedTexts) -> ErasedContent:
                return all_that_holds(
                    said,
                    corrected,
                    repeated=True,
                    instead=content,
                    near=self._near,
                )

            return decide

        async with found_and_locked(self._database, relationship_id, self._embedder, prepare) as (
            transaction,
            said,
            gone,
        ):
            await transaction.say_instead(memory_id, corrected, content, vector)
            await transaction.state_anew(memory_id, facts_in(content))
            alone = ExchangeTurn(0, "user", content, vector, memory_id)
            await transaction.rewrite({memory_id: read_alone(alone, vector)})
            now = self._clock.now()
            eraser = ErasureSteps(
                transaction, self._embedder, vectors if in_exchange else None, now, ErasureCounts()
            )
            going = (gone.turns - corrected) | gone.replies
            await transaction.settle_facts(now, memory_id)
            await eraser.remove(going, gone, corrected=corrected)
            await eraser.clear_states(said, gone)
            await transaction.audit(actor, "correct", f"memory {memory_id}", now)
            await transaction.announce({*corrected, *going})
        _log.info("memory.corrected", relationship_id=relationship_id, memory_id=memory_id)
