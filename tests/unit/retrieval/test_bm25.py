"""BM25 gives the scores of an independent implementation, for memories and for documents."""

import math
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from foremind.domain.memory import Candidate, KnownMemory, WordStatistics
from foremind.retrieval.documents.library import InvertedIndex
from foremind.retrieval.ranking import (
    K1,
    B,
    bm25_scores,
    idf,
    length_norms,
    saturated,
    to_candidate_set,
)

NOW = datetime(2026, 5, 20, tzinfo=UTC)
TOLERANCE = 1e-9

# Some terms are in nearly every document, some in few, and "x" to "z" in none.
_TERMS = st.sampled_from("aaaaaabbbbcccddefghij")
DOCUMENTS = st.lists(st.lists(_TERMS, min_size=1, max_size=40), min_size=1, max_size=30)
QUERY = st.lists(st.sampled_from("abcdefghijxyz"), max_size=12)


class Reference(BM25Okapi):  # type: ignore[misc]
    """`rank_bm25` with the idf that never becomes negative, ln(1 + (N - n + 0.5) / (n + 0.5))."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self.idf = {
            term: math.log(1 + (self.corpus_size - n + 0.5) / (n + 0.5)) for term, n in nd.items()
        }


def reference(documents: list[list[str]], query: list[str]) -> list[float]:
    """Return the scores that `rank_bm25` computes."""
    return [float(score) for score in Reference(documents, k1=K1, b=B).get_scores(query)]


def candidate(number: int, terms: list[str]) -> Candidate:
    """A memory with these terms."""
    memory = KnownMemory(
        id=number,
        content=" ".join(terms),
        speaker="user",
        memory_type="conversation",
        significance=0.5,
        created_at=NOW,
        happened=None,
        last_used_at=None,
        superseded=False,
        session=number,
        length=float(len(terms)),
    )
    return Candidate(memory, 0.0, {term: float(count) for term, count in Counter(terms).items()})


@given(DOCUMENTS, QUERY)
@settings(max_examples=300, deadline=None)
def test_memories_score_as_in_the_reference(documents: list[list[str]], query: list[str]) -> None:
    """A term that is repeated in the query counts each time."""
    terms = sorted(set(query))
    document_frequencies = Counter(term for document in documents for term in set(document))
    statistics = WordStatistics(
        len(documents), float(sum(map(len, documents))), dict(document_frequencies)
    )
    candidates = to_candidate_set(
        [candidate(n, document) for n, document in enumerate(documents)], terms
    )
    counts = Counter(query)
    weights = [counts[term] * idf(document_frequencies[term], len(documents)) for term in terms]
    scores = bm25_scores(candidates, weights, statistics)
    assert scores.tolist() == pytest.approx(reference(documents, query), abs=TOLERANCE)


@given(DOCUMENTS, QUERY)
@settings(max_examples=300, deadline=None)
def test_documents_score_as_in_the_reference(documents: list[list[str]], query: list[str]) -> None:
    """Each distinct query term counts once."""
    terms = sorted(set(query))
    scores = InvertedIndex([Counter(document) for document in documents]).scores(terms)
    assert scores.tolist() == pytest.approx(reference(documents, terms), abs=TOLERANCE)


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_idf_is_never_negative(document_frequency: int, documents: int) -> None:
    """It falls as more documents contain the term, and is 0 for a term in none."""
    value = idf(document_frequency, documents)
    assert value >= 0
    if 0 < document_frequency < documents:
        assert value > idf(document_frequency + 1, documents) > 0
    assert idf(0, documents) == 0


def test_saturation_approaches_its_limit() -> None:
    """A document of average length scores 1 for one occurrence, and less than K1 + 1 for many."""
    (norm,) = length_norms(np.array([10.0]), 10.0)
    once, often = saturated(np.array([1.0, 1e6]), np.array([norm, norm]))
    assert once == pytest.approx(1.0)
    assert 2.49 < often < K1 + 1
