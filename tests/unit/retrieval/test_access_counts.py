"""Access counts of records."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from foremind.domain.errors import StorageUnavailable
from foremind.domain.record import Use
from foremind.retrieval import access_counts
from foremind.retrieval.access_counts import AccessCounts

NOW = datetime(2026, 5, 20, tzinfo=UTC)


class RecordedUses:
    """Records what is written, or fails."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int, datetime]] = []
        self.fails = False

    async def add_uses(self, relationship_id: int, uses: Sequence[Use]) -> None:
        """Record uses."""
        if self.fails:
            raise StorageUnavailable("Failed on purpose.")
        self.written += [(relationship_id, use.record_id, use.times, use.last) for use in uses]


def counting(store: RecordedUses) -> AccessCounts:
    """Access counts that are written to `store`."""
    return AccessCounts(cast("Any", store), cast("Any", None))


async def test_counts_of_several_prompts_are_written_in_one_batch() -> None:
    """With the time of each record's last access."""
    store = RecordedUses()
    counts = counting(store)
    later = NOW + timedelta(seconds=3)
    counts.count_access(1, [7, 8], NOW)
    counts.count_access(1, [7], later)
    counts.count_access(2, [9], NOW)
    assert store.written == []
    await counts.write()
    assert sorted(store.written) == [(1, 7, 2, later), (1, 8, 1, NOW), (2, 9, 1, NOW)]
    await counts.write()
    assert len(store.written) == 3


async def test_counts_that_failed_to_be_written_are_retried() -> None:
    """Together with later ones."""
    store = RecordedUses()
    counts = counting(store)
    counts.count_access(1, [7], NOW)
    store.fails = True
    with pytest.raises(StorageUnavailable):
        await counts.write()
    counts.count_access(1, [7], NOW)
    store.fails = False
    await counts.write()
    assert store.written == [(1, 7, 2, NOW)]


async def test_pending_records_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending records are still counted; writing makes space for others."""
    monkeypatch.setattr(access_counts, "MAX_PENDING_RECORDS", 2)
    store = RecordedUses()
    counts = counting(store)
    counts.count_access(1, [1, 2, 3], NOW)
    counts.count_access(1, [1], NOW)
    await counts.write()
    assert [written[1:3] for written in store.written] == [(1, 2), (2, 1)]
    counts.count_access(1, [3], NOW)
    await counts.write()
    assert store.written[-1][1] == 3
