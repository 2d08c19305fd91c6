"""Text to search terms: words without stop words, stemmed; the same for memories and queries."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import Stemmer

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_MAX_WORD_CHARS = 64  # longer "words" are noise
# NFKC expands some characters to eighteen, so its result is cut to this multiple of the length.
_MAX_EXPANSION, _SHORT_TEXT_CHARS = 2, 64
#: The maximum length of a message. A longer reply is scored by its beginning, indexed by the terms
#: of twice as much, and tokenized in chunks where all its words are needed.
MAX_CHARS = 16_000
_BREAK_SEARCH_CHARS = 1_000  # white space to cut a chunk at is looked for this far from its end
_SPACE = re.compile(r"\s")
_MAX_FREQUENCY = 32_767  # caps the counts of degenerate texts

_STOP_WORDS = frozenset(
    """a about above after again all also am an and any are arent as at be because been before
    being below between both but by can cant could couldnt did didnt do does doesnt doing dont
    down during each few for from further had hadnt has hasnt have havent having he hed hell her
    here hers herself hes him himself his how i id if ill im in into is isnt it its itself ive
    just let lets me more most my myself no nor not now of off on once only or other our ours
    ourselves out over own really same she shed shell shes should shouldnt so some such than that
    thats the their theirs them themselves then there theres these they theyd theyll theyre
    theyve this those through to too under until up us very was wasnt we wed well were werent
    weve what whats when where which while who whom whos why will with wont would wouldnt yes you
    youd youll your youre yours yourself yourselves youve""".split()  # noqa: SIM905
)

_stemmer = Stemmer.Stemmer("english", 0)  # without a cache: there is one below


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


def clear_stem_cache() -> None:
    """Clear the cache of stems."""
    _stem.cache_clear()


def words_of(text: str) -> list[str]:
    """Return the words of `text` in order, in lower case.

    A long text is split into chunks, since a regex search holds the GIL until it ends.
    """
    if len(text) <= MAX_CHARS:
        return _words_of(text)
    return [word for chunk in _chunks(text) for word in _words_of(chunk)]


def _chunks(text: str) -> Iterator[str]:
    """Split a text before white space, or anywhere if there is none near the end of a chunk."""
    start = 0
    while start < len(text):
        end = start + MAX_CHARS
        if end < len(text):
            spaces = [
                match.start() for match in _SPACE.finditer(text, end - _BREAK_SEARCH_CHARS, end)
            ]
            end = spaces[-1] if spaces else end
        yield text[start:end]
        start = end


def _words_of(text: str) -> list[str]:
    max_chars = _MAX_EXPANSION * len(text) + _SHORT_TEXT_CHARS
    normalized = unicodedata.normalize("NFKC", text)[:max_chars].replace("’", "'").lower()
    return [word for word in _WORD.findall(normalized) if len(word) <= _MAX_WORD_CHARS]


def terms_of(text: str) -> list[str]:
    """Return the stemmed words of `text` in order, without stop words.

    Stemming is English; words of other languages pass through unchanged if white space or
    punctuation separates them.
    """
    return [_stem(word) for word in words_of(text) if word.replace("'", "") not in _STOP_WORDS]


def names_in(text: str) -> list[str]:
    """Return the words that are capitalised inside a sentence."""
    return _NAME.findall(text)


def count_terms(text: str) -> dict[str, int]:
    """Return how often each term occurs in `text`, or in as much of it as is indexed."""
    counts = Counter(terms_of(text[: 2 * MAX_CHARS]))
    return {term: min(count, _MAX_FREQUENCY) for term, count in counts.items()}
