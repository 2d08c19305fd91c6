"""One companion's documents, searched by meaning and by words, fused by rank. Pure."""

from collections.abc import Sequence

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
        self._words = [count_terms(f"{each.title} {each.content}") for each in chunks]
        self._lengths = [sum(words.values()) for words in self._words]
        self._postings: dict[str, list[int]] = {}
        for index, words in enumerate(self._words):
            for word in words:
                self._postings.setdefault(word, []).append(index)

    def search(self, text: str, vector: npt.NDArray[np.float32]) -> list[Chunk]:
        """Return the best chunks by reciprocal rank fusion of cosine and BM25."""
        ranks: dict[int, float] = {}
        for ranking in (self._nearest(vector), self._best_worded(text)):
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

    def _best_worded(self, text: str) -> list[int]:
        count = len(self.chunks)
        mean = sum(self._lengths) / max(1, count)
        scores: dict[int, float] = {}
        for word in set(terms_of(text)):
            having = self._postings.get(word, [])
            # A word of most chunks says nothing of one.
            rarity = float(np.log(1 + (count - len(having) + 0.5) / (len(having) + 0.5)))
            for index in having:
                frequency = self._words[index][word]
                norm = _K1 * (1 - _B + _B * self._lengths[index] / mean)
                score = rarity * frequency * (_K1 + 1) / (frequency + norm)
                scores[index] = scores.get(index, 0.0) + score
        return sorted(scores, key=lambda index: (-scores[index], index))[:_CANDIDATES]


def passage_of(chunk: Chunk, text: str) -> str:
    """Return the piece of a chunk that shares most words with `text`."""
    wanted = set(terms_of(text))
    pieces = pieces_of(chunk.content)
    return max(pieces, key=lambda each: len(wanted & set(terms_of(each))), default=chunk.content)
