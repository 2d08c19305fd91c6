"""After Enter: score a turn, and store it as a memory if it is significant. A durable job."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from cachetools import LRUCache, TTLCache

from foremind.domain.announcements import MemoriesForgotten, MemoryAnnouncement, UserErased
from foremind.domain.clock import Clock
from foremind.domain.errors import Conflict, NotFound
from foremind.domain.memory import MemoryText, NewMemory
from foremind.domain.policy import Policy, StoragePolicy, policy_for
from foremind.domain.setting_levels import in_force
from foremind.domain.settings import Settings
from foremind.domain.turn import ExchangeTurn, Speaker, TurnToRemember
from foremind.memory.consolidation import find_same, only_quotes, reinforced_significance
from foremind.memory.context_window import (
    contextual_text,
    position_of,
    reembed_neighbours,
    standalone_text,
)
from foremind.memory.exclusive_facts import facts_in
from foremind.memory.scoring import SignificanceScore, judge, judge_rated
from foremind.memory.short_answers import MIN_ANSWER_SCORE, answer_score, question_to_keep
from foremind.retrieval.classifiers import TextClassifiers
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.metrics import Metrics
from foremind.runtime.offload import aside
from foremind.storage.ingest_store import IngestTransaction
from foremind.storage.memory_store import MemoryStore
from foremind.storage.notifications import Announcement
from foremind.text.time_expressions import spans_in

Vector = npt.NDArray[np.float32]

# Vectors computed on the typing path: a job normally runs within a second of its turn.
_MAX_TURN_VECTORS = 4096
_TURN_VECTOR_TTL_S = 120.0
_MAX_NAME_VECTORS = 10_000

# What was said is of this type; the other types are for what games report.
_TYPE = "conversation"
_SUPERSEDED_BY_MODEL = "the language model found that it no longer holds"

_log = structlog.get_logger("foremind.memory")


class MemoryIngester:
    """Turns what was said into memories; ingesting a turn is idempotent."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: EmbeddingService,
        classifiers: TextClassifiers | None,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._classifiers = classifiers
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._turn_vectors: TTLCache[int, Vector] = TTLCache(
            _MAX_TURN_VECTORS, _TURN_VECTOR_TTL_S, timer=clock.monotonic
        )
        self._name_vectors: LRUCache[str, Vector] = LRUCache(_MAX_NAME_VECTORS)

    def hand_over(self, turn_id: int, vector: Vector) -> None:
        """Cache the vector of a turn's exact text, so that its job need not embed it again."""
        if self._embedder.same_for_query_and_passage:
            self._turn_vectors[turn_id] = vector

    async def refresh(self, relationship_id: int, memory_ids: Sequence[int]) -> None:
        """Record that memories were used in a reply.

        Raises:
            StorageUnavailable: it could not be recorded.
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
        """Score a stored turn and keep it if it is significant; None if it no longer exists.

        In either case the neighbours' memories are re-embedded, now that more of their context is
        known, and a question that the turn answers is scored again.
        With a language model's `rating`, 1 to 10, the turn is scored again by it, and the turn's
        memory supersedes those in `replaced`.

        Raises:
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        started = self._clock.monotonic()
        while True:
            turn = await self._store.turn(relationship_id, turn_id)
            if turn is None:
                return None
            try:
                announcement, question_id = await self._ingest_turn(turn, rating, replaced)
                break
            except NotFound:  # erased while this waited for the relationship's lock
                return None
            except Conflict:  # corrected in the meantime: score the new text
                self._turn_vectors.pop(turn_id, None)
        stored = announcement.memory_id is not None
        self._metrics.memories.labels("stored" if stored else "insignificant").inc()
        self._metrics.stage_seconds.labels("store").observe(self._clock.monotonic() - started)
        _log.info(
            "turn.judged",
            turn_id=turn_id,
            memory_id=announcement.memory_id,
            significance=announcement.significance,
        )
        if question_id is not None:
            await self.remember(relationship_id, question_id)
        return announcement

    def policy_of(self, turn: TurnToRemember) -> Policy:
        """Return the policy by which a turn is scored."""
        effective = in_force(turn.companion_settings, turn.settings, self._settings)
        return policy_for(effective, self._settings)

    async def _ingest_turn(
        self, turn: TurnToRemember, rating: int | None, replaced: Sequence[int]
    ) -> tuple[MemoryAnnouncement, int | None]:
        """Return what became of the turn, and the question that is to be scored again, if any."""
        policy = self.policy_of(turn).storage
        vector = await self._vector(turn)
        names = await self.name_vectors(turn.user_name, turn.companion_name)
        async with self._store.remembering(turn) as transaction:
            window = await transaction.exchange(vector)
            position = position_of(window, turn.id)
            # Long texts are processed in a thread, still under the lock that erasure waits for.
            chars = sum(len(neighbour.content) for neighbour in window)
            verdict = await aside(
                chars, lambda: self._judge(window, position, vector, policy, rating)
            )
            memory_id = await transaction.memory()
            if memory_id is None and verdict.score >= policy.threshold and turn.content.strip():
                text = await aside(
                    chars, lambda: _memory_text(window, position, vector, names, policy)
                )
                memory_id = await self._store_memory(transaction, turn, text, verdict, policy)
            elif memory_id is not None and rating is not None:
                await transaction.rescore(memory_id, verdict.score, _json(verdict))
            if memory_id is not None:
                for older_id in replaced:
                    await transaction.supersede(
                        older_id, memory_id, _SUPERSEDED_BY_MODEL, self._clock.now()
                    )
            if policy.rules.model and rating is None and turn.content.strip():
                await transaction.ask_for_rating()
            if policy.read_in_exchange:
                await transaction.reread(
                    await aside(chars, lambda: reembed_neighbours(window, turn.id, names))
                )
            announcement: MemoryAnnouncement = await transaction.announce(
                verdict.score, verdict.reasons, memory_id, None if memory_id is None else _TYPE
            )
        return announcement, None if memory_id is None else question_to_keep(window, position)

    def _judge(
        self,
        window: Sequence[ExchangeTurn],
        position: int,
        vector: Vector,
        policy: StoragePolicy,
        rating: int | None,
    ) -> SignificanceScore:
        """Score a turn for what it says and for what it answers."""
        rules, text = policy.rules, window[position].content

        def own_score(turn: ExchangeTurn) -> float:
            return judge(turn.content, self._log_odds(turn.content, turn.vector), rules).score

        minimum = (rules.floors or {}).get("answer", MIN_ANSWER_SCORE)
        answer = answer_score(window, position, policy.threshold, minimum, own_score)
        if rating is not None:
            return judge_rated(text, rating, rules, answer)
        return judge(text, self._log_odds(text, vector), rules, answer)

    def _log_odds(self, text: str, vector: Vector | None) -> float | None:
        """Return the significance classifier's log odds; None without classifier or vector."""
        if self._classifiers is None or vector is None:
            return None
        return self._classifiers.read(text, vector).keep

    async def _store_memory(
        self,
        transaction: IngestTransaction,
        turn: TurnToRemember,
        text: MemoryText,
        verdict: SignificanceScore,
        policy: StoragePolicy,
    ) -> int | None:
        """Store a turn's memory, or merge it into one that says the same; return its id.

        None if the companion only quoted a memory.
        """
        now = self._clock.now()
        similar = await transaction.similar() if policy.consolidate else []
        chars = len(turn.content) + sum(len(memory.content) for memory in similar)
        if turn.speaker == "companion" and await aside(
            chars, lambda: only_quotes(turn.content, similar)
        ):
            return None
        same = await aside(chars, lambda: find_same(turn.content, turn.speaker, similar))
        if same is not None:
            significance = reinforced_significance(same.significance, verdict.score)
            reason = f"says the same, cosine {same.cosine:.2f}"
            await transaction.merge_into(same.id, significance, _json(verdict), reason, now)
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
            for fact in await aside(len(turn.content), lambda: facts_in(turn.content)):
                await transaction.state(memory_id, fact, now)
        return memory_id

    async def _vector(self, turn: TurnToRemember) -> Vector:
        """Return the vector of a turn's exact text, if possible that computed during typing."""
        cached = self._turn_vectors.pop(turn.id, None)
        return await self._embedder.embed_passage(turn.content) if cached is None else cached

    async def name_vectors(self, user_name: str, companion_name: str) -> dict[Speaker, Vector]:
        """Return the unit vectors of both speakers' names."""
        return {
            "user": await self._name_vector(user_name),
            "companion": await self._name_vector(companion_name),
        }

    def heard(self, announcement: Announcement) -> None:
        """Drop cached vectors of erased turns and of an erased user's name."""
        if isinstance(announcement, UserErased):
            self._name_vectors.pop(announcement.name, None)
        if isinstance(announcement, MemoriesForgotten):
            if announcement.turn_ids is None:
                self._turn_vectors.clear()
            for turn_id in announcement.turn_ids or ():
                self._turn_vectors.pop(turn_id, None)

    async def _name_vector(self, name: str) -> Vector:
        vector = self._name_vectors.get(name)
        if vector is None:
            vector = self._name_vectors[name] = await self._embedder.embed_passage(name)
        return vector


def _json(verdict: SignificanceScore) -> str:
    return msgspec.json.encode(verdict.reasons).decode()


def _memory_text(
    window: Sequence[ExchangeTurn],
    position: int,
    vector: Vector,
    names: dict[Speaker, Vector],
    policy: StoragePolicy,
) -> MemoryText:
    if policy.read_in_exchange:
        return contextual_text(window, position, names)
    return standalone_text(window[position], vector)
