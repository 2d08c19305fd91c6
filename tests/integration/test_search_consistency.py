"""After any sequence of changes, all implementations of search return the same memories."""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as how
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from foremind.app.configuration import load_settings
from foremind.app.core import (
    Core,
    build_corrector,
    build_eraser,
    build_importer,
    build_retention_enforcer,
    core,
)
from foremind.cluster.announcement_bus import AnnouncementReceiver
from foremind.cluster.freshness import Freshness
from foremind.domain.announcements import Announcement, SessionTaken
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import NotFound
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings, Settings
from foremind.domain.turn import OpenedSession
from foremind.memory.erasure.eraser import ErasureScope
from foremind.retrieval.embedding.service import Priority
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.search import Candidates, Query, RankedSearch, StoredCandidates
from foremind.storage.transfer_store import TransferStore
from foremind.text.mentions import parse_mention
from tests.conftest import PATIENCE, owner_of

START = datetime(2026, 5, 20, 12, tzinfo=UTC)
INDEX_BYTES = 1 << 30
NAMES = ("Ana", "Mara")
MESSAGES = [
    "I live in Lisbon",
    "I moved to Porto last week",
    "I live in Porto now",
    "My dog is called Scout",
    "my dog, you know, is called Scout",
    "I love rain",
    "I am allergic to peanuts",
    "My exam is on Friday, wish me luck",
    "hm, well",
]
REPLIES = ["Scout is a fine name for a dog.", "Porto has a lovely harbour, I was born there."]
QUESTIONS = ["Where do I live?", "What is my dog called?", "And on Friday?"]
_DEFAULT = dataclasses.replace(
    policy_for(CompanionSettings(), load_settings()).recall,
    min_score=0.0, min_share=0.0, significance_threshold=0.0, gate=False, limit=20,
)  # fmt: skip
# With the second policy, use refreshes a memory.
POLICIES = [
    _DEFAULT,
    dataclasses.replace(_DEFAULT, decay="half_life", max_age_days=None, half_life_days=10.0),
]
Result = TypeVar("Result")


class SearchSubject:
    """A relationship, all operations on its memories, and an index that follows its changes."""

    def __init__(self, built: Core, updated_index: IndexedCandidates) -> None:
        self._built = built
        self._updated_index = updated_index
        self._relationships = built.stores.relationships
        self._transfer = TransferStore(built.database, built.embedder.manifest.fingerprint)
        self._importer = build_importer(built)
        self._eraser = build_eraser(built)
        self._corrector = build_corrector(built)
        self._expirer = build_retention_enforcer(built)
        self._numbers = itertools.count()
        self._received: set[str] = set()
        self.now = START

    def hear(self, announcement: Announcement) -> None:
        """Handle an announcement."""
        self._updated_index.on_announcement(announcement)
        if isinstance(announcement, SessionTaken):
            self._received.add(announcement.session_id)

    async def begin(self) -> None:
        """Create a relationship with a new user; load its index at once."""
        self.now = START
        companion = await self._built.stores.companions.put(
            CompanionFile("mara", "Mara", "A persona.")
        )
        self._companion = companion
        self._user = f"user {next(self._numbers)}"
        self._session: OpenedSession = await self._built.stores.turns.open_session(
            self._user, NAMES[0], companion.id, self.now
        )
        assert await self._updated_index.wait_until_current(self._relationship_id)

    @property
    def _relationship_id(self) -> int:
        return self._session.relationship_id

    async def say(self, text: str) -> None:
        """Store a message of the user and ingest it."""
        self.now += timedelta(hours=7)
        number = str(next(self._numbers))
        turn = await self._built.stores.turns.commit_message(self._session, number, text, self.now)
        await self._built.ingester.ingest(self._relationship_id, turn.id)

    async def answer(self, text: str) -> None:
        """Store a reply of the companion and ingest it."""
        turn = await self._built.stores.turns.commit_reply(
            self._session, None, "completed", text, self.now
        )
        await self._built.ingester.ingest(self._relationship_id, turn or 0)

    async def rate(self, which: int, rating: int, replaces: int) -> None:
        """Ingest the turn of a memory again with a model's rating and a memory that it replaces."""
        memory, other = await self._memory(which), await self._memory(replaces)
        turn = await owner_of(self._built).fetchval(
            "SELECT source_turn_id FROM memories WHERE id = $1", memory
        )
        replaced = [other] if other != memory else []
        await self._built.ingester.ingest(
            self._relationship_id, turn, rating=rating, replaced=replaced
        )

    async def use(self, which: int) -> None:
        """Mark a memory as used, some days later."""
        self.now += timedelta(days=4)
        await self._built.stores.memories.mark_used(
            self._relationship_id, [await self._memory(which)], self.now
        )

    async def correct(self, which: int, content: str) -> None:
        """Correct the content of a memory."""
        memory = await self._memory(which)
        await self._corrector.correct(
            self._relationship_id, NAMES, memory, content, actor="user", read_in_exchange=True
        )

    async def forget(self, scope: ErasureScope) -> None:
        """Erase what a scope selects, if anything."""
        try:
            await self._eraser.erase(
                self._relationship_id, NAMES, scope, actor="user", read_in_exchange=True
            )
        except NotFound:
            return

    async def forget_one(self, which: int) -> None:
        """Erase a memory."""
        await self.forget(ErasureScope(memories=(await self._memory(which),)))

    async def expire(self, days: float) -> None:
        """Delete memories that are older."""
        before = self.now - timedelta(days=days)
        await self._expirer.expire_memories(self._relationship_id, NAMES, {"conversation": before})

    async def move(self) -> None:
        """Export everything, and import it for a new user whose index is already loaded."""
        relationship = await self._relationships.find_any(self._relationship_id)
        export = await self._transfer.read(relationship, self.now)
        await self.begin_at_the_same_time()
        await self._importer.restore(
            self._user,
            self._companion,
            export,
            RelationshipSettings(),
            "ana",
            self.now,
        )

    async def begin_at_the_same_time(self) -> None:
        """Create a relationship with a new user without resetting the time."""
        now = self.now
        await self.begin()
        self.now = now

    async def memories(self) -> list[int]:
        """Return the ids of all memories."""
        rows = await owner_of(self._built).fetch(
            "SELECT id FROM memories WHERE relationship_id = $1 ORDER BY id", self._relationship_id
        )
        return [row["id"] for row in rows]

    async def _memory(self, which: int) -> int:
        ids = await self.memories()
        return ids[which % len(ids)]

    async def compare(self) -> None:
        """Assert that the updated index, a new index and the database give the same results."""
        await self._wait_for_announcements()
        assert await self._updated_index.wait_until_current(self._relationship_id)
        async with IndexedCandidates(
            self._built.stores.memories, INDEX_BYTES, self._built.runtime.metrics
        ) as new_index:
            assert await new_index.wait_until_current(self._relationship_id)
            stored = StoredCandidates(self._built.stores.memories)
            for question, policy in itertools.product(QUESTIONS, POLICIES):
                answers = [
                    await self._search(candidates, question, policy)
                    for candidates in (stored, new_index, self._updated_index)
                ]
                assert answers[1] == answers[0], "a new index and the database"
                assert answers[2] == answers[0], "the updated index and the database"
                assert len(answers[0]) == len(await self.memories())

    async def _search(
        self, candidates: Candidates, question: str, policy: RecallPolicy
    ) -> dict[int, tuple[str, Any]]:
        vector = await self._built.embedder.embed_query(question, Priority.ENTER)
        recalled = await RankedSearch(candidates).search(
            Query(self._relationship_id, question, vector, policy, self.now)
        )
        return {
            memory.id: (memory.content, pytest.approx(memory.score, abs=1e-3))
            for memory in recalled
        }

    async def _wait_for_announcements(self) -> None:
        """Wait for all announcements so far, which arrive in order."""
        mark = f"mark {next(self._numbers)}"
        await self._built.database.announce(SessionTaken(mark, "here"))
        async with asyncio.timeout(PATIENCE):
            while mark not in self._received:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def subject(settings: Settings) -> AsyncIterator[SearchSubject]:
    """Start a core with an index that follows announcements."""
    async with (
        core(settings) as built,
        IndexedCandidates(
            built.stores.memories, INDEX_BYTES, built.runtime.metrics
        ) as updated_index,
    ):
        parts = SearchSubject(built, updated_index)
        clock, metrics = built.runtime.clock, built.runtime.metrics
        freshness = Freshness(built.stores.versions, lambda: built.bus.trusted, clock, metrics)
        freshness.receiver = AnnouncementReceiver(
            [freshness.on_announcement, parts.hear], freshness.hint, freshness.catch_up, metrics
        )
        async with built.bus.receiving(freshness.receiver):
            yield parts


class Changes(RuleBasedStateMachine):
    """All operations on memories, in random order."""

    runner: ClassVar[asyncio.Runner]
    parts: ClassVar[SearchSubject]

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        """Start with a new relationship."""
        self._do(self.parts.begin())

    def any_memory(self) -> bool:
        """Whether there is a memory."""
        return bool(self._do(self.parts.memories()))

    @rule(text=st.sampled_from(MESSAGES))
    def say(self, text: str) -> None:
        """Stored, merged, superseding or discarded; neighbours are re-embedded."""
        self._do(self.parts.say(text))

    @rule(text=st.sampled_from(REPLIES))
    def answer(self, text: str) -> None:
        """A reply of the companion."""
        self._do(self.parts.answer(text))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9), rating=st.integers(1, 10), replaces=st.integers(0, 9))
    def rate(self, which: int, rating: int, replaces: int) -> None:
        """Significance changes, and another memory is superseded."""
        self._do(self.parts.rate(which, rating, replaces))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9))
    def use(self, which: int) -> None:
        """Recency changes."""
        self._do(self.parts.use(which))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9), content=st.sampled_from(MESSAGES))
    def correct(self, which: int, content: str) -> None:
        """Content changes."""
        self._do(self.parts.correct(which, content))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9))
    def forget_one(self, which: int) -> None:
        """A memory and what quotes it are erased."""
        self._do(self.parts.forget_one(which))

    @rule(
        scope=st.sampled_from(
            [
                ErasureScope(about=parse_mention("Porto", None)),
                ErasureScope(about=parse_mention("dog", None)),
                ErasureScope(),
            ]
        )
    )
    def forget(self, scope: ErasureScope) -> None:
        """Several memories or all are erased."""
        self._do(self.parts.forget(scope))

    @rule(days=st.floats(0.1, 5))
    def expire(self, days: float) -> None:
        """Old memories are deleted."""
        self._do(self.parts.expire(days))

    @rule()
    def move(self) -> None:
        """Export and import."""
        self._do(self.parts.move())

    @invariant()
    def every_search_gives_the_same(self) -> None:
        """All implementations return the same memories and scores."""
        self._do(self.parts.compare())


def test_all_searches_agree_after_every_change(settings: Settings) -> None:
    """No change is lost or late in any index."""
    with asyncio.Runner() as runner:
        opening = subject(settings)
        Changes.runner, Changes.parts = runner, runner.run(opening.__aenter__())
        try:
            run_state_machine_as_test(
                Changes,
                settings=how(
                    max_examples=10,
                    stateful_step_count=12,
                    deadline=None,
                    phases=[Phase.generate],  # twelve steps are readable without shrinking
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(opening.__aexit__(None, None, None))
            # What it holds would be found by tests that look for traces of an erased text.
            del Changes.runner, Changes.parts
