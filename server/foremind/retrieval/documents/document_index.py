"""One companion's documents, searched by vectors and by terms, fused by rank. Pure."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from sys import getsizeof

import numpy as np
import numpy.typing as npt

from foremind.domain.document import Chunk
from foremind.retrieval.bm25 import idf, length_norms, saturated
from foremind.retrieval.candidates import Numbers
from foremind.retrieval.index.vector_search import Vectors
from foremind.text.tokenization import count_terms, names_in, terms_of

_MAX_RESULTS = 3
_CANDIDATES = 20
# The constant of reciprocal rank fusion (Cormack, Clarke, Buettcher 2009, SIGIR).
_RRF = 60
_CHUNK_BYTES = 100  # what a chunk's object occupies in addition to its text
# A chunk found by its terms alone must contain more than this share of the query's terms, or of its
# own length if it has fewer terms than the query.
_MIN_SHARED = 0.5


class DocumentIndex:
    """The chunks of one companion's documents, ready to be searched.

    Args:
        min_cosine: the cosine from which a chunk counts as near a query.
    """

    def __init__(self, chunks: Sequence[Chunk], min_cosine: float) -> None:
        self._min_cosine = min_cosine
        packed = [
            (row, chunk.packed) for row, chunk in enumerate(chunks) if chunk.packed is not None
        ]
        self._with_vector = np.array([row for row, _ in packed], np.int64)
        self._vectors = Vectors([vector for _, vector in packed])
        # The vectors are kept in one array instead.
        self.chunks = [replace(chunk, packed=None) for chunk in chunks]
        self._terms = InvertedIndex(
            [count_terms(f"{chunk.title} {chunk.content}") for chunk in chunks]
        )

    @property
    def size_bytes(self) -> int:
        """Approximate memory use."""
        texts = sum(getsizeof(chunk.content) + _CHUNK_BYTES for chunk in self.chunks)
        return texts + self._vectors.size_bytes + self._terms.size_bytes

    def search(self, text: str, vector: npt.NDArray[np.float32]) -> list[Chunk]:
        """Return the best chunks by reciprocal rank fusion of cosine and BM25."""
        nearest = self._nearest(vector)
        lexical = self._lexical_matches(text, nearest)
        scores: dict[int, float] = {}
        for ranking in (nearest, lexical):
            for rank, row in enumerate(ranking, 1):
                scores[row] = scores.get(row, 0.0) + 1 / (_RRF + rank)
        order = sorted(scores, key=lambda row: (-scores[row], row))
        return [self.chunks[row] for row in order[:_MAX_RESULTS]]

    def _lexical_matches(self, text: str, nearest: Collection[int]) -> list[int]:
        """Return the best rows by BM25 that are also near, share many terms, or share a name."""
        terms = set(terms_of(text))
        names = set(terms_of(" ".join(names_in(text))))
        rows = self._terms.best(terms, _CANDIDATES)
        shares = self._terms.shared(terms, rows) / self._terms.max_shared(terms, rows)
        shares_name = self._terms.shared(names, rows) > 0
        matches = shares_name | (shares > _MIN_SHARED)
        return [
            row for row, is_match in zip(rows, matches, strict=True) if is_match or row in nearest
        ]

    def _nearest(self, vector: npt.NDArray[np.float32]) -> list[int]:
        if not len(self._vectors):
            return []
        approximate, max_error = self._vectors.cosines(vector)
        minimum = max(self._min_cosine, _nth_highest(approximate, _CANDIDATES)) - 2 * max_error
        candidates = np.flatnonzero(approximate >= minimum)
        cosines = self._vectors.exact(candidates, vector)
        order = np.argsort(-cosines, kind="stable")[:_CANDIDATES]
        nearest = candidates[order[cosines[order] >= self._min_cosine]]
        return [int(row) for row in self._with_vector[nearest]]


class InvertedIndex:
    """Posting lists of chunks in flat arrays: a term's rows and frequencies are contiguous."""

    def __init__(self, chunks: Sequence[Mapping[str, int]]) -> None:
        self._count = len(chunks)
        self._term_ids: dict[str, int] = {}
        term_ids, rows, frequencies = array("i"), array("i"), array("h")
        for row, terms in enumerate(chunks):
            term_ids.extend(self._term_ids.setdefault(term, len(self._term_ids)) for term in terms)
            rows.extend(repeat(row, len(terms)))
            frequencies.extend(terms.values())
        by_term = np.argsort(np.asarray(term_ids, np.int32), kind="stable")
        self._rows = np.asarray(rows, np.int32)[by_term]
        self._frequencies = np.asarray(frequencies, np.int16)[by_term]
        document_frequencies = np.bincount(
            np.asarray(term_ids, np.int32), minlength=len(self._term_ids)
        )
        self._ends = np.cumsum(document_frequencies)
        self._starts = self._ends - document_frequencies
        self._lengths = np.array([sum(terms.values()) for terms in chunks], np.float64)
        mean_length = self._lengths.sum() / max(1, self._count)
        self._norms = length_norms(self._lengths, mean_length or 1.0)

    @property
    def size_bytes(self) -> int:
        """Memory use of the posting lists."""
        return (
            self._rows.nbytes + self._frequencies.nbytes + self._lengths.nbytes + self._norms.nbytes
        )

    def best(self, terms: Collection[str], limit: int) -> list[int]:
        """Return the chunks with the highest BM25 that contain a query term, best first."""
        return _best_positive(self.scores(terms), limit)

    def scores(self, terms: Collection[str]) -> Numbers:
        """Return the BM25 of every chunk for distinct query terms, float64 [chunks]."""
        scores = np.zeros(self._count)
        for term in sorted(terms):
            term_id = self._term_ids.get(term)
            if term_id is not None:
                self._add_term(term_id, scores)
        return scores

    def shared(self, terms: Collection[str], rows: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return how many of the query terms each of `rows` contains."""
        shared = np.zeros(len(rows), np.int64)
        for term in terms:
            term_id = self._term_ids.get(term)
            if term_id is not None:
                postings = self._rows[self._starts[term_id] : self._ends[term_id]]  # sorted
                positions = np.minimum(np.searchsorted(postings, rows), len(postings) - 1)
                shared += postings[positions] == rows
        return shared

    def max_shared(self, terms: Collection[str], rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return how many of the query terms each of `rows` could contain, given its length."""
        return np.asarray(np.minimum(self._lengths[list(rows)], len(terms)))

    def _add_term(self, term_id: int, scores: Numbers) -> None:
        """Add one term's BM25 to the chunks that contain it."""
        postings = slice(self._starts[term_id], self._ends[term_id])
        rows, frequencies = self._rows[postings], self._frequencies[postings].astype(np.float64)
        scores[rows] += idf(len(rows), self._count) * saturated(frequencies, self._norms[rows])


def _nth_highest(scores: npt.NDArray[np.float32], n: int) -> float:
    """Return the nth highest score, or the lowest if there are fewer."""
    place = max(0, len(scores) - n)
    return float(np.partition(scores, place)[place])


def _best_positive(scores: Numbers, limit: int) -> list[int]:
    """Return the positions of the highest scores above 0, best first; ties in order."""
    if len(scores) > limit:
        minimum = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        candidates = np.flatnonzero((scores >= minimum) & (scores > 0))
    else:
        candidates = np.flatnonzero(scores > 0)
    order = np.argsort(-scores[candidates], kind="stable")[:limit]
    return [int(row) for row in candidates[order]]
