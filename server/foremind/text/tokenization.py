"""Text to search terms: words, stop words out, stemmed. The same for storing and for asking."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import Stemmer

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_MAX_TERM_CHARS = 64  # longer "words" are noise that an index entry need not hold
# Some characters stand for up to eighteen: no more is read of a text than this.
_MOST_EXPANSION, _SHORT_TEXT_CHARS = 2, 64
#: As long as a message may be. A reply that is longer is judged by its beginning, found by the
#: words of twice as much, and read in portions where all its words are needed.
MOST_CHARS = 16_000
_NEAR_CHARS = 1_000
_SPACE = re.compile(r"\s")
_MAX_FREQUENCY = 32_767  # what the column holds

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

_stemmer = Stemmer.Stemmer("english", 0)  # no cache of its own: there is one below


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


def forget_words() -> None:
    """Drop the words whose stems are remembered."""
    _stem.cache_clear()


def words_of(text: str) -> list[str]:
    """Return the words of `text` in order, in lower case.

    A long one is read in portions: while a pattern is searched for, no other thread may run.
    """
    if len(text) <= MOST_CHARS:
        return _words_of(text)
    return [word for portion in _portions(text) for word in _words_of(portion)]


def _portions(text: str) -> Iterator[str]:
    """Cut before white space, or where a portion holds none, anywhere."""
    start = 0
    while start < len(text):
        end = start + MOST_CHARS
        if end < len(text):
            spaces = [found.start() for found in _SPACE.finditer(text, end - _NEAR_CHARS, end)]
            end = spaces[-1] if spaces else end
        yield text[start:end]
        start = end


def _words_of(text: str) -> list[str]:
    most = _MOST_EXPANSION * len(text) + _SHORT_TEXT_CHARS
    plain = unicodedata.normalize("NFKC", text)[:most].replace("’", "'").lower()
    return [word for word in _WORD.findall(plain) if len(word) <= _MAX_TERM_CHARS]


def terms_of(text: str) -> list[str]:
    """Return the stemmed words of `text` in order, without stop words.

    English stemming; words of other languages pass through unharmed, as far as white space and
    punctuation separate them.
    """
    return [_stem(word) for word in words_of(text) if word.replace("'", "") not in _STOP_WORDS]


def names_in(text: str) -> list[str]:
    """Return the words that stand with a capital inside a sentence."""
    return _NAME.findall(text)


def count_terms(text: str) -> dict[str, int]:
    """Return how often each term stands in `text`, or in as much of it as an index holds."""
    counts = Counter(terms_of(text[: 2 * MOST_CHARS]))
    return {term: min(count, _MAX_FREQUENCY) for term, count in counts.items()}
