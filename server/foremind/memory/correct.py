"""Correcting a memory: its text is replaced, re-embedded and re-indexed in one transaction."""

from functools import partial

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import NotFound
from foremind.domain.relationship import user_id_of
from foremind.domain.turn import ExchangeTurn
from foremind.memory.contextual_embedding import standalone_text
from foremind.memory.erasure.scope import (
    ErasedContent,
    RelationshipTexts,
    SimilarityThresholds,
    find_erased_content,
)
from foremind.memory.erasure.steps import Decide, ErasureCounts, ErasureSteps, find_and_lock
from foremind.memory.ingest import MemoryIngester
from foremind.memory.profile import facts_in
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.supervision import run_or_offload
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureReader
from foremind.storage.quotas import UserQuota
from foremind.text.pin_requests import text_to_pin

_log = structlog.get_logger("foremind.memory")


def _bytes(text: str) -> int:
    return len(text.encode())


class Corrector:
    """Replaces the text of a memory everywhere.

    The turns that it was made of get the corrected text. Whatever else contains the old one,
    including replies that mention it, is erased, what was derived from it is regenerated, and what
    was pinned of it gets the corrected text.
    """

    def __init__(
        self,
        database: Database,
        embedder: EmbeddingService,
        ingester: MemoryIngester,
        clock: Clock,
        thresholds: SimilarityThresholds,
        quota: UserQuota,
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._ingester = ingester
        self._clock = clock
        self._thresholds = thresholds
        self._quota = quota

    async def correct(
        self,
        relationship_id: int,
        names: tuple[str, str],
        memory_id: int,
        content: str,
        *,
        actor: str,
        read_in_exchange: bool,
    ) -> None:
        """Correct a memory of a relationship.

        Args:
            names: the user's and the companion's.
            read_in_exchange: whether the companion's memories are embedded with their neighbours.

        Raises:
            NotFound: the relationship has no such memory.
            StorageFull: it is longer, and the user has stored as much as one may.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        vector = await self._embedder.embed_passage(content)
        vectors = await self._ingester.name_vectors(*names)
        corrected: set[int] = set()
        prepare = partial(self._prepare, memory_id, content, corrected)
        async with find_and_lock(self._database, relationship_id, self._embedder, prepare) as (
            transaction,
            texts,
            erased,
        ):
            more = sum(_bytes(content) - _bytes(texts.turns[turn].content) for turn in corrected)
            if more > 0:
                await self._quota.admit(user_id_of(relationship_id), more, turns=0)
            await transaction.correct_memory(memory_id, corrected, content, vector)
            language = transaction.seen.language
            facts = await run_or_offload(len(content), lambda: facts_in(content, language))
            await transaction.replace_facts(memory_id, facts)
            turn = ExchangeTurn(0, "user", content, vector, memory_id)
            text = standalone_text(turn, vector, language)
            await transaction.reembed_memories({memory_id: text})
            now = self._clock.now()
            steps = ErasureSteps(
                transaction,
                self._embedder,
                vectors if read_in_exchange else None,
                now,
                ErasureCounts(),
            )
            pin = text_to_pin(content) or content
            for record_id in erased.corrected:
                pin_vector = await self._embedder.embed_passage(pin)
                await transaction.replace_state_text(record_id, 0, pin, now, pin_vector)
            erased_turns = (erased.turns - corrected) | erased.replies
            await transaction.recompute_superseded(now, memory_id)
            await transaction.delete_alternatives()
            await steps.remove(erased_turns, erased, corrected=corrected)
            await steps.clear_states(texts, erased)
            await transaction.audit(actor, "correct", f"memory {memory_id}", now)
            await transaction.announce({*corrected, *erased_turns})
        _log.info("memory.corrected", relationship_id=relationship_id, memory_id=memory_id)

    async def _prepare(
        self, memory_id: int, content: str, corrected: set[int], reader: ErasureReader
    ) -> Decide:
        """Add a memory's turns to `corrected`; return the function that finds what to erase."""
        corrected.clear()
        corrected.update(await reader.turns_of_memories([memory_id]))
        if not corrected:
            raise NotFound("memory: expected the id of a memory here", param="memory")

        def decide(texts: RelationshipTexts) -> ErasedContent:
            return find_erased_content(
                texts,
                corrected,
                include_repetitions=True,
                replacement=content,
                thresholds=self._thresholds,
            )

        return decide
