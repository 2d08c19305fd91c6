"""How often records stand in prompts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from foremind.domain.errors import StorageUnavailable
from foremind.domain.record import Use
from foremind.retrieval import access_counts
from foremind.retrieval.access_counts import AccessCounts

NOW = datetime(2026, 5, 20, tzinfo=UTC)


class Store:
    """Takes what is written, or fails."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int, datetime]] = []
        self.fails = False

    async def used(self, relationship_id: int, given: Sequence[Use]) -> None:
        """Note them."""
        if self.fails:
            raise StorageUnavailable("It failed, as it was to.")
        self.written += [(relationship_id, each.record_id, each.times, each.last) for each in given]


def counting(store: Store) -> AccessCounts:
    """What counts for a store."""
    return AccessCounts(cast("Any", store), cast("Any", None))


async def test_many_prompts_are_written_together_and_once() -> None:
    """With when each record stood in the last of them."""
    store = Store()
    counts = counting(store)
    later = NOW + timedelta(seconds=3)
    counts.note(1, [7, 8], NOW)
    counts.note(1, [7], later)
    counts.note(2, [9], NOW)
    assert store.written == []
    await counts.write()
    assert sorted(store.written) == [(1, 7, 2, later), (1, 8, 1, NOW), (2, 9, 1, NOW)]
    await counts.write()
    assert len(store.written) == 3


async def test_what_could_not_be_written_is_written_next_time() -> None:
    """With what came on top."""
    store = Store()
    counts = counting(store)
    counts.note(1, [7], NOW)
    store.fails = True
    with pytest.raises(StorageUnavailable):
        await counts.write()
    counts.note(1, [7], NOW)
    store.fails = False
    await counts.write()
    assert store.written == [(1, 7, 2, NOW)]


async def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known go on being counted; room is given back by writing."""
    monkeypatch.setattr(access_counts, "MOST_WAITING", 2)
    store = Store()
    counts = counting(store)
    counts.note(1, [1, 2, 3], NOW)
    counts.note(1, [1], NOW)
    await counts.write()
    assert [each[1:3] for each in store.written] == [(1, 2), (2, 1)]
    counts.note(1, [3], NOW)
    await counts.write()
    assert store.written[-1][1] == 3
