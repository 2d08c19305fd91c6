"""After Enter: judge a turn, and keep it if it matters. Runs as a durable job."""

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
from foremind.memory.consolidation import find_same, grown, only_quotes
from foremind.memory.context_window import position_of, read_alone, read_in_exchange, reread
from foremind.memory.exclusive_facts import facts_in
from foremind.memory.scoring import SignificanceScore, judge, judge_rated
from foremind.memory.short_answers import LEAST, answer_score, question_to_keep
from foremind.retrieval.classifiers import TextClassifiers
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.metrics import Metrics
from foremind.runtime.offload import aside
from foremind.storage.ingest_store import IngestTransaction
from foremind.storage.memory_store import MemoryStore
from foremind.storage.notifications import Announcement
from foremind.text.time_expressions import spans_in

Vector = npt.NDArray[np.float32]

# Vectors handed over from the typing path: a job normally runs within a second of its turn.
_HANDOVER_ITEMS = 4096
_HANDOVER_S = 120.0
_NAMES = 10_000  # speakers whose names are kept embedded

# What was said is a conversation; the other types are for what games tell.
_TYPE = "conversation"
_MODEL_SAID = "the language model found that it no longer holds"

_log = structlog.get_logger("foremind.memory")


class MemoryIngester:
    """Turns what was said into memories; doing a turn twice changes nothing."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: EmbeddingService,
        heads: TextClassifiers | None,
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

        Either way its neighbours' memories are read anew, now that more of the exchange is known,
        and a question that it answers is judged again.
        With a language model's `rating`, 1 to 10, the turn is judged again by it, and the
        memories that it says are `replaced` are superseded by the turn's.

        Raises:
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        started = self._clock.monotonic()
        while True:
            turn = await self._store.turn(relationship_id, turn_id)
            if turn is None:
                return None
            try:
                announcement, question_id = await self._remember(turn, rating, replaced)
                break
            except NotFound:  # forgotten while this waited for its turn
                return None
            except Conflict:  # corrected meanwhile: what it says now is judged
                self._vectors.pop(turn_id, None)
        kept = announcement.memory_id is not None
        self._metrics.memories.labels("stored" if kept else "insignificant").inc()
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
        """Return the settings by which a turn is judged."""
        own = in_force(turn.companion_settings, turn.settings, self._settings)
        return policy_for(own, self._settings)

    async def _remember(
        self, turn: TurnToRemember, rating: int | None, replaced: Sequence[int]
    ) -> tuple[MemoryAnnouncement, int | None]:
        """Return what became of the turn, and the question that is to be judged again, if any."""
        policy = self.policy_of(turn).storage
        vector = await self._vector(turn)
        names = await self.name_vectors(turn.user_name, turn.companion_name)
        async with self._store.remembering(turn) as transaction:
            around = await transaction.exchange(vector)
            here = position_of(around, turn.id)
            # In a thread where they are long, and still under the lock that forgetting waits for.
            chars = sum(len(each.content) for each in around)
            verdict = await aside(chars, lambda: self._judge(around, here, vector, policy, rating))
            memory_id = await transaction.memory()
            if memory_id is None and verdict.score >= policy.threshold and turn.content.strip():
                text = await aside(chars, lambda: _read(around, turn, vector, names, policy))
                memory_id = await self._keep(transaction, turn, text, verdict, policy)
            elif memory_id is not None and rating is not None:
                await transaction.rescore(memory_id, verdict.score, _json(verdict))
            if memory_id is not None:
                for older in replaced:
                    await transaction.supersede(older, memory_id, _MODEL_SAID, self._clock.now())
            if policy.rules.model and rating is None and turn.content.strip():
                await transaction.ask_for_rating()
            if policy.read_in_exchange:
                await transaction.reread(await aside(chars, lambda: reread(around, turn.id, names)))
            announcement: MemoryAnnouncement = await transaction.announce(
                verdict.score, verdict.reasons, memory_id, None if memory_id is None else _TYPE
            )
        return announcement, None if memory_id is None else question_to_keep(around, here)

    def _judge(
        self,
        around: Sequence[ExchangeTurn],
        here: int,
        vector: Vector,
        policy: StoragePolicy,
        rating: int | None,
    ) -> SignificanceScore:
        """Judge a turn, by itself and for what it answers."""
        rules, text = policy.rules, around[here].content

        def own_score(turn: ExchangeTurn) -> float:
            return judge(turn.content, self._learned(turn.content, turn.vector), rules).score

        least = (rules.floors or {}).get("answer", LEAST)
        answer = answer_score(around, here, policy.threshold, least, own_score)
        if rating is not None:
            return judge_rated(text, rating, rules, answer)
        return judge(text, self._learned(text, vector), rules, answer)

    def _learned(self, text: str, vector: Vector | None) -> float | None:
        """Return the keeping head's log odds, None where there is no head, or no vector yet."""
        if self._heads is None or vector is None:
            return None
        return self._heads.read(text, vector).keep

    async def _keep(
        self,
        transaction: IngestTransaction,
        turn: TurnToRemember,
        text: MemoryText,
        verdict: SignificanceScore,
        policy: StoragePolicy,
    ) -> int | None:
        """Store a turn's memory, or merge it into one that says the same; return that memory.

        None where the companion only quoted a memory.
        """
        now = self._clock.now()
        similar = await transaction.similar() if policy.consolidate else []
        chars = sum(len(each) for each in (turn.content, *(one.content for one in similar)))
        if turn.speaker == "companion" and await aside(
            chars, lambda: only_quotes(turn.content, similar)
        ):
            return None
        same = await aside(chars, lambda: find_same(turn.content, turn.speaker, similar))
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
            for fact in await aside(len(turn.content), lambda: facts_in(turn.content)):
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
        """Drop vectors that were made for turns that are forgotten, or of an erased user's name."""
        if isinstance(announcement, UserErased):
            self._names.pop(announcement.name, None)
        if isinstance(announcement, MemoriesForgotten):
            if announcement.turn_ids is None:
                self._vectors.clear()
            for turn_id in announcement.turn_ids or ():
                self._vectors.pop(turn_id, None)

    async def _name(self, name: str) -> Vector:
        vector = self._names.get(name)
        if vector is None:
            vector = self._names[name] = await self._embedder.embed_passage(name)
        return vector


def _json(verdict: SignificanceScore) -> str:
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
