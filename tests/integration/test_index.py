"""The memory index returns the same results as the database, and never stale ones."""

import dataclasses
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from foremind.app import Core
from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.companion import CompanionFile, CompanionSettings
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings import load_settings
from foremind.domain.turn import OpenedSession
from foremind.evaluation.seeding import fill, words_said
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.retrieval.index import vector_search
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.search import Query, RankedSearch, StoredCandidates

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
DEFAULT = dataclasses.replace(
    policy_for(CompanionSettings(), load_settings()).recall, min_score=0.0
)
INDEX_BYTES = 1 << 30
_TIE = 2e-4


@pytest.fixture
async def index(built: Core) -> AsyncIterator[IndexedCandidates]:
    """An index with room for everything."""
    async with IndexedCandidates(built.memories, INDEX_BYTES, built.metrics) as candidates:
        yield candidates


async def remember(
    built: Core, session: OpenedSession, text: str, days: float = 0
) -> MemoryAnnouncement:
    """Store a message of some days ago and ingest it."""
    at = NOW - timedelta(days=days)
    turn = await built.turns.commit_message(session, f"{text}-{days}", text, at)
    announced = await built.rememberer.remember(session.relationship_id, turn.id)
    assert announced is not None
    return announced


async def search_both(
    built: Core, index: IndexedCandidates, session: OpenedSession, text: str, policy: RecallPolicy
) -> list[str]:
    """Search the index and the database; assert equal results, and return them."""
    vector = await built.embedder.embed_query(text, Priority.ENTER)
    query = Query(session.relationship_id, text, vector, policy, NOW)
    assert index.holds(session.relationship_id)
    first = await RankedSearch(index).search(query)
    second = await RankedSearch(StoredCandidates(built.memories)).search(query)
    assert [memory.score for memory in first] == pytest.approx(
        [memory.score for memory in second], abs=1e-3
    )
    for memory, other in zip(first, second, strict=True):
        # The index has vectors of lower precision: near a tie, either order is right.
        assert memory.id == other.id or memory.score == pytest.approx(other.score, abs=_TIE)
    return [memory.content for memory in first]


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
    monkeypatch.setattr(vector_search, "_WORTH_CODES", worth_codes)
    session = await fill(built, NOW, own=300, others=300)
    assert await index.loaded(session.relationship_id)
    rng = np.random.default_rng(7)
    for number in range(12):
        when = " on 3 May" if number % 3 == 0 else ""
        await search_both(built, index, session, " ".join(words_said(rng, 5)) + when, policy)


async def test_the_index_follows_every_kind_of_change(
    built: Core, index: IndexedCandidates
) -> None:
    """Stored, re-embedded, merged, superseded and refreshed, as announced."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.loaded(session.relationship_id)
    statements = [
        ("I live in Lisbon", 30), ("My dog is called Scout", 29), ("I love rain", 20),
        ("rain is my favourite", 10), ("Last Saturday my sister got married in Faro", 9),
        ("I moved to Porto", 3), ("My exam is on Friday", 2), ("I promise to write to her", 1),
    ]  # fmt: skip
    questions = ["Where do I live?", "Do I like rain?", "What is my dog called?", "my sister"]
    for text, days in statements:
        announced = await remember(built, session, text, days)
        index.heard(announced)
        assert await index.loaded(session.relationship_id)
        for question in questions:
            await search_both(built, index, session, question, DEFAULT)


async def test_announced_memories_are_found_at_once(built: Core, index: IndexedCandidates) -> None:
    """From the announcement until the index is updated, the database is searched."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.loaded(session.relationship_id)
    for number in itertools.count():
        announced = await remember(built, session, f"I promise to bring lamp {number}")
        index.heard(announced)
        text = f"lamp {number}"
        vector = await built.embedder.embed_query(text, Priority.ENTER)
        query = Query(session.relationship_id, text, vector, DEFAULT, NOW)
        recalled = await RankedSearch(index).search(query)
        assert recalled[0].content == f"I promise to bring lamp {number}"
        if number == 5:
            break


async def test_indexes_are_reloaded_after_missed_announcements(
    built: Core, index: IndexedCandidates
) -> None:
    """A gap in the announcements invalidates all of them."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.loaded(session.relationship_id)
    await remember(built, session, "I promise to bring the lamp")
    await index.forget()
    assert not index.holds(session.relationship_id)
    assert await index.loaded(session.relationship_id)
    assert await search_both(built, index, session, "the lamp", DEFAULT) != []


async def test_the_least_recently_used_index_is_evicted(built: Core) -> None:
    """A relationship whose index exceeds the byte limit is searched in the database."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    sessions = [
        await built.turns.open_session(name, name, companion.id, NOW)
        for name in ("ana", "bo", "cy")
    ]
    for session in sessions:
        await remember(built, session, "I promise to bring the lamp")
    async with IndexedCandidates(built.memories, INDEX_BYTES, built.metrics) as large:
        assert await large.loaded(sessions[0].relationship_id)
        size = built.metrics.registry.get_sample_value("foremind_index_bytes") or 0.0
    async with IndexedCandidates(built.memories, int(size * 2.5), built.metrics) as small:
        for session in sessions[:2]:
            assert await small.loaded(session.relationship_id)
        assert small.holds(sessions[0].relationship_id)  # which counts as a use
        assert await small.loaded(sessions[2].relationship_id)
        loaded = [small.holds(session.relationship_id) for session in sessions]
        assert loaded == [True, False, True]
    async with IndexedCandidates(built.memories, int(size / 2), built.metrics) as tiny:
        vector = await built.embedder.embed_query("lamp", Priority.ENTER)
        query = Query(sessions[0].relationship_id, "lamp", vector, DEFAULT, NOW)
        for _ in range(3):
            assert len(await RankedSearch(tiny).search(query)) == 1
        assert not tiny.holds(sessions[0].relationship_id)
