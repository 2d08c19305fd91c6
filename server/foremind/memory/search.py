"""Search behind one narrow interface: a query in, the best memories out."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
import numpy.typing as npt

from foremind.companions import RecallPolicy
from foremind.memory.ranking import Recalled, rank
from foremind.memory.terms import terms_of
from foremind.storage.memories import MemoryStore


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for; `vector` is the unit vector of `text`, float32 [dimension]."""

    relationship_id: int
    text: str
    vector: npt.NDArray[np.float32]
    policy: RecallPolicy
    now: datetime


class MemorySearch(Protocol):
    """Finds memories of one relationship."""

    async def search(self, query: Query) -> list[Recalled]:
        """Return at most `query.policy.limit` memories, best first."""


class StoreSearch:
    """Searches the database: candidates in one round trip, scored here."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def search(self, query: Query) -> list[Recalled]:
        """Return the best memories.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        terms = terms_of(query.text)
        candidates, statistics = await self._store.candidates(
            query.relationship_id,
            query.vector,
            sorted(set(terms)),
            query.policy,
            query.now,
        )
        return rank(candidates, terms, statistics, query.policy)
