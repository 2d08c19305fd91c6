"""An inverted index that finds texts which mention, quote or resemble another. Pure."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.tokenization import count_terms, terms_of

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

    def mentioning(self, about: str) -> set[Key]:
        """Return the texts that contain every term of `about`, tokenized as in search."""
        terms = sorted(set(terms_of(about)), key=self._document_frequency)
        if not terms:
            return {key for key, text in self.texts.items() if about.casefold().strip() in text}
        matches = set(self.texts_with_term(terms[0]))
        for term in terms[1:]:
            matches &= self.texts_with_term(term)
        return matches

    def quoting(self, quote: str) -> set[Key]:
        """Return the texts that contain another verbatim, ignoring case."""
        folded = quote.casefold().strip()
        if len(folded) < _MIN_QUOTE_CHARS:
            return set()
        return {key for key in self._quote_candidates(quote) if folded in self.texts[key]}

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
