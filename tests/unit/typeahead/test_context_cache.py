"""The context cache: limits on number, bytes and time, in total and per relationship."""

import tracemalloc
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foremind.domain.announcements import MemoriesForgotten
from foremind.domain.memory import Recalled
from foremind.llm.prompt.sections import StandingLayers, section
from foremind.typeahead.context_cache import (
    BuildTimings,
    CacheKey,
    ContextCache,
    PreparedContext,
    context_size_bytes,
)
from foremind_eval.doubles.manual_clock import ManualClock

NOW = datetime(2026, 5, 1, tzinfo=UTC)
POLICY = cast("Any", None)
MAX_BYTES = 200_000


def context(text: str, *, memories: int = 0, chars: int = 0, version: int = 0) -> PreparedContext:
    """A context for `text` with a number of memories of `chars` characters each."""
    contents = [f"{text} {number} ".ljust(chars, "é") for number in range(memories)]
    lines = tuple(f"- {content}" for content in contents)
    return PreparedContext(
        text=text,
        cache_key=CacheKey(version, 0, 0, "model", "embedding", POLICY, POLICY),
        vector=np.zeros(384, np.float32),
        memories=tuple(
            Recalled(number, content, "user", "conversation", 0.5, NOW, False, 1, 1, 1, 1)
            for number, content in enumerate(contents)
        ),
        recalled={"memories": section("memories", lines, len)},
        missing={},
        standing=StandingLayers(),
        timings=BuildTimings(0.5, 0.5, 1.0, {"topics": 0.5}),
    )


def erasure(relationship_id: int, version: int) -> MemoriesForgotten:
    """The announcement of an erasure."""
    return MemoriesForgotten(relationship_id, version, 0, 0, None, version)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.integers(1, 4),
            st.sampled_from([f"draft {number}" for number in range(50)]),
            st.integers(0, 12),
            st.sampled_from([10, 300, 3000]),
        ),
        st.tuples(st.just("erase"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 5.0, 61.0])),
    ),
    max_size=80,
)


@given(STEPS, st.sampled_from([0, 3000, MAX_BYTES, 10_000_000]))
@settings(max_examples=200, deadline=None)
def test_every_limit_holds(steps: list[Any], max_bytes: int) -> None:
    """Number, bytes, time; cached is what was put last, and nothing from before an erasure."""
    clock, version = ManualClock(), 0
    cache = ContextCache(20, max_bytes, 60.0, clock)
    expected: dict[tuple[int, str], tuple[float, PreparedContext]] = {}
    for step in steps:
        match step:
            case ("put", relationship_id, text, memories, chars):
                new = context(text, memories=memories, chars=chars, version=version)
                cache.put(relationship_id, new)
                expected[relationship_id, text] = clock.monotonic(), new
                if context_size_bytes(new) <= max_bytes:
                    assert cache.get(relationship_id, text) is new  # the newest is always kept
            case ("erase", relationship_id):
                version += 1
                cache.on_announcement(erasure(relationship_id, version))
                expected = {k: entry for k, entry in expected.items() if k[0] != relationship_id}
            case ("wait", seconds):
                advance(clock, seconds)
        cached = {key: found for key in expected if (found := cache.get(*key)) is not None}
        assert all(found is expected[key][1] for key, found in cached.items())
        assert all(clock.monotonic() - expected[key][0] < 60 for key in cached)
        assert len(cache) == len(cached) <= 20
        assert cache.total_bytes == sum(map(context_size_bytes, cached.values())) <= max_bytes
    advance(clock, 61)
    assert len(cache) == cache.total_bytes == 0  # without any further call


def advance(clock: ManualClock, seconds: float) -> None:
    """Move the clock and run due timers."""
    moving = clock.advance(seconds)
    with pytest.raises(StopIteration):
        while True:
            moving.send(None)


def test_one_relationship_does_not_evict_the_contexts_of_others() -> None:
    """After thousands of its drafts, its newest and all others' contexts are cached."""
    cache = ContextCache(10_000, 64 * MAX_BYTES, 60.0, ManualClock())
    for relationship_id in range(2, 30):
        cache.put(relationship_id, context("Hello", memories=10, chars=300))
    others = cache.total_bytes
    for number in range(3000):
        cache.put(1, context(f"draft {number}", memories=10, chars=300))
        assert cache.total_bytes <= others + MAX_BYTES
    assert all(cache.get(relationship_id, "Hello") for relationship_id in range(2, 30))
    newest = [number for number in range(3000) if cache.get(1, f"draft {number}")]
    assert newest == list(range(3000 - len(newest), 3000))
    assert 2 < len(newest) <= 32


def test_a_context_started_before_an_erasure_is_not_cached() -> None:
    """It may contain what was erased."""
    cache = ContextCache(10, MAX_BYTES, 60.0, ManualClock())
    cache.on_announcement(erasure(1, 5))
    cache.put(1, context("Hello", version=4))
    assert cache.get(1, "Hello") is None
    cache.put(1, context("Hello", version=5))
    assert cache.get(1, "Hello") is not None


@pytest.mark.parametrize(("memories", "chars"), [(0, 0), (1, 10), (10, 100), (10, 4000)])
def test_the_size_estimate_is_an_upper_bound(memories: int, chars: int) -> None:
    """Compared with the memory that the interpreter allocated."""
    texts = ["draft", *("draft " + "é" * number for number in range(200))]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        cache = ContextCache(10_000, 1 << 30, 60.0, ManualClock())
        for relationship_id, text in enumerate(texts):
            cache.put(relationship_id, context(text, memories=memories, chars=chars))
        allocated = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(cache) == len(texts)
    assert allocated <= cache.total_bytes <= 4 * allocated
