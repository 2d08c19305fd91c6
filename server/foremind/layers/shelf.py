"""One companion's documents, searched by meaning and by words, fused by rank. Pure."""

from array import array
from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt

from foremind.layers.reading import pieces_of
from foremind.memory.terms import count_terms, terms_of
from foremind.storage.documents import Chunk

_MOST = 3
_CANDIDATES = 20
# The constant of reciprocal rank fusion (Cormack, Clarke, Buettcher 2009, SIGIR).
_RRF = 60
_K1, _B = 1.5, 0.75


class Shelf:
    """The chunks of one companion, ready to be searched.

    Args:
        least: the cosine below which a chunk is not near.
    """

    def __init__(self, chunks: Sequence[Chunk], least: float) -> None:
        self.chunks = list(chunks)
        self._least = least
        vectors = [each.vector for each in chunks if each.vector is not None]
        self._with_vector = [i for i, each in enumerate(chunks) if each.vector is not None]
        self._vectors = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
        self._words = _Words([count_terms(f"{each.title} {each.content}") for each in chunks])

    def search(self, text: str, vector: npt.NDArray[np.float32]) -> list[Chunk]:
        """Return the best chunks by reciprocal rank fusion of cosine and BM25."""
        ranks: dict[int, float] = {}
        for ranking in (self._nearest(vector), self.best_worded(text)):
            for rank, index in enumerate(ranking, 1):
                ranks[index] = ranks.get(index, 0.0) + 1 / (_RRF + rank)
        order = sorted(ranks, key=lambda index: (-ranks[index], index))
        return [self.chunks[index] for index in order[:_MOST]]

    def _nearest(self, vector: npt.NDArray[np.float32]) -> list[int]:
        if not self._with_vector:
            return []
        cosines = self._vectors @ vector
        order = np.argsort(-cosines)[:_CANDIDATES]
        return [self._with_vector[i] for i in order.tolist() if cosines[i] >= self._least]

    def best_worded(self, text: str) -> list[int]:
        """Return where the chunks with the highest BM25 stand, best first."""
        return self._words.best(text, _CANDIDATES)


class _Words:
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
        lengths = np.array([sum(words.values()) for words in chunks], np.float64)
        mean = lengths.sum() / max(1, self._count)
        self._norms = _K1 * (1 - _B + _B * lengths / (mean or 1.0))

    def best(self, text: str, most: int) -> list[int]:
        """Return the chunks with the highest BM25 that share a word with `text`, best first."""
        scores = np.zeros(self._count)
        for word in sorted(set(terms_of(text))):
            number = self._numbers.get(word)
            if number is not None:
                self._add(number, scores)
        return _best_of(scores, most)

    def _add(self, number: int, scores: npt.NDArray[np.float64]) -> None:
        """Add what one word is worth to each chunk that holds it."""
        here = slice(self._starts[number], self._ends[number])
        rows, counts = self._rows[here], self._counts[here].astype(np.float64)
        # A word of most chunks says nothing of one.
        rarity = np.log(1 + (self._count - len(rows) + 0.5) / (len(rows) + 0.5))
        scores[rows] += rarity * counts * (_K1 + 1) / (counts + self._norms[rows])


def _best_of(scores: npt.NDArray[np.float64], most: int) -> list[int]:
    """Return where the highest of `scores` above 0 stand; of two that are alike, the first."""
    if len(scores) > most:
        least = np.partition(scores, len(scores) - most)[len(scores) - most]
        likely = np.flatnonzero((scores >= least) & (scores > 0))
    else:
        likely = np.flatnonzero(scores > 0)
    order = np.argsort(-scores[likely], kind="stable")[:most]
    return [int(each) for each in likely[order]]


def passage_of(chunk: Chunk, text: str) -> str:
    """Return the piece of a chunk that shares most words with `text`."""
    wanted = set(terms_of(text))
    pieces = pieces_of(chunk.content)
    return max(pieces, key=lambda each: len(wanted & set(terms_of(each))), default=chunk.content)
