"""Memory search: parse the query, retrieve candidates, rank them."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import Recalled, RetrievalQuery, WordStatistics
from foremind.domain.policy import RecallPolicy
from foremind.domain.world import NOWHERE, Surroundings
from foremind.retrieval.classifiers import TextClassifiers, worth_searching
from foremind.retrieval.ranking import (
    CandidateSet,
    parse_query,
    rank,
    rare_terms,
    to_candidate_set,
)
from foremind.runtime.supervision import run_or_offload
from foremind.storage.memory_store import MemoryStore
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH

# Share of the cosine in relevance where the embedding model was not trained on the language.
_UNSERVED_VECTOR_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Query:
    """A search of one relationship; `vector` is the unit vector of `text`, float32 [dimension].

    `now` is in the player's time zone; `language` is that of the text where it is unsure; `around`
    is where it is asked, in a world.
    """

    relationship_id: int
    text: str
    vector: npt.NDArray[np.float32]
    policy: RecallPolicy
    now: datetime
    language: str = ENGLISH
    around: Surroundings = NOWHERE


class MemorySearch(Protocol):
    """Finds memories of one relationship."""

    async def search(self, query: Query) -> list[Recalled]:
        """Return at most `query.policy.limit` memories, best first."""


class GatedSearch:
    """Skips the search for texts that memories could not help to answer."""

    def __init__(self, search: MemorySearch, classifiers: TextClassifiers | None) -> None:
        self._search = search
        self._classifiers = classifiers

    async def search(self, query: Query) -> list[Recalled]:
        """Return the best memories, or none if the policy's recall gate rejects the text.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        chars = len(query.text)
        if query.policy.gate and not await run_or_offload(
            chars, lambda: self._worth_searching(query)
        ):
            return []
        return await self._search.search(query)

    def _worth_searching(self, query: Query) -> bool:
        log_odds = (
            None
            if self._classifiers is None
            else self._classifiers.classify(query.text, query.vector).recall
        )
        return worth_searching(query.text, log_odds, query.language)


class Candidates(Protocol):
    """A source of candidates for ranking: the database, or an index in the process."""

    async def candidates(self, query: RetrievalQuery) -> tuple[CandidateSet, WordStatistics]:
        """Return memories that may be recalled, with the statistics to score them."""


class StoredCandidates:
    """Retrieves candidates from the database."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def candidates(self, query: RetrievalQuery) -> tuple[CandidateSet, WordStatistics]:
        """Return memories that may be recalled, with the statistics to score them.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        candidates, statistics = await self._store.candidates(query)
        return to_candidate_set(candidates, query.terms), statistics


class RankedSearch:
    """Retrieves candidates from a source and ranks them.

    Args:
        languages: codes of those that vectors serve; none if they serve all.
        floor: the cosine of the embedding model that counts as 0.
    """

    def __init__(
        self, source: Candidates, languages: Collection[str] = (), floor: float = 0.0
    ) -> None:
        self._source = source
        self._languages = frozenset(languages)
        self._floor = floor

    async def search(self, query: Query) -> list[Recalled]:
        """Return the best memories.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        parsed = await run_or_offload(
            len(query.text),
            lambda: parse_query(query.text, query.now, query.language, query.around),
        )
        policy = query.policy
        if self._languages and language_of(query.text, query.language) not in self._languages:
            policy = favour_words(policy)
        retrieval = RetrievalQuery(
            relationship_id=query.relationship_id,
            vector=query.vector,
            terms=sorted(set(parsed.terms)),
            policy=policy,
            now=query.now,
            times=[(time.start, time.end) for time in parsed.times],
        )
        candidates, statistics = await self._source.candidates(retrieval)
        if policy.in_world and (rare := rare_terms(parsed.terms, statistics)):
            parsed = replace(parsed, terms=rare)
            retrieval = replace(retrieval, terms=sorted(set(rare)))
            candidates, statistics = await self._source.candidates(retrieval)
        return rank(candidates, parsed, statistics, policy, query.now, self._floor)


def favour_words(policy: RecallPolicy) -> RecallPolicy:
    """Return a policy by which words count more than vectors, unless they do already."""
    total = policy.vector_weight + policy.keyword_weight
    vector_weight = min(policy.vector_weight, _UNSERVED_VECTOR_SHARE * total)
    return replace(policy, vector_weight=vector_weight, keyword_weight=total - vector_weight)
