"""The index in the process gives what the database gives, and never anything older."""

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
ROOM = 1 << 30
_TIE = 2e-4


@pytest.fixture
async def index(built: Core) -> AsyncIterator[IndexedCandidates]:
    """An index with room for everything."""
    async with IndexedCandidates(built.memories, ROOM, built.metrics) as candidates:
        yield candidates


async def told(
    built: Core, session: OpenedSession, text: str, days: float = 0
) -> MemoryAnnouncement:
    """Say something some days ago and have it judged."""
    at = NOW - timedelta(days=days)
    turn = await built.turns.commit_message(session, f"{text}-{days}", text, at)
    announced = await built.rememberer.remember(session.relationship_id, turn.id)
    assert announced is not None
    return announced


async def same_from_both(
    built: Core, index: IndexedCandidates, session: OpenedSession, text: str, policy: RecallPolicy
) -> list[str]:
    """Search both ways, require the same memories in the same order, and return them."""
    vector = await built.embedder.embed_query(text, Priority.ENTER)
    query = Query(session.relationship_id, text, vector, policy, NOW)
    assert index.holds(session.relationship_id)
    first = await RankedSearch(index).search(query)
    second = await RankedSearch(StoredCandidates(built.memories)).search(query)
    assert [each.score for each in first] == pytest.approx(
        [each.score for each in second], abs=1e-3
    )
    for each, other in zip(first, second, strict=True):
        # Vectors are held with fewer digits than they are stored with: next to a tie, either leads.
        assert each.id == other.id or each.score == pytest.approx(other.score, abs=_TIE)
    return [each.content for each in first]


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
async def test_random_memories_rank_alike(
    built: Core,
    index: IndexedCandidates,
    policy: RecallPolicy,
    worth_codes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over made-up memories of all ages and significances, for every kind of policy."""
    monkeypatch.setattr(vector_search, "_WORTH_CODES", worth_codes)
    session = await fill(built, NOW, own=300, others=300)
    assert await index.loaded(session.relationship_id)
    rng = np.random.default_rng(7)
    for number in range(12):
        when = " on 3 May" if number % 3 == 0 else ""
        await same_from_both(built, index, session, " ".join(words_said(rng, 5)) + when, policy)


async def test_real_talk_ranks_alike_through_every_kind_of_change(
    built: Core, index: IndexedCandidates
) -> None:
    """Stored, reread, merged, superseded, refreshed: the index follows by what is announced."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.loaded(session.relationship_id)
    said = [
        ("I live in Lisbon", 30), ("My dog is called Scout", 29), ("I love rain", 20),
        ("rain is my favourite", 10), ("Last Saturday my sister got married in Faro", 9),
        ("I moved to Porto", 3), ("My exam is on Friday", 2), ("I promise to write to her", 1),
    ]  # fmt: skip
    questions = ["Where do I live?", "Do I like rain?", "What is my dog called?", "my sister"]
    for text, days in said:
        announced = await told(built, session, text, days)
        index.heard(announced)
        assert await index.loaded(session.relationship_id)
        for question in questions:
            await same_from_both(built, index, session, question, DEFAULT)


async def test_what_is_announced_is_never_missed(built: Core, index: IndexedCandidates) -> None:
    """From the announcement until the index has followed, the database is asked."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.loaded(session.relationship_id)
    for number in itertools.count():
        announced = await told(built, session, f"I promise to bring lamp {number}")
        index.heard(announced)
        text = f"lamp {number}"
        vector = await built.embedder.embed_query(text, Priority.ENTER)
        query = Query(session.relationship_id, text, vector, DEFAULT, NOW)
        found = await RankedSearch(index).search(query)
        assert found[0].content == f"I promise to bring lamp {number}"
        if number == 5:
            break


async def test_what_was_missed_is_read_anew(built: Core, index: IndexedCandidates) -> None:
    """After a gap in the announcements nothing loaded is trusted."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await built.turns.open_session("ana", "Ana", companion.id, NOW)
    assert await index.loaded(session.relationship_id)
    await told(built, session, "I promise to bring the lamp")
    await index.forget()
    assert not index.holds(session.relationship_id)
    assert await index.loaded(session.relationship_id)
    assert await same_from_both(built, index, session, "the lamp", DEFAULT) != []


async def test_the_least_recently_used_goes_first(built: Core) -> None:
    """And what is larger than all the room is searched in the database."""
    companion = await built.companions.put(CompanionFile("mara", "Mara", "A persona."))
    sessions = [
        await built.turns.open_session(name, name, companion.id, NOW)
        for name in ("ana", "bo", "cy")
    ]
    for session in sessions:
        await told(built, session, "I promise to bring the lamp")
    async with IndexedCandidates(built.memories, ROOM, built.metrics) as large:
        assert await large.loaded(sessions[0].relationship_id)
        size = built.metrics.registry.get_sample_value("foremind_index_bytes") or 0.0
    async with IndexedCandidates(built.memories, int(size * 2.5), built.metrics) as small:
        for session in sessions[:2]:
            assert await small.loaded(session.relationship_id)
        assert small.holds(sessions[0].relationship_id)  # and is used
        assert await small.loaded(sessions[2].relationship_id)
        held = [small.holds(each.relationship_id) for each in sessions]
        assert held == [True, False, True]
    async with IndexedCandidates(built.memories, int(size / 2), built.metrics) as tiny:
        vector = await built.embedder.embed_query("lamp", Priority.ENTER)
        query = Query(sessions[0].relationship_id, "lamp", vector, DEFAULT, NOW)
        for _ in range(3):
            assert len(await RankedSearch(tiny).search(query)) == 1
        assert not tiny.holds(sessions[0].relationship_id)
