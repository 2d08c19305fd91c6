"""After Enter: judge a turn, and keep it if it matters. Runs as a durable job."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from cachetools import LRUCache, TTLCache

from foremind.clock import Clock
from foremind.embedding.service import EmbeddingService
from foremind.errors import NotFound
from foremind.memory.consolidation import find_same, grown, only_quotes
from foremind.memory.dates import spans_in
from foremind.memory.exchange import position_of, read_alone, read_in_exchange, reread
from foremind.memory.facts import facts_in
from foremind.memory.heads import Heads
from foremind.memory.significance import Significance, judge, judge_rated
from foremind.metrics import Metrics
from foremind.policies import StoragePolicy, policy_for
from foremind.settings import Settings
from foremind.storage.forgetting import MemoriesForgotten
from foremind.storage.memories import MemoryStore
from foremind.storage.notifications import Announcement
from foremind.storage.remembering import (
    ExchangeTurn,
    MemoryAnnouncement,
    MemoryText,
    NewMemory,
    RememberingTransaction,
    TurnToRemember,
)
from foremind.storage.turns import Speaker

Vector = npt.NDArray[np.float32]

# Vectors handed over from the typing path: a job normally runs within a second of its turn.
_HANDOVER_ITEMS = 4096
_HANDOVER_S = 120.0
_NAMES = 10_000  # speakers whose names are kept embedded

# What was said is a conversation; the other types are for what games tell.
_TYPE = "conversation"
_MODEL_SAID = "the language model found that it no longer holds"

_log = structlog.get_logger("foremind.memory")


class Rememberer:
    """Turns what was said into memories; doing a turn twice changes nothing."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: EmbeddingService,
        heads: Heads | None,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._heads = heads
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._vectors: TTLCache[int, Vector] = TTLCache(
            _HANDOVER_ITEMS, _HANDOVER_S, timer=clock.monotonic
        )
        self._names: LRUCache[str, Vector] = LRUCache(_NAMES)

    def hand_over(self, turn_id: int, vector: Vector) -> None:
        """Offer the vector of a turn's exact text, so that it need not be made again."""
        if self._embedder.same_for_query_and_passage:
            self._vectors[turn_id] = vector

    async def refresh(self, relationship_id: int, memory_ids: Sequence[int]) -> None:
        """Note that memories served a reply.

        Raises:
            StorageUnavailable: it could not be noted.
        """
        if memory_ids:
            await self._store.refresh(relationship_id, memory_ids, self._clock.now())

    async def remember(
        self,
        relationship_id: int,
        turn_id: int,
        *,
        rating: int | None = None,
        replaced: Sequence[int] = (),
    ) -> MemoryAnnouncement | None:
        """Judge a stored turn and keep it if it matters; None where the turn is gone.

        Either way its neighbours' memories are read anew, now that more of the exchange is known.
        With a language model's `rating`, 1 to 10, the turn is judged again by it, and the
        memories that it says are `replaced` are superseded by the turn's.

        Raises:
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        started = self._clock.monotonic()
        turn = await self._store.turn(relationship_id, turn_id)
        if turn is None:
            return None
        try:
            announcement = await self._remember(turn, rating, replaced)
        except NotFound:  # forgotten while this waited for its turn
            return None
        kept = announcement.memory_id is not None
        self._metrics.memories.labels("stored" if kept else "insignificant").inc()
        self._metrics.stage_seconds.labels("store").observe(self._clock.monotonic() - started)
        _log.info(
            "turn.judged",
            turn_id=turn_id,
            memory_id=announcement.memory_id,
            significance=announcement.significance,
        )
        return announcement

    async def _remember(
        self, turn: TurnToRemember, rating: int | None, replaced: Sequence[int]
    ) -> MemoryAnnouncement:
        policy = policy_for(turn.settings, self._settings).storage
        vector = await self._vector(turn)
        names = await self.name_vectors(turn.user_name, turn.companion_name)
        verdict = self._judge(turn, vector, policy, rating)
        async with self._store.remembering(turn) as transaction:
            around = await transaction.exchange(vector)
            memory_id = await transaction.memory()
            if memory_id is None and verdict.score >= policy.threshold and turn.content.strip():
                text = _read(around, turn, vector, names, policy)
                memory_id = await self._keep(transaction, turn, text, verdict, policy)
            elif memory_id is not None and rating is not None:
                await transaction.rescore(memory_id, verdict.score, _json(verdict))
            if memory_id is not None:
                for older in replaced:
                    await transaction.supersede(older, memory_id, _MODEL_SAID, self._clock.now())
            if policy.rules.model and rating is None and turn.content.strip():
                await transaction.ask_for_rating()
            if policy.read_in_exchange:
                await transaction.reread(reread(around, turn.id, names))
            announcement: MemoryAnnouncement = await transaction.announce(
                verdict.score, verdict.reasons, memory_id, None if memory_id is None else _TYPE
            )
        return announcement

    def _judge(
        self, turn: TurnToRemember, vector: Vector, policy: StoragePolicy, rating: int | None
    ) -> Significance:
        if rating is not None:
            return judge_rated(turn.content, rating, policy.rules)
        learned = None if self._heads is None else self._heads.read(turn.content, vector).keep
        return judge(turn.content, learned, policy.rules)

    async def _keep(
        self,
        transaction: RememberingTransaction,
        turn: TurnToRemember,
        text: MemoryText,
        verdict: Significance,
        policy: StoragePolicy,
    ) -> int | None:
        """Store a turn's memory, or merge it into one that says the same; return that memory.

        None where the companion only quoted a memory.
        """
        now = self._clock.now()
        similar = await transaction.similar() if policy.consolidate else []
        if turn.speaker == "companion" and only_quotes(turn.content, similar):
            return None
        same = find_same(turn.content, turn.speaker, similar)
        if same is not None:
            score = grown(same.significance, verdict.score)
            why = f"says the same, cosine {same.cosine:.2f}"
            await transaction.merge_into(same.id, score, _json(verdict), why, now)
            return same.id
        said_at = turn.created_at.astimezone(ZoneInfo(turn.time_zone))
        span = next(iter(spans_in(turn.content, said_at)), None)
        memory_id = await transaction.insert(
            NewMemory(
                significance=verdict.score,
                reasons=_json(verdict),
                memory_type=_TYPE,
                text=text,
                happened=None if span is None else (span.start, span.end),
            )
        )
        if policy.consolidate:
            for fact in facts_in(turn.content):
                await transaction.state(memory_id, fact, now)
        return memory_id

    async def _vector(self, turn: TurnToRemember) -> Vector:
        """Return the vector of a turn's exact text, reusing what was made while it was typed."""
        made = self._vectors.pop(turn.id, None)
        return await self._embedder.embed_passage(turn.content) if made is None else made

    async def name_vectors(self, user_name: str, companion_name: str) -> dict[Speaker, Vector]:
        """Return the unit vectors of the names of both who speak."""
        return {"user": await self._name(user_name), "companion": await self._name(companion_name)}

    def heard(self, announcement: Announcement) -> None:
        """Drop vectors that were handed over for turns that are forgotten."""
        if isinstance(announcement, MemoriesForgotten):
            for turn_id in announcement.turn_ids:
                self._vectors.pop(turn_id, None)

    async def _name(self, name: str) -> Vector:
        vector = self._names.get(name)
        if vector is None:
            vector = self._names[name] = await self._embedder.embed_passage(name)
        return vector


def _json(verdict: Significance) -> str:
    return msgspec.json.encode(verdict.reasons).decode()


def _read(
    around: list[ExchangeTurn],
    turn: TurnToRemember,
    vector: Vector,
    names: dict[Speaker, Vector],
    policy: StoragePolicy,
) -> MemoryText:
    here = position_of(around, turn.id)
    if policy.read_in_exchange:
        return read_in_exchange(around, here, names)
    return read_alone(around[here], vector)
