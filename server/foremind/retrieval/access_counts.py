"""How often records stand in prompts: counted in the process, written now and then."""

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from foremind.domain.errors import ForemindError
from foremind.domain.record import Use
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.record_store import RecordStore

_EVERY_S = 5.0
MOST_WAITING = 10_000  # records of which something is to be written; of more, nothing is counted


@dataclass(slots=True)
class _Count:
    times: int
    last: datetime


class AccessCounts:
    """Counts, until the block ends; what is counted then is written.

    Nobody waits for it, and what a process that is killed had not written is lost.
    """

    def __init__(self, store: RecordStore, supervisor: Supervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._counts: defaultdict[int, dict[int, _Count]] = defaultdict(dict)
        self._waiting = 0

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.every("record-uses", _EVERY_S, self.write)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        with suppress(ForemindError):
            await self.write()

    def note(self, relationship_id: int, record_ids: Collection[int], now: datetime) -> None:
        """Note that records of a relationship stood in a prompt; returns at once."""
        counts = self._counts[relationship_id]
        for record_id in record_ids:
            known = counts.get(record_id)
            if known is not None:
                known.times += 1
                known.last = now
            elif self._waiting < MOST_WAITING:
                counts[record_id] = _Count(1, now)
                self._waiting += 1
        if not counts:
            del self._counts[relationship_id]

    async def write(self) -> None:
        """Write what was counted, one relationship after the other.

        Raises:
            StorageUnavailable: the rest is written next time.
        """
        for relationship_id in list(self._counts):
            counts = self._counts[relationship_id]
            written = {each: (count.times, count.last) for each, count in counts.items()}
            uses = [Use(each, times, last) for each, (times, last) in written.items()]
            await self._store.used(relationship_id, uses)
            self._written(relationship_id, {each: times for each, (times, _) in written.items()})

    def _written(self, relationship_id: int, times: dict[int, int]) -> None:
        """Take off what was written; more may have come meanwhile."""
        counts = self._counts[relationship_id]
        for time, number in times.items():
            counts[time].times -= number
            if not counts[time].times:
                del counts[time]
                self._waiting -= 1
        if not counts:
            del self._counts[relationship_id]
