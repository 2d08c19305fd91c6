"""Which memories replies used, and how often each record is in a prompt."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from foremind.domain.errors import ForemindError
from foremind.domain.memory import Recalled
from foremind.domain.record import Use
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.record_store import RecordStore
from foremind.text.tokenization import names_in, terms_of

# Of what a memory has and the conversation had not, a reply takes this much if that is no chance.
_MIN_TERMS = 3
_MIN_TERMS_OF_A_SUBJECT = 2  # if the memory is about something that was said
_MIN_SHARE = 1 / 6  # of such terms
_MIN_REPLY_SHARE = 1 / 4  # if it is about that, one term can be the whole answer


def used_memories(reply: str, memories: Sequence[Recalled], said: Iterable[str]) -> list[int]:
    """Return the ids of the memories that `reply` takes something of.

    Args:
        said: what the reply need not have from a memory: names, and what was said before it.
    """
    reply_terms = set(terms_of(reply))
    known = {term for text in said for term in terms_of(text)}
    return [memory.id for memory in memories if _uses(reply_terms, known, memory.content)]


def _uses(reply: set[str], known: set[str], memory: str) -> bool:
    """Return whether a reply takes a name, or enough other words, of what only a memory has."""
    terms = set(terms_of(memory))
    new = terms - known
    taken = reply & new
    if not taken.isdisjoint(terms_of(" ".join(names_in(memory)))):
        return True
    count = len(taken)
    if count < _MIN_SHARE * len(new) or not taken:
        return False
    if terms.isdisjoint(known):
        return count >= _MIN_TERMS or count == len(new) >= _MIN_TERMS_OF_A_SUBJECT
    return count >= _MIN_TERMS_OF_A_SUBJECT or count >= _MIN_REPLY_SHARE * len(reply)


_WRITE_INTERVAL_S = 5.0
MAX_PENDING_RECORDS = 10_000  # records with unwritten counts; accesses of others are not counted


@dataclass(slots=True)
class _Count:
    times: int
    last: datetime


class AccessCounts:
    """Counts accesses in memory and writes them periodically, and when the context exits.

    Callers never wait for a write; counts that a killed process had not written are lost.
    """

    def __init__(self, store: RecordStore, supervisor: Supervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._counts: defaultdict[int, dict[int, _Count]] = defaultdict(dict)
        self._pending = 0

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.every("record-uses", _WRITE_INTERVAL_S, self.write)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        with suppress(ForemindError):
            await self.write()

    def count_access(
        self, relationship_id: int, record_ids: Collection[int], now: datetime
    ) -> None:
        """Count one access each for records of a relationship that were in a prompt."""
        counts = self._counts[relationship_id]
        for record_id in record_ids:
            count = counts.get(record_id)
            if count is not None:
                count.times += 1
                count.last = now
            elif self._pending < MAX_PENDING_RECORDS:
                counts[record_id] = _Count(1, now)
                self._pending += 1
        if not counts:
            del self._counts[relationship_id]

    async def write(self) -> None:
        """Write the pending counts, one relationship at a time.

        Raises:
            StorageUnavailable: the remaining counts are written next time.
        """
        for relationship_id in list(self._counts):
            counts = self._counts[relationship_id]
            uses = [Use(record_id, count.times, count.last) for record_id, count in counts.items()]
            await self._store.add_uses(relationship_id, uses)
            self._subtract(relationship_id, uses)

    def _subtract(self, relationship_id: int, written: list[Use]) -> None:
        """Subtract what was written; more accesses may have been counted meanwhile."""
        counts = self._counts[relationship_id]
        for use in written:
            counts[use.record_id].times -= use.times
            if not counts[use.record_id].times:
                del counts[use.record_id]
                self._pending -= 1
        if not counts:
            del self._counts[relationship_id]
