"""The memory index: results do not depend on how it was updated or whether codes are used."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgvector import HalfVector

from foremind.app.configuration import load_settings
from foremind.domain.memory import IndexedMemory, IndexState, KnownMemory, RetrievalQuery
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.retrieval.index import memory_index
from foremind.retrieval.index.memory_index import MemoryIndex
from foremind.text.tokenization import pack_terms

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WORDS = ("harbour", "storm", "boat", "sister")
QUERY = np.array([0.5, 0.5, 0.5, 0.5], np.float32)
POLICY = policy_for(CompanionSettings(recall_limit=2), load_settings()).recall


def memory(number: int, seed: int, distance: float = 1.0) -> IndexedMemory:
    """One of several versions of memory `number`."""
    rng = np.random.default_rng((number, seed))
    vector = 1 + distance * rng.standard_normal(4).astype(np.float32)
    words = {str(word): 1.0 for word in rng.choice(WORDS, 2, replace=False)}
    known = KnownMemory(
        id=number,
        content=f"{number} in version {seed}",
        speaker="user",
        memory_type="conversation",
        significance=float(rng.uniform(0.2, 1)),
        created_at=NOW - timedelta(days=float(rng.uniform(0, 120))),
        happened=None,
        last_used_at=None,
        superseded=bool(rng.integers(2)),
        session=int(rng.integers(5)),
        length=2.0,
    )
    unit = HalfVector(vector / np.linalg.norm(vector))
    return IndexedMemory(memory=known, vector=unit.to_binary(), words=pack_terms(words))


def found(index: MemoryIndex, terms: list[str]) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """The candidates of a search, as plain values in a fixed order, and document frequencies."""
    query = RetrievalQuery(1, QUERY, terms, POLICY, NOW, [(NOW - timedelta(days=9), NOW)])
    candidates, statistics = index.candidates(query)
    rows = [
        (
            candidates.memory(row).content,
            round(float(candidates.cosines[row]), 5),
            tuple(candidates.frequencies[row]),
            float(candidates.significance[row]),
            float(candidates.created[row]),
            bool(candidates.superseded[row]),
            candidates.memory(row).session,
        )
        for row in range(len(candidates))
    ]
    numbered = {(candidates.memory(n).session, int(m)) for n, m in enumerate(candidates.sessions)}
    assert len(numbered) == len({session for session, _ in numbered})
    assert len(numbered) == len({number for _, number in numbered})
    return sorted(rows), dict(statistics.document_frequencies)


@pytest.mark.parametrize("growth", [0, 2, 32])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), max_size=8), max_size=6
    ),
    terms=st.lists(st.sampled_from(WORDS), unique=True),
)
def test_an_updated_index_finds_the_same_as_a_new_one(
    growth: int,
    steps: list[list[tuple[int, int]]],
    terms: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever was added, replaced or merged."""
    monkeypatch.setattr(memory_index, "_GROWTH_FACTOR", growth)
    updated = MemoryIndex.build(IndexState(0, 0, 0.0), [])
    latest: dict[int, IndexedMemory] = {}
    for version, step in enumerate(steps, 1):
        changes = {number: memory(number, seed) for number, seed in step}
        latest |= changes
        state = IndexState(version, len(latest), 2.0 * len(latest))
        updated = updated.with_changes(state, list(changes.values()))
        new = MemoryIndex.build(state, list(latest.values()))
        assert found(updated, terms) == found(new, terms)


def test_lexical_ties_go_to_the_newer_memories() -> None:
    """As in the database's query; there are many ties where all memories contain one term."""
    state = IndexState(1, 200, 400.0)
    policy = dataclasses.replace(POLICY, significance_threshold=0.0, max_age_days=None)
    memories = [
        msgspec.structs.replace(memory(n, 0), words=pack_terms({"storm": 1.0})) for n in range(200)
    ]
    query = RetrievalQuery(1, QUERY, ["storm"], policy, NOW, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_index, "_GROWTH_FACTOR", 2)
        index = MemoryIndex.build(state, memories[150:]).with_changes(state, memories[:150])
    candidates, _ = index.candidates(query)
    ids = set(candidates.ids.tolist())
    assert {*range(160, 200)} <= ids
    assert len(ids) <= 2 * 40


@given(
    count=st.integers(0, 90),
    seed=st.integers(0, 9),
    added=st.integers(0, 5),
    distance=st.sampled_from([0.001, 0.01, 0.1, 1.0]),
)
def test_quantised_codes_do_not_change_the_nearest(
    count: int, seed: int, added: int, distance: float
) -> None:
    """Vectors that the codes cannot exclude are rescored, even if all are nearly equal."""
    memories = [memory(number, seed, distance) for number in range(count)]
    state = IndexState(1, count, 2.0 * count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_index, "_GROWTH_FACTOR", 2)
        exact = MemoryIndex.build(state, memories[added:]).with_changes(state, memories[:added])
        patch.setattr(memory_index, "_MIN_QUANTISED_VECTORS", 1)
        quantised = MemoryIndex.build(state, memories[added:]).with_changes(state, memories[:added])
    by_codes, statistics = found(quantised, ["harbour"])
    by_vectors, same_statistics = found(exact, ["harbour"])
    assert statistics == same_statistics
    # Of equally near memories, either may be a candidate.
    cosines = np.array(
        [np.frombuffer(indexed.vector, ">f2", offset=4) @ QUERY for indexed in memories]
    )
    for _, cosine, *_ in set(by_codes) ^ set(by_vectors):
        assert np.sum(np.abs(cosines - cosine) < 2e-5) > 1
