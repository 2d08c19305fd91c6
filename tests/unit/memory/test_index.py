"""The index in the process: what is added to it makes no difference to what it finds."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgvector import HalfVector

from foremind.companions import CompanionSettings
from foremind.memory import index
from foremind.memory.index import MemoryIndex
from foremind.policies import policy_for
from foremind.settings import load_settings
from foremind.storage.memories import IndexedMemory, IndexState, KnownMemory, Wanted
from foremind.storage.packed_words import pack_words

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WORDS = ("harbour", "storm", "boat", "sister")
POLICY = policy_for(CompanionSettings(recall_limit=2), load_settings()).recall


def memory(number: int, seed: int) -> IndexedMemory:
    """Memory `number` as one of several versions of itself."""
    randomness = np.random.default_rng((number, seed))
    vector = randomness.standard_normal(4).astype(np.float32)
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
        length=2.0,
    )
    unit = HalfVector(vector / np.linalg.norm(vector))
    return IndexedMemory(memory=known, vector=unit.to_binary(), words=pack_words(words))


def found(searched: MemoryIndex, terms: list[str]) -> tuple[list[object], dict[str, int]]:
    """What a search puts forward, as plain values in the order of the memories."""
    vector = np.array([0.5, 0.5, 0.5, 0.5], np.float32)
    wanted = Wanted(1, vector, terms, POLICY, NOW, [(NOW - timedelta(days=9), NOW)])
    candidates, statistics = searched.candidates(wanted)
    rows = [
        (
            candidates.memory(row).content,
            round(float(candidates.cosines[row]), 5),
            tuple(candidates.frequencies[row]),
            float(candidates.significance[row]),
            float(candidates.created[row]),
            bool(candidates.superseded[row]),
        )
        for row in range(len(candidates))
    ]
    return sorted(rows), dict(statistics.memories_by_word)


@pytest.mark.parametrize("most_recent", [0, 3, 256])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), max_size=8), max_size=6
    ),
    terms=st.lists(st.sampled_from(WORDS), unique=True),
)
def test_an_index_that_grew_finds_what_a_new_one_finds(
    most_recent: int,
    steps: list[list[tuple[int, int]]],
    terms: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever was added, changed again, and laid down anew in between."""
    monkeypatch.setattr(index, "_MOST_RECENT", most_recent)
    grown = MemoryIndex.of(IndexState(0, 0, 0.0), [])
    latest: dict[int, IndexedMemory] = {}
    for version, step in enumerate(steps, 1):
        changes = {number: memory(number, seed) for number, seed in step}
        latest |= changes
        state = IndexState(version, len(latest), 2.0 * len(latest))
        grown = grown.changed(state, list(changes.values()))
        new = MemoryIndex.of(state, list(latest.values()))
        assert found(grown, terms) == found(new, terms)
