"""After Enter: judge a turn, and keep it if it matters. Runs as a durable job."""

import numpy as np
import numpy.typing as npt
import structlog
from cachetools import LRUCache, TTLCache

from foremind.clock import Clock
from foremind.companions import policy_for
from foremind.embedding.service import EmbeddingService
from foremind.memory.exchange import position_of, read_in_exchange, reread
from foremind.memory.significance import judge
from foremind.memory.terms import count_terms
from foremind.metrics import Metrics
from foremind.settings import Settings
from foremind.storage.memories import MemoryStore
from foremind.storage.remembering import MemoryAnnouncement, NewMemory, TurnToRemember
from foremind.storage.turns import Speaker

# Vectors handed over from the typing path: a job normally runs within a second of its turn.
_HANDOVER_ITEMS = 4096
_HANDOVER_S = 120.0
_NAMES = 10_000  # speakers whose names are kept embedded

# What was said is a conversation; the other types are for what games tell.
_TYPE = "conversation"

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

        Either way its neighbours' memories are read anew, now that more of the exchange is known.

        Raises:
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        started = self._clock.monotonic()
        turn = await self._store.turn(turn_id)
        if turn is None:
            return None
        verdict = judge(turn.content)
        threshold = policy_for(turn.settings, self._settings).recall.significance_threshold
        matters = verdict.score >= threshold and bool(turn.content.strip())
        vector = await self._vector(turn)
        names = await self._name_vectors(turn)
        memory_id = None
        async with self._store.remembering(turn) as transaction:
            around = await transaction.exchange(vector)
            if matters:
                memory_id = await transaction.insert(
                    NewMemory(
                        significance=verdict.score,
                        memory_type=_TYPE,
                        vector=read_in_exchange(around, position_of(around, turn.id), names),
                        terms=count_terms(turn.content),
                    )
                )
            await transaction.reread(reread(around, turn.id, names))
            announcement: MemoryAnnouncement = await transaction.announce(
                verdict.score, memory_id, _TYPE if matters else None
            )
        self._metrics.memories.labels("stored" if matters else "insignificant").inc()
        self._metrics.stage_seconds.labels("store").observe(self._clock.monotonic() - started)
        _log.info(
            "turn.judged",
            turn_id=turn_id,
            memory_id=memory_id,
            significance=verdict.score,
            signals=verdict.signals,
        )
        return announcement

    async def _vector(self, turn: TurnToRemember) -> npt.NDArray[np.float32]:
        """Return the vector of a turn's exact text, reusing what was made while it was typed."""
        made = self._vectors.pop(turn.id, None)
        return await self._embedder.embed_passage(turn.content) if made is None else made

    async def _name_vectors(self, turn: TurnToRemember) -> dict[Speaker, npt.NDArray[np.float32]]:
        return {
            "user": await self._name(turn.user_name),
            "companion": await self._name(turn.companion_name),
        }

    async def _name(self, name: str) -> npt.NDArray[np.float32]:
        vector = self._names.get(name)
        if vector is None:
            vector = self._names[name] = await self._embedder.embed_passage(name)
        return vector
