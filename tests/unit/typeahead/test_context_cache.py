"""The cache of prepared contexts: bounded in number, bytes and time, for all and for each."""

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
from foremind.testing.manual_clock import ManualClock
from foremind.typeahead.context_cache import (
    BuildTimings,
    CacheKey,
    ContextCache,
    PreparedContext,
    bytes_of,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)
POLICY = cast("Any", None)
MOST = 200_000


def context(text: str, *, memories: int = 0, chars: int = 0, version: int = 0) -> PreparedContext:
    """A context for `text` that brings back some memories of some characters each."""
    said = [f"{text} {number} ".ljust(chars, "é") for number in range(memories)]
    lines = tuple(f"- {each}" for each in said)
    return PreparedContext(
        text=text,
        validity=CacheKey(version, 0, 0, "model", "embedding", POLICY, POLICY),
        vector=np.zeros(384, np.float32),
        memories=tuple(
            Recalled(number, each, "user", "conversation", 0.5, NOW, False, 1, 1, 1, 1)
            for number, each in enumerate(said)
        ),
        recalled={"memories": section("memories", lines, len)},
        missing={},
        standing=StandingLayers(),
        timings=BuildTimings(0.5, 0.5, 1.0, {"topics": 0.5}),
    )


def forgotten(relationship_id: int, version: int) -> MemoriesForgotten:
    """The announcement that something was."""
    return MemoriesForgotten(relationship_id, version, 0, 0, None)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.integers(1, 4),
            st.sampled_from([f"draft {number}" for number in range(50)]),
            st.integers(0, 12),
            st.sampled_from([10, 300, 3000]),
        ),
        st.tuples(st.just("forget"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 5.0, 61.0])),
    ),
    max_size=80,
)


@given(STEPS, st.sampled_from([0, 3000, MOST, 10_000_000]))
@settings(max_examples=200, deadline=None)
def test_whatever_is_put_it_stays_within_every_bound(steps: list[Any], most: int) -> None:
    """Number, bytes, time; what is held is what was put last, and nothing that was forgotten."""
    clock, version = ManualClock(), 0
    cache = ContextCache(20, most, 60.0, clock)
    told: dict[tuple[int, str], tuple[float, PreparedContext]] = {}
    for step in steps:
        match step:
            case ("put", whose, text, memories, chars):
                new = context(text, memories=memories, chars=chars, version=version)
                cache.put(whose, new)
                told[whose, text] = clock.monotonic(), new
                if bytes_of(new) <= most:
                    assert cache.get(whose, text) is new  # the newest is there
            case ("forget", whose):
                version += 1
                cache.heard(forgotten(whose, version))
                told = {key: each for key, each in told.items() if key[0] != whose}
            case ("wait", seconds):
                advance(clock, seconds)
        held = {key: each for key in told if (each := cache.get(*key)) is not None}
        assert all(each is told[key][1] for key, each in held.items())
        assert all(clock.monotonic() - told[key][0] < 60 for key in held)
        assert len(cache) == len(held) <= 20
        assert cache.bytes_held == sum(map(bytes_of, held.values())) <= most
    advance(clock, 61)
    assert len(cache) == cache.bytes_held == 0  # though nobody types any more


def advance(clock: ManualClock, seconds: float) -> None:
    """Move the clock; what is due runs."""
    moving = clock.advance(seconds)
    with pytest.raises(StopIteration):
        while True:
            moving.send(None)


def test_one_who_types_much_costs_nobody_else_a_context() -> None:
    """Thousands of drafts of one relationship leave its newest, and everybody else's."""
    cache = ContextCache(10_000, 64 * MOST, 60.0, ManualClock())
    for whose in range(2, 30):
        cache.put(whose, context("Hello", memories=10, chars=300))
    others = cache.bytes_held
    for number in range(3000):
        cache.put(1, context(f"draft {number}", memories=10, chars=300))
        assert cache.bytes_held <= others + MOST
    assert all(cache.get(whose, "Hello") for whose in range(2, 30))
    newest = [number for number in range(3000) if cache.get(1, f"draft {number}")]
    assert newest == list(range(3000 - len(newest), 3000))
    assert 2 < len(newest) <= 32


def test_what_was_begun_before_something_was_forgotten_is_not_kept() -> None:
    """It may hold it."""
    cache = ContextCache(10, MOST, 60.0, ManualClock())
    cache.heard(forgotten(1, 5))
    cache.put(1, context("Hello", version=4))
    assert cache.get(1, "Hello") is None
    cache.put(1, context("Hello", version=5))
    assert cache.get(1, "Hello") is not None


@pytest.mark.parametrize(("memories", "chars"), [(0, 0), (1, 10), (10, 100), (10, 4000)])
def test_contexts_take_no_more_than_is_counted(memories: int, chars: int) -> None:
    """As the interpreter itself counts what is allocated."""
    texts = ["draft", *("draft " + "é" * number for number in range(200))]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        cache = ContextCache(10_000, 1 << 30, 60.0, ManualClock())
        for whose, text in enumerate(texts):
            cache.put(whose, context(text, memories=memories, chars=chars))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(cache) == len(texts)
    assert taken <= cache.bytes_held <= 4 * taken
