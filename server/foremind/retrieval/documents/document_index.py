"""One companion's documents, searched by meaning and by words, fused by rank. Pure."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from sys import getsizeof

import numpy as np
import numpy.typing as npt

from foremind.domain.document import Chunk
from foremind.retrieval.index.vector_search import Vectors
from foremind.text.tokenization import count_terms, names_in, terms_of

_MOST = 3
_CANDIDATES = 20
# The constant of reciprocal rank fusion (Cormack, Clarke, Buettcher 2009, SIGIR).
_RRF = 60
_K1, _B = 1.5, 0.75
_CHUNK_BYTES = 100  # what the object of a chunk takes beside its text
# What is found by its words alone shares more than this of those asked for, or of its own.
_LEAST_SHARED = 0.5


class DocumentIndex:
    """The passages of one companion's documents, ready to be searched.

    Args:
        least: the cosine below which a passage is not near.
    """

    def __init__(self, chunks: Sequence[Chunk], least: float) -> None:
        self._least = least
        packed = [
            (row, chunk.packed) for row, chunk in enumerate(chunks) if chunk.packed is not None
        ]
        self._with_vector = np.array([row for row, _ in packed], np.int64)
        self._vectors = Vectors([vector for _, vector in packed])
        self.chunks = [replace(chunk, packed=None) for chunk in chunks]  # they lie in one array
        self._words = QueryTerms(
            [count_terms(f"{chunk.title} {chunk.content}") for chunk in chunks]
        )

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        texts = sum(getsizeof(chunk.content) + _CHUNK_BYTES for chunk in self.chunks)
        return texts + self._vectors.size_bytes + self._words.size_bytes

    def search(self, text: str, vector: npt.NDArray[np.float32]) -> list[Chunk]:
        """Return the best passages by reciprocal rank fusion of cosine and BM25."""
        near = self._nearest(vector)
        worded = self._well_worded(text, near)
        ranks: dict[int, float] = {}
        for ranking in (near, worded):
            for rank, index in enumerate(ranking, 1):
                ranks[index] = ranks.get(index, 0.0) + 1 / (_RRF + rank)
        order = sorted(ranks, key=lambda index: (-ranks[index], index))
        return [self.chunks[index] for index in order[:_MOST]]

    def _well_worded(self, text: str, near: Collection[int]) -> list[int]:
        """Return what is found by its words: it is near too, or shares many of them, or a name."""
        asked = set(terms_of(text))
        named = set(terms_of(" ".join(names_in(text))))
        rows = self._words.best(asked, _CANDIDATES)
        shares = self._words.shared(asked, rows) / self._words.most_shared(asked, rows)
        by_name = self._words.shared(named, rows) > 0
        well = by_name | (shares > _LEAST_SHARED)
        return [row for row, is_well in zip(rows, well, strict=True) if is_well or row in near]

    def _nearest(self, vector: npt.NDArray[np.float32]) -> list[int]:
        if not len(self._vectors):
            return []
        about, off = self._vectors.cosines(vector)
        likely = np.flatnonzero(about >= max(self._least, _least_of(about, _CANDIDATES)) - 2 * off)
        cosines = self._vectors.exact(likely, vector)
        order = np.argsort(-cosines, kind="stable")[:_CANDIDATES]
        near = likely[order[cosines[order] >= self._least]]
        return [int(each) for each in self._with_vector[near]]


class QueryTerms:
    """Which words stand in which chunks, in three flat arrays: a word's rows lie side by side."""

    def __init__(self, chunks: Sequence[Mapping[str, int]]) -> None:
        self._count = len(chunks)
        self._numbers: dict[str, int] = {}
        numbers, rows, counts = array("i"), array("i"), array("h")
        for row, words in enumerate(chunks):
            numbers.extend(self._numbers.setdefault(word, len(self._numbers)) for word in words)
            rows.extend(repeat(row, len(words)))
            counts.extend(words.values())
        by_word = np.argsort(np.asarray(numbers, np.int32), kind="stable")
        self._rows = np.asarray(rows, np.int32)[by_word]
        self._counts = np.asarray(counts, np.int16)[by_word]
        having = np.bincount(np.asarray(numbers, np.int32), minlength=len(self._numbers))
        self._ends = np.cumsum(having)
        self._starts = self._ends - having
        self._lengths = np.array([sum(words.values()) for words in chunks], np.float64)
        mean = self._lengths.sum() / max(1, self._count)
        self._norms = _K1 * (1 - _B + _B * self._lengths / (mean or 1.0))

    @property
    def size_bytes(self) -> int:
        """What the places of the words take."""
        return self._rows.nbytes + self._counts.nbytes + self._lengths.nbytes + self._norms.nbytes

    def best(self, asked: Collection[str], most: int) -> list[int]:
        """Return the chunks with the highest BM25 that hold a word asked for, best first."""
        scores = np.zeros(self._count)
        for word in sorted(asked):
            number = self._numbers.get(word)
            if number is not None:
                self._add(number, scores)
        return _best_of(scores, most)

    def shared(self, asked: Collection[str], rows: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return how many of the words asked for each of some chunks holds."""
        found = np.zeros(len(rows), np.int64)
        for word in asked:
            number = self._numbers.get(word)
            if number is not None:
                here = self._rows[self._starts[number] : self._ends[number]]  # in rising order
                places = np.minimum(np.searchsorted(here, rows), len(here) - 1)
                found += here[places] == rows
        return found

    def most_shared(self, asked: Collection[str], rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return how many of the words asked for each of some chunks could hold."""
        return np.asarray(np.minimum(self._lengths[list(rows)], len(asked)))

    def _add(self, number: int, scores: npt.NDArray[np.float64]) -> None:
        """Add what one word is worth to each chunk that holds it."""
        here = slice(self._starts[number], self._ends[number])
        rows, counts = self._rows[here], self._counts[here].astype(np.float64)
        # A word of most chunks says nothing of one.
        rarity = np.log(1 + (self._count - len(rows) + 0.5) / (len(rows) + 0.5))
        scores[rows] += rarity * counts * (_K1 + 1) / (counts + self._norms[rows])


def _least_of(scores: npt.NDArray[np.float32], most: int) -> float:
    """Return the lowest of so many of the highest scores."""
    place = max(0, len(scores) - most)
    return float(np.partition(scores, place)[place])


def _best_of(scores: npt.NDArray[np.float64], most: int) -> list[int]:
    """Return where the highest of `scores` above 0 stand; of two that are alike, the first."""
    if len(scores) > most:
        least = np.partition(scores, len(scores) - most)[len(scores) - most]
        likely = np.flatnonzero((scores >= least) & (scores > 0))
    else:
        likely = np.flatnonzero(scores > 0)
    order = np.argsort(-scores[likely], kind="stable")[:most]
    return [int(each) for each in likely[order]]
