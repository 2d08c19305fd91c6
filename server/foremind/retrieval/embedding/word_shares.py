"""How likely the letters at the end of a draft are a whole word. Pure.

Judged by the vocabulary of an embedding model, which lists words from frequent to rare. By Zipf's
law a word's frequency is about the reciprocal of its rank: of all the words that begin with "comp",
hardly any ends there, although "comp" is in the vocabulary.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate, islice

_MAX_WORDS = 50_000  # the most frequent; bounds what a multilingual vocabulary takes
_RANK_OFFSET = 2.0  # Mandelbrot's correction for the most frequent words
_LETTER_RANK = 1_000  # vocabularies list single letters apart, whatever their frequency
_WORD_START = "\u2581"  # SentencePiece's prefix of a token that starts a word
_LAST = "\U0010ffff"  # sorts after every letter


class WordShares:
    """Says for letters what share of the words that begin with them ends there.

    Args:
        vocabulary: a tokenizer's tokens and their ids.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        frequencies: dict[str, float] = {}
        rank = 0
        for word in islice(_words(vocabulary), _MAX_WORDS):
            rank += len(word) > 1
            frequency = 1 / (_RANK_OFFSET + (rank if len(word) > 1 else _LETTER_RANK))
            frequencies.setdefault(word, frequency)
        self._words = sorted(frequencies)
        self._cumulative = array(
            "d", accumulate((frequencies[word] for word in self._words), initial=0.0)
        )

    def share(self, letters: str) -> float | None:
        """Return the share, 0 to 1; None if no known word begins with `letters`."""
        prefix = letters.removeprefix(_WORD_START).casefold()
        first = bisect_left(self._words, prefix)
        end = bisect_left(self._words, prefix + _LAST, first)
        if first == end:
            return None
        if self._words[first] != prefix:
            return 0.0
        cumulative = self._cumulative
        return (cumulative[first + 1] - cumulative[first]) / (cumulative[end] - cumulative[first])


def _words(vocabulary: Mapping[str, int]) -> Iterator[str]:
    """Yield the words of a vocabulary, frequent ones first, in lower case.

    Tokens that continue a word are left out: WordPiece marks these ("##s"), SentencePiece those
    that start one.
    """
    starts_are_marked = any(token.startswith(_WORD_START) for token in vocabulary)
    for token in sorted(vocabulary, key=vocabulary.__getitem__):
        word = token.removeprefix(_WORD_START)
        if word.isalpha() and starts_are_marked == token.startswith(_WORD_START):
            yield word.casefold()
