"""An inverted index that finds texts which quote or resemble another. Pure."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.tokenization import UNSPACED_RUN, count_terms, terms_of

Key = TypeVar("Key", bound=Hashable)

_MIN_QUOTE_CHARS = 8  # shorter texts occur everywhere


class QuotationIndex(Generic[Key]):
    """Texts by key with a posting list per term, so that no query scans every text."""

    def __init__(self) -> None:
        self.texts: dict[Key, str] = {}
        self.terms: dict[Key, frozenset[str]] = {}
        self._not_english: set[Key] = set()
        self._postings: defaultdict[str, set[Key]] = defaultdict(set)

    def add(self, texts: Iterable[tuple[Key, str]]) -> None:
        """Index more texts."""
        for key, text in texts:
            self.texts[key] = text.casefold()
            terms = self.terms[key] = frozenset(terms_of(text))
            if language_of(text) != ENGLISH:
                self._not_english.add(key)
            for term in terms.union(count_terms(text)):
                self._postings[term].add(key)

    def texts_with_term(self, term: str) -> set[Key]:
        """Return the texts that contain a term."""
        return self._postings.get(term, set())

    def quoting(self, quote: str) -> set[Key]:
        """Return the texts that contain another verbatim, ignoring case, and not within a word."""
        folded = quote.casefold().strip()
        if len(folded) < _MIN_QUOTE_CHARS:
            return set()
        return {key for key in self._quote_candidates(quote) if _quotes(self.texts[key], folded)}

    def sharing_terms_with(self, text: str, share: float) -> set[Key]:
        """Return the texts with at least this share of another's terms, and at least two."""
        terms = frozenset(terms_of(text))
        minimum = max(2, share * len(terms))
        if len(terms) < 2:
            return set()
        # A text with that many of the terms must contain at least one of the rarest.
        rarest_first = sorted(terms, key=self._document_frequency)
        rarest = rarest_first[: len(terms) - int(minimum) + 1]
        candidates = {key for term in rarest for key in self.texts_with_term(term)}
        return {key for key in candidates if len(self.terms[key] & terms) >= minimum}

    def _quote_candidates(self, quote: str) -> Iterable[Key]:
        """Return the texts that may contain a quote: those with its rarest term.

        A text in another language than the quote's has other terms for it.
        """
        if language_of(quote) != ENGLISH:
            return list(self.texts)
        # The first and last term may be part of a longer word, as in languages without spaces.
        whole_terms = terms_of(quote)[1:-1]
        if not whole_terms:
            return list(self.texts)
        rarest = min(whole_terms, key=self._document_frequency)
        return self.texts_with_term(rarest) | self._not_english

    def _document_frequency(self, term: str) -> int:
        return len(self.texts_with_term(term))


def _quotes(text: str, quote: str) -> bool:
    """Return whether a text contains another, where no word goes on before or after it."""
    place = text.find(quote)
    while place >= 0:
        end = place + len(quote)
        if not (_in_word(text[place - 1 : place + 1]) or _in_word(text[end - 1 : end + 1])):
            return True
        place = text.find(quote, place + 1)
    return False


def _in_word(beside: str) -> bool:
    """Return whether two characters beside each other are letters of one word."""
    return len(beside) == 2 and beside.isalnum() and not UNSPACED_RUN.search(beside)
