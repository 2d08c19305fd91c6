"""The memory index returns the same results as the database, and never stale ones."""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from foremind.app.configuration import load_settings
from foremind.app.core import Core
from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.companion import CompanionFile
from foremind.domain.memory import IndexedMemory, IndexState, RetrievalQuery
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.turn import OpenedSession
from foremind.retrieval.embedding.service import Priority
from foremind.retrieval.index import memory_index
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.search import Query, RankedSearch, StoredCandidates
from foremind.storage.memory_store import MemoryStore
from foremind.storage.named_queries import load_queries
from foremind_eval.seeding import fill, sample_words
from tests.conftest import owner_of
from tests.integration.test_ingest import sent_statements

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
DEFAULT = dataclasses.replace(
    policy_for(CompanionSettings(), load_settings()).recall, min_score=0.0
)
INDEX_BYTES = 1 << 30
_TIE = 2e-4


@pytest.fixture
async def index(built: Core) -> AsyncIterator[IndexedCandidates]:
    """An index with room for everything."""
    async with IndexedCandidates(
        built.stores.memories, INDEX_BYTES, built.runtime.metrics
    ) as candidates:
        yield candidates


async def remember(
    built: Core, session: OpenedSession, text: str, days: float = 0
) -> MemoryAnnouncement:
    """Store a message of some days ago and ingest it."""
    at = NOW - timedelta(days=days)
    turn = await built.stores.turns.commit_message(session, f"{text}-{days}", text, at)
    announced = await built.ingester.ingest(session.relationship_id, turn.id)
    assert announced is not None
    return announced


async def search_both(
    built: Core, index: IndexedCandidates, session: OpenedSession, text: str, policy: RecallPolicy
) -> list[str]:
    """Search the index and the database; assert equal results, and return them."""
    vector = await built.embedder.embed_query(text, Priority.ENTER)
    query = Query(session.relationship_id, text, vector, policy, NOW)
    assert index.is_current(session.relationship_id)
    first = await RankedSearch(index).search(query)
    second = await RankedSearch(StoredCandidates(built.stores.memories)).search(query)
    assert [memory.score for memory in first] == pytest.approx(
        [memory.score for memory in second], abs=1e-3
    )
    for memory, other in zip(first, second, strict=True):
        # The index has vectors of lower precision: near a tie, either order is right.
        assert memory.id == other.id or memory.score == pytest.approx(other.score, abs=_TIE)
    return [memory.content for memory in first]


async def test_what_this_process_ingests_is_not_read_back(
    built: Core, index: IndexedCandidates
) -> None:
    """Neither a new memory nor its neighbours, whose context it is; others are read."""
    companion = await built.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.stores.turns.open_session("ana", "Ana", companion.id, NOW)
    reading = load_queries()["index_state"]
    for text, is_read in (
        ("I promise to feed the gulls", True),
        ("I promise to paint the boat", False),
        ("I live in Lisbon", False),
        ("I moved to Porto", True),  # which supersedes another
        ("I promise to paint the door", False),
    ):
        with sent_statements(built) as sent:
            index.on_announcement(await remember(built, session, text))
            assert await index.wait_until_current(session.relationship_id)
        assert any(reading in statements for statements in sent) == is_read, text
        found = await search_both(built, index, session, text, DEFAULT)
        assert text in found


POLICIES = [
    dataclasses.replace(DEFAULT, **changes)
    for changes in (
        {},
        {"significance_threshold": 0.6, "max_age_days": 20.0},
        {"decay": "half_life", "max_age_days": None, "half_life_days": 10.0},
        {"decay": "product", "max_age_days": None},
        {"limit": 20, "vector_weight": 0.1, "keyword_weight": 0.9},
        {"max_age_days": 5.0, "permanent_significance": 0.9},
    )
]


@pytest.mark.parametrize("worth_codes", [1, 4096])
@pytest.mark.parametrize("policy", POLICIES)
async def test_index_and_database_agree_on_random_memories(
    built: Core,
    index: IndexedCandidates,
    policy: RecallPolicy,
    worth_codes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With random memories of all ages and significances, and various policies."""
    monkeypatch.setattr(memory_index, "_MIN_QUANTISED_VECTORS", worth_codes)
    session = await fill(built, NOW, own=300, others=300)
    assert await index.wait_until_current(session.relationship_id)
    rng = np.random.default_rng(7)
    for number in range(12):
        when = " on 3 May" if number % 3 == 0 else ""
        await search_both(built, index, session, " ".join(sample_words(rng, 5)) + when, policy)


async def test_what_happened_at_a_time_that_is_asked_for_is_a_candidate(
    built: Core, index: IndexedCandidates
) -> None:
    """Also if it was told later, and nothing else of it is like the question."""
    session = await fill(built, NOW, own=300, others=0)
    vector = await built.embedder.embed_query("What was I doing that day?", Priority.ENTER)
    day = (NOW - timedelta(days=200), NOW - timedelta(days=199))
    query = RetrievalQuery(session.relationship_id, vector, [], DEFAULT, NOW, [])
    stored = StoredCandidates(built.stores.memories)
    likely, _ = await stored.candidates(query)
    unlike = await owner_of(built).fetchval(
        "UPDATE memories SET happened_from = $3, happened_to = $4 WHERE id = (SELECT id "
        "FROM memories WHERE relationship_id = $1 AND significance > 0.5 AND NOT id = ANY ($2) "
        "LIMIT 1) RETURNING id",
        session.relationship_id, likely.ids.tolist(), *day,
    )  # fmt: skip
    assert await index.wait_until_current(session.relationship_id)
    for source in (stored, index):
        found, _ = await source.candidates(dataclasses.replace(query, times=[day]))
        assert unlike in found.ids, source


async def test_the_index_follows_every_kind_of_change(
    built: Core, index: IndexedCandidates
) -> None:
    """Stored, re-embedded, merged, superseded and refreshed, as announced."""
    companion = await built.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.stores.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.wait_until_current(session.relationship_id)
    statements = [
        ("I live in Lisbon", 30), ("My dog is called Scout", 29), ("I love rain", 20),
        ("rain is my favourite", 10), ("Last Saturday my sister got married in Faro", 9),
        ("I moved to Porto", 3), ("My exam is on Friday", 2), ("I promise to write to her", 1),
    ]  # fmt: skip
    questions = ["Where do I live?", "Do I like rain?", "What is my dog called?", "my sister"]
    for text, days in statements:
        announced = await remember(built, session, text, days)
        index.on_announcement(announced)
        assert await index.wait_until_current(session.relationship_id)
        for question in questions:
            await search_both(built, index, session, question, DEFAULT)


async def test_announced_memories_are_found_at_once(built: Core, index: IndexedCandidates) -> None:
    """From the announcement until the index is updated, the database is searched."""
    companion = await built.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.stores.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.wait_until_current(session.relationship_id)
    for number in itertools.count():
        announced = await remember(built, session, f"I promise to bring lamp {number}")
        index.on_announcement(announced)
        text = f"lamp {number}"
        vector = await built.embedder.embed_query(text, Priority.ENTER)
        query = Query(session.relationship_id, text, vector, DEFAULT, NOW)
        recalled = await RankedSearch(index).search(query)
        assert recalled[0].content == f"I promise to bring lamp {number}"
        if number == 5:
            break


async def test_the_least_recently_used_index_is_evicted(built: Core) -> None:
    """A relationship whose index exceeds the byte limit is searched in the database."""
    companion = await built.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
    sessions = [
        await built.stores.turns.open_session(name, name, companion.id, NOW)
        for name in ("ana", "bo", "cy")
    ]
    for session in sessions:
        await remember(built, session, "I promise to bring the lamp")
    async with IndexedCandidates(
        built.stores.memories, INDEX_BYTES, built.runtime.metrics
    ) as large:
        assert await large.wait_until_current(sessions[0].relationship_id)
        size = built.runtime.metrics.registry.get_sample_value("foremind_index_bytes") or 0.0
    async with IndexedCandidates(
        built.stores.memories, int(size * 2.5), built.runtime.metrics
    ) as small:
        for session in sessions[:2]:
            assert await small.wait_until_current(session.relationship_id)
        assert small.is_current(sessions[0].relationship_id)  # which counts as a use
        assert await small.wait_until_current(sessions[2].relationship_id)
        loaded = [small.is_current(session.relationship_id) for session in sessions]
        assert loaded == [True, False, True]
    async with IndexedCandidates(
        built.stores.memories, int(size / 2), built.runtime.metrics
    ) as tiny:
        vector = await built.embedder.embed_query("lamp", Priority.ENTER)
        query = Query(sessions[0].relationship_id, "lamp", vector, DEFAULT, NOW)
        for _ in range(3):
            assert len(await RankedSearch(tiny).search(query)) == 1
        assert not tiny.is_current(sessions[0].relationship_id)


async def test_an_index_evicted_while_it_is_updated_is_not_taken_for_current(built: Core) -> None:
    """What was announced meanwhile still counts."""
    companion = await built.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
    ana, bo = [
        await built.stores.turns.open_session(name, name, companion.id, NOW)
        for name in ("ana", "bo")
    ]
    await remember(built, ana, "I promise to bring the lamp")
    for object_name in ("lamp", "rope", "map"):
        await remember(built, bo, f"I promise to bring the {object_name}")
    store, metrics = SlowMemoryStore(built), built.runtime.metrics
    async with IndexedCandidates(store, INDEX_BYTES, metrics) as large:
        assert await large.wait_until_current(bo.relationship_id)
        size = metrics.registry.get_sample_value("foremind_index_bytes") or 0.0
    async with IndexedCandidates(store, int(size * 1.2), metrics) as small:
        assert await small.wait_until_current(ana.relationship_id)
        store.slow.add(ana.relationship_id)
        small.on_announcement(await remember(built, ana, "I promise to bring the rope"))
        await store.read.wait()  # without what follows
        small.on_announcement(await remember(built, ana, "I promise to bring the map"))
        assert await small.wait_until_current(bo.relationship_id)  # which evicts the other
        store.slow.clear()
        store.answered.set()
        assert await small.wait_until_current(ana.relationship_id)
        recalled = await search_both(built, small, ana, "the map", DEFAULT)
        assert "I promise to bring the map" in recalled


class SlowMemoryStore(MemoryStore):
    """Answers about some relationships late, with what was there when it was asked."""

    def __init__(self, core: Core) -> None:
        super().__init__(core.database, core.embedder.manifest.fingerprint)
        self.slow: set[int] = set()
        self.read = asyncio.Event()
        self.answered = asyncio.Event()

    async def changes(
        self, relationship_id: int, after_version: int
    ) -> tuple[IndexState, list[IndexedMemory]]:
        """Return what `MemoryStore` returns, later."""
        found = await super().changes(relationship_id, after_version)
        if relationship_id in self.slow:
            self.read.set()
            await self.answered.wait()
        return found
