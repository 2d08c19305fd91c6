"""After Enter: judge a turn, and keep it if it matters. Runs as a durable job."""

import numpy as np
import numpy.typing as npt
import structlog
from cachetools import LRUCache, TTLCache

from foremind.clock import Clock
from foremind.companions import policy_for
from foremind.embedding.service import EmbeddingService
from foremind.memory.passage import lean_to_speaker
from foremind.memory.significance import judge
from foremind.memory.terms import count_terms
from foremind.metrics import Metrics
from foremind.settings import Settings
from foremind.storage.memories import MemoryAnnouncement, MemoryStore, NewMemory, TurnToRemember

# Vectors handed over from the typing path: a job normally runs within a second of its turn.
_HANDOVER_ITEMS = 4096
_HANDOVER_S = 120.0
_NAMES = 10_000  # speakers whose names are kept embedded

_log = structlog.get_logger("foremind.memory")


class Rememberer:
    """Turns what was said into memories; doing a turn twice changes nothing."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: EmbeddingService,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._vectors: TTLCache[int, npt.NDArray[np.float32]] = TTLCache(
            _HANDOVER_ITEMS, _HANDOVER_S, timer=clock.monotonic
        )
        self._names: LRUCache[str, npt.NDArray[np.float32]] = LRUCache(_NAMES)

    def hand_over(self, turn_id: int, vector: npt.NDArray[np.float32]) -> None:
        """Offer the vector of a turn's exact text, so that it need not be made again."""
        if self._embedder.same_for_query_and_passage:
            self._vectors[turn_id] = vector

    async def remember(self, turn_id: int) -> MemoryAnnouncement | None:
        """Judge a stored turn and keep it if it matters; None where the turn is gone.

        Raises:
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        started = self._clock.monotonic()
        turn = await self._store.turn(turn_id)
        if turn is None:
            return None
        verdict = judge(turn.content)
        threshold = policy_for(turn.settings, self._settings).recall.significance_threshold
        if verdict.score < threshold or not turn.content.strip():
            self._metrics.memories.labels("insignificant").inc()
            return await self._store.announce_insignificant(turn, verdict.score)
        stored = await self._store.insert(
            NewMemory(
                turn=turn,
                significance=verdict.score,
                memory_type="conversation",
                vector=await self._vector(turn),
                terms=count_terms(turn.content),
            )
        )
        self._metrics.memories.labels("stored").inc()
        self._metrics.stage_seconds.labels("store").observe(self._clock.monotonic() - started)
        _log.info(
            "memory.stored",
            turn_id=turn_id,
            memory_id=stored.memory_id,
            significance=verdict.score,
            signals=verdict.signals,
        )
        return stored

    async def _vector(self, turn: TurnToRemember) -> npt.NDArray[np.float32]:
        """Return the memory's vector, reusing what was made for exactly this text."""
        text = self._vectors.pop(turn.id, None)
        if text is None:
            text = await self._embedder.embed_passage(turn.content)
        name = self._names.get(turn.speaker_name)
        if name is None:
            name = await self._embedder.embed_passage(turn.speaker_name)
            self._names[turn.speaker_name] = name
        return lean_to_speaker(text, name)
