"""After Enter: score a turn, and store it as a memory if it is significant."""

from collections.abc import Sequence
from functools import partial
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from cachetools import LRUCache, TTLCache

from foremind.domain.announcements import (
    Announcement,
    MemoriesForgotten,
    MemoryAnnouncement,
    UserErased,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import Conflict, NotFound
from foremind.domain.memory import MemoryText, NewMemory, SimilarMemory
from foremind.domain.policy import Policy, StoragePolicy, policy_for
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.settings.settings import Settings
from foremind.domain.step import TurnStep, place_of
from foremind.domain.turn import ExchangeTurn, Speaker, TurnToRemember
from foremind.memory.consolidation import find_same, only_quotes, reinforced_significance
from foremind.memory.contextual_embedding import (
    contextual_text,
    position_of,
    reembed_neighbours,
    standalone_text,
)
from foremind.memory.exclusive_facts import facts_in
from foremind.memory.reply_information import is_informative
from foremind.memory.scoring import (
    SignificanceScore,
    score_as_requested,
    score_from_rating,
    score_significance,
)
from foremind.memory.short_answers import MIN_ANSWER_SCORE, answer_score, question_to_keep
from foremind.retrieval.classifiers import TextClassifiers
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.metrics import Metrics
from foremind.runtime.offload import run_or_offload
from foremind.storage.ingest_store import IngestTransaction
from foremind.storage.memory_store import MemoryStore
from foremind.text.questions import is_pure_question
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.time_expressions import spans_in
from foremind.text.tokenization import count_terms

Vector = npt.NDArray[np.float32]

# Vectors computed on the typing path: a turn is normally ingested within a second.
_MAX_TURN_VECTORS = 4096
_TURN_VECTOR_TTL_S = 120.0
_MAX_NAME_VECTORS = 10_000

_INGESTED: tuple[TurnStep, ...] = ("ingest",)
_INGESTED_AS_RATED: tuple[TurnStep, ...] = ("ingest", "rating")

# What was said is of this type; the other types are for what games report.
_TYPE_OF_SAID = "conversation"
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

    def cache_turn_vector(self, turn_id: int, vector: Vector) -> None:
        """Cache the vector of a turn's exact text, so that ingest need not embed it again."""
        if self._embedder.same_for_query_and_passage:
            self._turn_vectors[turn_id] = vector

    async def mark_used(self, relationship_id: int, memory_ids: Sequence[int]) -> None:
        """Record that memories were used in a reply.

        Raises:
            StorageUnavailable: it could not be recorded.
        """
        if memory_ids:
            await self._store.mark_used(relationship_id, memory_ids, self._clock.now())

    async def ingest(
        self,
        relationship_id: int,
        turn_id: int,
        *,
        rating: int | None = None,
        replaced: Sequence[int] = (),
        requested: bool = False,
    ) -> MemoryAnnouncement | None:
        """Score a stored turn and keep it if it is significant; None if it no longer exists.

        In either case the neighbours' memories are re-embedded, now that more of their context is
        known, and a question that the turn answers is scored again. The same transaction records
        that the turn waits for ingest no longer, and that the question does until it is scored.
        With a language model's `rating`, 1 to 10, the turn is scored again by it, and the turn's
        memory supersedes those in `replaced`. What was `requested` is kept in any case, and so is
        what a game reported.

        Raises:
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        started = self._clock.monotonic()
        while True:
            turn = await self._store.turn(relationship_id, turn_id)
            if turn is None:
                return None
            try:
                announcement, question_id = await self._ingest_turn(
                    turn, rating, replaced, requested=requested
                )
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
            await self.ingest(relationship_id, question_id)
        return announcement

    def policy_of(self, turn: TurnToRemember) -> Policy:
        """Return the policy by which a turn is scored."""
        effective = effective_settings(turn.companion_settings, turn.settings, self._settings)
        return policy_for(effective, self._settings)

    async def _ingest_turn(
        self,
        turn: TurnToRemember,
        rating: int | None,
        replaced: Sequence[int],
        *,
        requested: bool,
    ) -> tuple[MemoryAnnouncement, int | None]:
        """Return what became of the turn, and the question that is to be scored again, if any."""
        in_force = self.policy_of(turn)
        policy = in_force.storage
        happened = turn.event_type is not None
        vector = await self._vector(turn)
        names = await self.name_vectors(turn.user_name, turn.companion_name)
        async with self._store.begin_ingest(turn) as transaction:
            window = await transaction.context_window(vector)
            position = position_of(window, turn.id)
            # Long texts are processed in a thread, still under the lock that erasure waits for.
            chars = sum(len(neighbour.content) for neighbour in window)
            verdict = await run_or_offload(
                chars, lambda: self._judge(window, position, vector, policy, rating, turn.language)
            )
            if requested or happened:
                verdict = score_as_requested(verdict, policy.threshold)
            memory_id = await transaction.memory()
            if memory_id is None and verdict.score >= policy.threshold and turn.content.strip():
                text = await run_or_offload(
                    chars,
                    lambda: _memory_text(
                        window,
                        position,
                        vector,
                        names,
                        turn.language,
                        read_in_exchange=policy.read_in_exchange and not happened,
                    ),
                )
                before = [neighbour.content for neighbour in window[:position]]
                memory_id = await self._store_memory(
                    transaction, turn, text, verdict, policy, before
                )
            elif memory_id is not None and rating is not None:
                await transaction.rescore(memory_id, verdict.score, _json(verdict))
            if memory_id is not None:
                for older_id in replaced:
                    await transaction.supersede(
                        older_id, memory_id, _SUPERSEDED_BY_MODEL, self._clock.now()
                    )
            question_id = (
                None if memory_id is None else question_to_keep(window, position, turn.language)
            )
            asks_model = policy.rules.model and rating is None and not happened
            asks_model = asks_model and bool(turn.content.strip())
            place = place_of(in_force.chat_model) if asks_model else None
            await self._record_steps(transaction, question_id, place, rated=rating is not None)
            if policy.read_in_exchange and not happened:
                await transaction.store_reembedded(
                    await run_or_offload(
                        chars, lambda: reembed_neighbours(window, turn.id, names, turn.language)
                    )
                )
            announcement = transaction.announce(
                verdict.score,
                verdict.reasons,
                memory_id,
                None if memory_id is None else _type_of(turn),
            )
        return announcement, question_id

    async def _record_steps(
        self,
        transaction: IngestTransaction,
        question_id: int | None,
        place: str | None,
        *,
        rated: bool,
    ) -> None:
        """Record which steps the turn has passed, and which follow.

        Args:
            question_id: the question that is to be scored again.
            place: of the model that is to rate the turn.
        """
        now = self._clock.now()
        if question_id is not None:
            await transaction.enqueue_ingest(question_id, now)
        if place is not None:
            await transaction.enqueue_rating(place, now)
        await transaction.dequeue(_INGESTED_AS_RATED if rated else _INGESTED)

    def _judge(
        self,
        window: Sequence[ExchangeTurn],
        position: int,
        vector: Vector,
        policy: StoragePolicy,
        rating: int | None,
        language: str,
    ) -> SignificanceScore:
        """Score a turn for what it says and for what it answers.

        Args:
            language: the player's, in which a text is that does not tell.
        """
        rules, text = policy.rules, window[position].content
        asks = _only_asks(window[position], language)

        def own_score(turn: ExchangeTurn) -> float:
            asks = _only_asks(turn, language)
            learned = self._log_odds(turn.content, turn.vector, asks=asks)
            return score_significance(
                turn.content, learned, rules, asks=asks, fallback=language
            ).score

        minimum = (rules.floors or {}).get("answer", MIN_ANSWER_SCORE)
        answer = answer_score(window, position, policy.threshold, minimum, own_score, language)
        if rating is not None:
            return score_from_rating(text, rating, rules, answer, asks=asks, fallback=language)
        learned = self._log_odds(text, vector, asks=asks)
        return score_significance(text, learned, rules, answer, asks=asks, fallback=language)

    def _log_odds(self, text: str, vector: Vector | None, *, asks: bool) -> float | None:
        """Return the significance classifier's log odds; None without classifier or vector.

        What only asks is classified as if it had its question mark.
        """
        if self._classifiers is None or vector is None:
            return None
        marked = text if not asks or text.rstrip().endswith(QUESTION_MARKS) else f"{text.rstrip()}?"
        return self._classifiers.classify(marked, vector).keep

    async def _store_memory(
        self,
        transaction: IngestTransaction,
        turn: TurnToRemember,
        text: MemoryText,
        verdict: SignificanceScore,
        policy: StoragePolicy,
        before: Sequence[str],
    ) -> int | None:
        """Store a turn's memory, or merge it into one that says the same; return its id.

        None if it is a reply that adds nothing, or that is not to be remembered. What happened
        again is another memory, and states nothing about a speaker.

        Args:
            before: what was said before it.
        """
        now = self._clock.now()
        consolidates = policy.consolidate and turn.event_type is None
        similar = await transaction.similar() if consolidates else []
        chars = len(turn.content) + sum(len(memory.content) for memory in similar)
        said_by_companion = turn.speaker == "companion" and turn.event_type is None
        # Without the question, an answer that is kept could not be understood.
        answered = any(reason.name == "answer" for reason in verdict.reasons)
        if said_by_companion and not await run_or_offload(
            chars, lambda: _reply_counts(turn, before, similar, policy, answered=answered)
        ):
            return None
        repetition = self._embedder.manifest.repetition
        same = await run_or_offload(
            chars,
            lambda: find_same(turn.content, turn.speaker, similar, repetition, turn.language),
        )
        if same is not None:
            significance = reinforced_significance(same.significance, verdict.score)
            reason = f"says the same, cosine {same.cosine:.2f}"
            await transaction.merge_into(same.id, significance, _json(verdict), reason, now)
            return same.id
        said_at = turn.created_at.astimezone(ZoneInfo(turn.time_zone))
        span = next(iter(spans_in(turn.content, said_at, turn.language)), None)
        memory_id = await transaction.insert(
            NewMemory(
                significance=verdict.score,
                reasons=_json(verdict),
                memory_type=_type_of(turn),
                text=text,
                happened=None if span is None else (span.start, span.end),
            )
        )
        if consolidates:
            for fact in await run_or_offload(
                len(turn.content), lambda: facts_in(turn.content, turn.language)
            ):
                await transaction.state_fact(memory_id, fact, now)
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

    def on_announcement(self, announcement: Announcement) -> None:
        """Drop cached vectors of erased turns and, if a user was erased, of names."""
        if isinstance(announcement, UserErased):
            self._name_vectors.clear()  # whose names they are is not announced
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
    language: str,
    *,
    read_in_exchange: bool,
) -> MemoryText:
    if read_in_exchange:
        return contextual_text(window, position, names, partial(count_terms, fallback=language))
    return standalone_text(window[position], vector, language)


def _reply_counts(
    turn: TurnToRemember,
    before: Sequence[str],
    similar: Sequence[SimilarMemory],
    policy: StoragePolicy,
    *,
    answered: bool,
) -> bool:
    """Return whether a reply may be remembered.

    Args:
        answered: whether it asks what a memory answers.
    """
    if policy.remember_replies == "none" or only_quotes(turn.content, similar):
        return False
    if answered:
        return True
    known = [*before, *(memory.content for memory in similar), turn.user_name, turn.companion_name]
    return policy.remember_replies == "all" or is_informative(turn.content, known, turn.language)


def _type_of(turn: TurnToRemember) -> str:
    return turn.event_type or _TYPE_OF_SAID


def _only_asks(turn: ExchangeTurn, language: str) -> bool:
    return turn.speaker == "user" and is_pure_question(turn.content, language)
