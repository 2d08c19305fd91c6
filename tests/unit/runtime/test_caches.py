"""The byte-bounded cache stays within its bytes and reports what it drops."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.runtime.caches import ByteBoundedCache

_MAX_BYTES = 10


@pytest.fixture
def removed() -> list[tuple[str, str]]:
    """What caches reported as removed."""
    return []


@pytest.fixture
def cache(removed: list[tuple[str, str]]) -> Iterator[ByteBoundedCache[str, str]]:
    """A cache of texts, each as large as it is long."""
    yield ByteBoundedCache(_MAX_BYTES, len, lambda key, value: removed.append((key, value)))


def test_the_least_recently_used_is_evicted_first(
    cache: ByteBoundedCache[str, str], removed: list[tuple[str, str]]
) -> None:
    cache.put("a", "xxxx")
    cache.put("b", "yyyy")
    assert cache["a"] == "xxxx"
    assert cache.put("c", "zzzz")
    assert removed == [("b", "yyyy")]
    assert sorted(cache) == ["a", "c"]


def test_peeking_does_not_count_as_use(
    cache: ByteBoundedCache[str, str], removed: list[tuple[str, str]]
) -> None:
    cache.put("a", "xxxx")
    cache.put("b", "yyyy")
    assert cache.peek("a") == "xxxx"
    assert cache.peek("missing") is None
    cache.put("c", "zzzz")
    assert removed == [("a", "xxxx")]


def test_what_exceeds_the_limit_by_itself_is_refused_and_its_old_value_removed(
    cache: ByteBoundedCache[str, str], removed: list[tuple[str, str]]
) -> None:
    cache.put("a", "xxxx")
    cache.put("b", "yyyy")
    assert not cache.put("a", "x" * 11)
    assert removed == [("a", "xxxx")]
    assert list(cache) == ["b"]


def test_replacing_a_value_is_not_reported(
    cache: ByteBoundedCache[str, str], removed: list[tuple[str, str]]
) -> None:
    cache.put("a", "xxxx")
    cache.put("a", "xx")
    assert removed == []
    assert cache.bytes_used == 2


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 12))))
def test_bytes_used_is_the_size_of_what_is_cached(puts: list[tuple[str, int]]) -> None:
    kept: dict[str, str] = {}
    cache: ByteBoundedCache[str, str] = ByteBoundedCache(
        _MAX_BYTES, len, lambda key, _: kept.pop(key)
    )
    for key, size in puts:
        if cache.put(key, "x" * size):
            kept[key] = "x" * size
        assert dict(cache) == kept
        assert cache.bytes_used == sum(map(len, kept.values())) <= _MAX_BYTES
