"""After Enter: score turns, and store those that are significant as memories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

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
from foremind.domain.background_step import RULES_PLACE, TurnStep, place_of
from foremind.domain.clock import Clock
from foremind.domain.errors import NotFound
from foremind.domain.policy import Policy, policy_for
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.settings.settings import Settings
from foremind.domain.turn import IngestRequest, Speaker, TurnsToRemember, TurnToRemember
from foremind.memory.ingest_decisions import IngestDecider, JudgedOutcome, TurnJudge
from foremind.retrieval.classifiers import TextClassifiers
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import run_or_offload
from foremind.storage.memory_store import IngestTransaction, MemoryStore

Vector = npt.NDArray[np.float32]

# What was said lately: a turn is normally ingested within a second.
_MAX_SAID = 4096  # turns
_SAID_TTL_S = 120.0
_MAX_NAME_VECTORS = 10_000
#: How many turns one transaction ingests at most.
MAX_TURNS = 16

_MAX_TO_RATE = 1000  # relationships; a poll finds the others

_INGESTED: tuple[TurnStep, ...] = ("ingest",)
_INGESTED_AS_RATED: tuple[TurnStep, ...] = ("ingest", "rating")

_log = structlog.get_logger("foremind.memory")


@dataclass(frozen=True, slots=True)
class _ReadyTurns:
    """Turns that exist, with all that scoring them needs; `fresh` are vectors to be stored."""

    seen: TurnsToRemember
    requests: Sequence[IngestRequest]
    fresh: Mapping[int, Vector]
    names: Mapping[Speaker, Vector]


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
        self._said: TTLCache[int, tuple[str, Vector | None]] = TTLCache(
            _MAX_SAID, _SAID_TTL_S, timer=clock.monotonic
        )
        self._name_vectors: LRUCache[str, Vector] = LRUCache(_MAX_NAME_VECTORS)
        #: Relationships in which turns wait for a rating, until somebody has seen to it.
        self.to_rate: set[int] = set()

    def cache_turn(self, turn_id: int, text: str, vector: Vector | None = None) -> None:
        """Cache the text of a stored turn, so that ingest need not read it before it begins.

        Args:
            vector: that of the exact text, if it was embedded while it was typed.
        """
        usable = vector if self._embedder.same_for_query_and_passage else None
        self._said[turn_id] = text, usable

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
        """Ingest one turn, as `ingest_turns` does; None if it no longer exists.

        With a language model's `rating`, 1 to 10, it is scored again by it, and its memory
        supersedes those in `replaced`. What was `requested` is kept in any case, and so is what a
        game reported.
        """
        request = IngestRequest(turn_id, rating, replaced, requested)
        return (await self._ingest(relationship_id, [request])).get(turn_id)

    async def ingest_turns(
        self,
        relationship_id: int,
        turn_ids: Sequence[int],
        used: Sequence[int] = (),
        *,
        embedded: bool = False,
    ) -> dict[int, MemoryAnnouncement]:
        """Score stored turns in order, and keep those that are significant.

        Whether a turn is kept or not, its neighbours' memories are re-embedded, now that more of
        their context is known, and a question that it answers is scored again. The transaction that
        stores what became of turns records that they wait for ingest no longer.

        Args:
            used: memories that a reply among them was made of.
            embedded: whether they are stored with their vectors, so that none need be read before.

        Returns:
            What became of the turns that still exist.

        Raises:
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        announced: dict[int, MemoryAnnouncement] = {}
        for first in range(0, len(turn_ids), MAX_TURNS):
            requests = [IngestRequest(turn_id) for turn_id in turn_ids[first : first + MAX_TURNS]]
            announced |= await self._ingest(
                relationship_id, requests, () if first else used, embedded=embedded
            )
        return announced

    def policy_of(self, turns: TurnsToRemember) -> Policy:
        """Return the policy by which turns are scored."""
        effective = effective_settings(turns.companion_settings, turns.settings, self._settings)
        return policy_for(effective, self._settings)

    async def name_vectors(self, user_name: str, companion_name: str) -> dict[Speaker, Vector]:
        """Return the unit vectors of both speakers' names."""
        return {
            "user": await self._name_vector(user_name),
            "companion": await self._name_vector(companion_name),
        }

    def on_announcement(self, announcement: Announcement) -> None:
        """Drop what erased turns said and, if a user was erased, the vectors of names."""
        if isinstance(announcement, UserErased):
            self._name_vectors.clear()  # whose names they are is not announced
            self._said.clear()
        if isinstance(announcement, MemoriesForgotten):
            if announcement.turn_ids is None:
                self._said.clear()
            for turn_id in announcement.turn_ids or ():
                self._said.pop(turn_id, None)

    async def _ingest(
        self,
        relationship_id: int,
        requests: Sequence[IngestRequest],
        used: Sequence[int] = (),
        *,
        embedded: bool = False,
    ) -> dict[int, MemoryAnnouncement]:
        """Ingest turns in one transaction; return what became of those that still exist."""
        started = self._clock.monotonic()
        turn_ids = [request.turn_id for request in requests]
        said = {turn_id: known for turn_id in turn_ids if (known := self._said.get(turn_id))}
        if len(said) < len(turn_ids) and not embedded:
            said = await self._read(relationship_id, turn_ids)
        while said or embedded:
            vectors = {turn_id: await self._embedded(*known) for turn_id, known in said.items()}
            try:
                async with self._store.begin_ingest(relationship_id) as transaction:
                    seen = await transaction.turns(turn_ids)
                    ready = seen and self._ready(seen, requests, vectors)
                    if ready:
                        outcomes = await self._write(transaction, ready, used)
                        announced = self._announce(transaction, relationship_id, outcomes)
                        break
            except NotFound:  # deleted, with its user
                return {}
            said = await self._read(relationship_id, turn_ids)  # corrected, renamed or erased
            embedded = False
        else:
            return {}
        self._report(outcomes, self._clock.monotonic() - started)
        for outcome in outcomes:
            if outcome.memory_id is not None and outcome.judged.unread_question is not None:
                await self._ingest(relationship_id, [IngestRequest(outcome.judged.unread_question)])
        return announced

    async def _read(
        self, relationship_id: int, turn_ids: Sequence[int]
    ) -> dict[int, tuple[str, Vector | None]]:
        """Return the texts of those turns that exist, and their vectors if they have any.

        The vectors of the speakers' names are cached.
        """
        seen = await self._store.turns(relationship_id, turn_ids)
        if seen is None:
            return {}
        await self.name_vectors(seen.user_name, seen.companion_name)
        turns = filter(None, map(seen.turn, turn_ids))
        return {turn.id: self._known_text(turn) for turn in turns}

    async def _name_vector(self, name: str) -> Vector:
        vector = self._name_vectors.get(name)
        if vector is None:
            vector = self._name_vectors[name] = await self._embedder.embed_passage(name)
        return vector

    def _known_text(self, turn: TurnToRemember) -> tuple[str, Vector | None]:
        text, vector = self._said.get(turn.id, ("", None))
        typed = vector if text == turn.content else None
        return turn.content, typed if turn.vector is None else turn.vector

    async def _embedded(self, text: str, vector: Vector | None) -> tuple[str, Vector]:
        return text, await self._embedder.embed_passage(text) if vector is None else vector

    def _ready(
        self,
        seen: TurnsToRemember,
        requests: Sequence[IngestRequest],
        vectors: Mapping[int, tuple[str, Vector]],
    ) -> _ReadyTurns | None:
        """Return the turns with their vectors; None if something else is to be embedded first.

        Args:
            vectors: of texts, by turn.
        """
        pair = seen.user_name, seen.companion_name
        if not all(name in self._name_vectors for name in pair):
            return None
        turns, fresh = dict(seen.turns), dict[int, Vector]()
        present = [request for request in requests if seen.turn(request.turn_id) is not None]
        for request in present:
            turn = turns[request.turn_id]
            if turn.vector is not None:
                continue
            text, vector = vectors.get(turn.id, (None, None))
            if vector is None or text != turn.content:
                return None
            as_stored = vector.astype(np.float16).astype(np.float32)  # as later turns will see it
            turns[turn.id], fresh[turn.id] = replace(turn, vector=as_stored), vector
        names: dict[Speaker, Vector] = {
            "user": self._name_vectors[pair[0]],
            "companion": self._name_vectors[pair[1]],
        }
        return _ReadyTurns(replace(seen, turns=turns), present, fresh, names)

    async def _write(
        self, transaction: IngestTransaction, ready: _ReadyTurns, used: Sequence[int]
    ) -> list[JudgedOutcome]:
        """Decide about turns, and write what becomes of them; return it, with stored ids."""
        seen, policy = ready.seen, self.policy_of(ready.seen)
        judge = TurnJudge(seen, policy.storage, self._classifiers)
        # Much text is processed in a thread, still under the lock that erasure waits for.
        chars = sum(len(turn.content) for turn in seen.turns.values()) * len(ready.requests)
        judged = await run_or_offload(chars, lambda: judge.judge(ready.requests))
        significant = [
            judged_turn
            for answer in judged
            for judged_turn in (answer, answer.question)
            if judged_turn is not None and judged_turn.is_significant
        ]
        similar = await transaction.similar(
            [candidate.turn for candidate in significant if candidate.consolidates]
        )
        slots = {fact.slot for candidate in significant for fact in candidate.facts}
        facts = await transaction.facts(slots) if slots else []
        repetition = self._embedder.manifest.repetition
        decider = IngestDecider(seen, policy.storage, ready.names, repetition, similar, facts)
        chars += sum(len(memory.content) for found in similar.values() for memory in found)
        outcomes = await run_or_offload(chars, lambda: decider.decide(judged, ready.fresh))
        now = self._clock.now()
        decider.changes.used = used
        stored = await transaction.write(decider.changes, now)
        await self._move_on(transaction, policy, ready, outcomes, now)
        return [outcome.with_stored(stored) for outcome in outcomes]

    async def _move_on(
        self,
        transaction: IngestTransaction,
        policy: Policy,
        ready: _ReadyTurns,
        outcomes: Sequence[JudgedOutcome],
        now: datetime,
    ) -> None:
        """Record which steps the turns have passed, and which follow."""
        rated = any(request.rating is not None for request in ready.requests)
        steps = _INGESTED_AS_RATED if rated else _INGESTED
        judged = [outcome.judged for outcome in outcomes]
        await transaction.end_wait([passed.turn.id for passed in judged], steps, ready.fresh, now)
        unread = [
            outcome.judged.unread_question
            for outcome in outcomes
            if outcome.memory_id is not None and outcome.judged.unread_question is not None
        ]
        await transaction.enqueue("ingest", unread, RULES_PLACE, now)
        if policy.storage.rules.model and policy.chat_model.background:
            asked = [passed.turn.id for passed in judged if passed.asks_model]
            if asked and len(self.to_rate) < _MAX_TO_RATE:
                self.to_rate.add(transaction.relationship_id)
            await transaction.enqueue("rating", asked, place_of(policy.chat_model), now)

    def _announce(
        self,
        transaction: IngestTransaction,
        relationship_id: int,
        outcomes: Sequence[JudgedOutcome],
    ) -> dict[int, MemoryAnnouncement]:
        """Announce what became of turns when the transaction commits; return it by turn."""
        announced: dict[int, MemoryAnnouncement] = {}
        for outcome in outcomes:
            turn, verdict = outcome.judged.turn, outcome.judged.verdict
            announced[turn.id] = MemoryAnnouncement(
                relationship_id=relationship_id,
                message_id=turn.message_id,
                speaker=turn.speaker,
                significance=verdict.score,
                reasons=verdict.reasons,
                memory_id=outcome.memory_id,
                memory_type=None if outcome.memory_id is None else outcome.judged.memory_type,
                memory_version=transaction.raised_version,
            )
            transaction.announce(announced[turn.id])
        return announced

    def _report(self, outcomes: Sequence[JudgedOutcome], seconds: float) -> None:
        """Count and log what was committed."""
        self._metrics.stage_seconds.labels("store").observe(seconds)
        for outcome in outcomes:
            turn, stored = outcome.judged.turn, outcome.memory_id is not None
            self._said.pop(turn.id, None)
            self._metrics.memories.labels("stored" if stored else "insignificant").inc()
            _log.info(
                "turn.judged",
                turn_id=turn.id,
                memory_id=outcome.memory_id,
                significance=outcome.judged.verdict.score,
            )
