"""Texts by their words: which of them hold what another says. Pure."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from foremind.text.tokenization import terms_of

Key = TypeVar("Key", bound=Hashable)

_LEAST_QUOTED = 8  # characters; shorter texts are in everything


class Corpus(Generic[Key]):
    """Texts that can be asked for what they hold, without reading each for each."""

    def __init__(self) -> None:
        self.texts: dict[Key, str] = {}
        self.terms: dict[Key, frozenset[str]] = {}
        self._by_term: defaultdict[str, set[Key]] = defaultdict(set)

    def add(self, texts: Iterable[tuple[Key, str]]) -> None:
        """Take in more texts."""
        for key, text in texts:
            self.texts[key] = text.casefold()
            terms = self.terms[key] = frozenset(terms_of(text))
            for term in terms:
                self._by_term[term].add(key)

    def with_term(self, term: str) -> set[Key]:
        """Return the texts that hold a word."""
        return self._by_term.get(term, set())

    def mentioning(self, about: str) -> set[Key]:
        """Return the texts that hold every word of `about`, as search reads words."""
        wanted = sorted(set(terms_of(about)), key=lambda each: len(self.with_term(each)))
        if not wanted:
            return {key for key, text in self.texts.items() if about.casefold().strip() in text}
        found = set(self.with_term(wanted[0]))
        for term in wanted[1:]:
            found &= self.with_term(term)
        return found

    def quoting(self, said: str) -> set[Key]:
        """Return the texts that hold another word for word."""
        wanted = said.casefold().strip()
        if len(wanted) < _LEAST_QUOTED:
            return set()
        return {key for key in self._likely(said) if wanted in self.texts[key]}

    def speaking_of(self, said: str, share: float) -> set[Key]:
        """Return the texts that hold at least this share of another's words, and two of them."""
        wanted = frozenset(terms_of(said))
        least = max(2, share * len(wanted))
        if len(wanted) < 2:
            return set()
        # Who holds so many of the words holds one of the rarest.
        by_rarity = sorted(wanted, key=lambda each: len(self.with_term(each)))
        rarest = by_rarity[: len(wanted) - int(least) + 1]
        likely = {key for term in rarest for key in self.with_term(term)}
        return {key for key in likely if len(self.terms[key] & wanted) >= least}

    def _likely(self, said: str) -> Iterable[Key]:
        """Return the texts that may hold another: those with its rarest word."""
        words = terms_of(said)
        # The first and last word may be a part of another, as in languages without spaces.
        whole = words[1:-1]
        if not whole:
            return list(self.texts)
        return self.with_term(min(whole, key=lambda each: len(self.with_term(each))))
