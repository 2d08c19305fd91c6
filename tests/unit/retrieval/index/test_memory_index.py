"""The index in the process: what is added to it makes no difference to what it finds."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgvector import HalfVector

from foremind.domain.companion import CompanionSettings
from foremind.domain.memory import IndexedMemory, IndexState, KnownMemory, RetrievalQuery
from foremind.domain.policy import policy_for
from foremind.domain.settings import load_settings
from foremind.retrieval.index import memory_index, vector_search
from foremind.retrieval.index.memory_index import MemoryIndex
from foremind.text.packed_terms import pack_words

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WORDS = ("harbour", "storm", "boat", "sister")
ASKED = np.array([0.5, 0.5, 0.5, 0.5], np.float32)
POLICY = policy_for(CompanionSettings(recall_limit=2), load_settings()).recall


def memory(number: int, seed: int, apart: float = 1.0) -> IndexedMemory:
    """Memory `number` as one of several versions of itself."""
    randomness = np.random.default_rng((number, seed))
    vector = 1 + apart * randomness.standard_normal(4).astype(np.float32)
    words = {str(word): 1.0 for word in randomness.choice(WORDS, 2, replace=False)}
    known = KnownMemory(
        id=number,
        content=f"{number} in version {seed}",
        speaker="user",
        memory_type="conversation",
        significance=float(randomness.uniform(0.2, 1)),
        created_at=NOW - timedelta(days=float(randomness.uniform(0, 120))),
        happened=None,
        last_used_at=None,
        superseded=bool(randomness.integers(2)),
        session=int(randomness.integers(5)),
        length=2.0,
    )
    unit = HalfVector(vector / np.linalg.norm(vector))
    return IndexedMemory(memory=known, vector=unit.to_binary(), words=pack_words(words))


def found(searched: MemoryIndex, terms: list[str]) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """What a search puts forward, as plain values in the order of the memories."""
    wanted = RetrievalQuery(1, ASKED, terms, POLICY, NOW, [(NOW - timedelta(days=9), NOW)])
    candidates, statistics = searched.candidates(wanted)
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
    return sorted(rows), dict(statistics.memories_by_word)


@pytest.mark.parametrize("growth", [0, 2, 32])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), max_size=8), max_size=6
    ),
    terms=st.lists(st.sampled_from(WORDS), unique=True),
)
def test_an_index_that_grew_finds_what_a_new_one_finds(
    growth: int,
    steps: list[list[tuple[int, int]]],
    terms: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever was added, changed again, and laid down anew in between."""
    monkeypatch.setattr(memory_index, "_GROWTH", growth)
    grown = MemoryIndex.of(IndexState(0, 0, 0.0), [])
    latest: dict[int, IndexedMemory] = {}
    for version, step in enumerate(steps, 1):
        changes = {number: memory(number, seed) for number, seed in step}
        latest |= changes
        state = IndexState(version, len(latest), 2.0 * len(latest))
        grown = grown.changed(state, list(changes.values()))
        new = MemoryIndex.of(state, list(latest.values()))
        assert found(grown, terms) == found(new, terms)


def test_of_the_equally_worded_the_newer_go_first() -> None:
    """They are many where all hold one word; the database's query says so too."""
    state = IndexState(1, 200, 400.0)
    policy = dataclasses.replace(POLICY, significance_threshold=0.0, max_age_days=None)
    held = [
        msgspec.structs.replace(memory(n, 0), words=pack_words({"storm": 1.0})) for n in range(200)
    ]
    wanted = RetrievalQuery(1, ASKED, ["storm"], policy, NOW, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_index, "_GROWTH", 2)
        searched = MemoryIndex.of(state, held[150:]).changed(state, held[:150])
    candidates, _ = searched.candidates(wanted)
    ids = set(candidates.ids.tolist())
    assert {*range(160, 200)} <= ids
    assert len(ids) <= 2 * 40


@given(
    count=st.integers(0, 90),
    seed=st.integers(0, 9),
    added=st.integers(0, 5),
    apart=st.sampled_from([0.001, 0.01, 0.1, 1.0]),
)
def test_vectors_told_apart_by_their_codes_are_the_nearest(
    count: int, seed: int, added: int, apart: float
) -> None:
    """Codes leave open what they cannot decide, also where all vectors are much alike."""
    memories = [memory(number, seed, apart) for number in range(count)]
    state = IndexState(1, count, 2.0 * count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_index, "_GROWTH", 2)
        read = MemoryIndex.of(state, memories[added:]).changed(state, memories[:added])
        patch.setattr(vector_search, "_WORTH_CODES", 1)
        coded = MemoryIndex.of(state, memories[added:]).changed(state, memories[:added])
    by_codes, statistics = found(coded, ["harbour"])
    by_vectors, same_statistics = found(read, ["harbour"])
    assert statistics == same_statistics
    # Of those that are equally near, either may be put forward.
    exact = np.array([np.frombuffer(each.vector, ">f2", offset=4) @ ASKED for each in memories])
    for _, cosine, *_ in set(by_codes) ^ set(by_vectors):
        assert np.sum(np.abs(exact - cosine) < 2e-5) > 1
