"""Text to search terms: words without stop words, stemmed; the same for memories and queries.

Which stop words and which stemmer depends on the language of the text, see `languages`.

Which words of a text are used as names although they are everyday words as well.

"Will you sing?" asks for a song, "I saw Will" mentions a brother. Most names are no other word, and
are recognised in any case. Those that are count as names if capitalised: always inside a sentence,
and at the beginning of one unless the next word shows that it is a verb, as pronouns, articles and
the like do ("May I", "Mark my words", "Hope you are well").
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import Stemmer

from foremind.runtime.caches import erasable_cache
from foremind.text.folding import composed, folded
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, UNSPACED, Language

# With a million terms the probability of any collision is one in thirty million.
WORD = np.dtype([("hash", "<u8"), ("frequency", "<f4")])


@erasable_cache(50_000)
def hash_of(term: str) -> int:
    """Return the 64-bit hash of a term."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")


def pack_terms(terms: Mapping[str, float]) -> bytes:
    """Return terms and their frequencies as bytes, twelve per term."""
    packed = np.empty(len(terms), WORD)
    packed["hash"] = [hash_of(term) for term in terms]
    packed["frequency"] = list(terms.values())
    return packed.tobytes()


def unpack_terms(packed: bytes) -> npt.NDArray[np.void]:
    """Return packed terms as a structured array of hash and frequency."""
    return np.frombuffer(packed, WORD)


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# In many scripts, marks that are no letters are parts of words; \w does not stand for them.
_MARKS = r"\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff\u1000-\u109f"
_LETTERS = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
_MARKED_WORD = re.compile(rf"{_LETTERS}(?:'{_LETTERS})*")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_MAX_CACHED_CHARS = 500  # of a text whose terms are kept: a sentence, a note or a word
_MAX_WORD_CHARS = 64  # longer "words" are noise
#: The maximum length of a message. A longer reply is scored by its beginning, indexed by the terms
#: of twice as much, and tokenized in chunks where all its words are needed.
MAX_CHARS = 16_000
_BREAK_SEARCH_CHARS = 1_000  # white space to cut a chunk at is looked for this far from its end
_SPACE = re.compile(r"\s")
_BEGINNING_CHARS = 4  # of a word that is searched for by its beginning
_MAX_FREQUENCY = 32_767  # caps the counts of degenerate texts

_ELISION = re.compile(r"([^\W_]+)'(.+)")
# Characters of scripts whose words are not separated; some vowels of Thai are no letters.
UNSPACED_RUN = re.compile(
    r"[\u3041-\u30ff\u31f0-\u31ff\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+|"
    r"[\u1100-\u11ff\uac00-\ud7a3]+|[\u0e01-\u0e4e]+"
)
_HAN = re.compile(r"[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_HIRAGANA = re.compile(r"[\u3041-\u309f]")
#: Particles that are written as part of a word, of the languages whose words are not separated.
SUFFIXES = tuple(suffix for language in LANGUAGES.values() for suffix in language.suffixes)
# Snowball stemmers without a cache: there is one below.
_STEMMERS = {
    language.stemmer: Stemmer.Stemmer(language.stemmer, 0)
    for language in LANGUAGES.values()
    if language.stemmer
}
_ENGLISH = LANGUAGES[ENGLISH]


def _synonyms_of(language: Language) -> Mapping[str, frozenset[str]]:
    """Return the sets of synonyms that each term, or word without spaces, belongs to."""
    if language.stemmer is None:
        return language.synonyms
    sets: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for word, firsts in language.synonyms.items():
        sets[str(_STEMMERS[language.stemmer].stemWord(word))] |= firsts
    return sets


_SYNONYMS = {language.code: _synonyms_of(language) for language in LANGUAGES.values()}


@erasable_cache(20_000)
def stem_of(word: str, stemmer: str = "english") -> str:
    """Return the stem of a word in lower case, by a Snowball algorithm."""
    return str(_STEMMERS[stemmer].stemWord(word))


def words_of(text: str) -> list[str]:
    """Return the words of `text` in order, in lower case.

    A long text is split into chunks, since a regex search holds the GIL until it ends.
    """
    return [word for chunk in _chunks(text) for word in _words_of(folded(chunk))]


def written_words_of(text: str) -> list[str]:
    """Return the words of `text` in order, as they are written."""
    return [word for chunk in _chunks(text) for word in _words_of(composed(chunk))]


def unspaced_chars(text: str) -> int:
    """Count the characters of scripts whose words are not separated."""
    return sum(map(len, UNSPACED_RUN.findall(text)))


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


def _words_of(normalized: str) -> list[str]:
    pattern = _WORD if normalized.isascii() else _MARKED_WORD
    return [word for word in pattern.findall(normalized) if len(word) <= _MAX_WORD_CHARS]


def terms_of(text: str, fallback: str = ENGLISH) -> list[str]:
    """Return the terms of `text` in order, without stop words.

    Words are stemmed by the rules of the text's language, `fallback` where it is unsure. Of scripts
    whose words are not separated the terms are pairs of characters, and single ones of Chinese.
    Words that no language is known for pass through as English.
    """
    language = language_of(text, fallback)
    if len(text) > _MAX_CACHED_CHARS:
        return _terms_in(text, LANGUAGES[language])
    return list(_cached_terms(text, language))


@erasable_cache(4_000)
def _cached_terms(text: str, language: str) -> tuple[str, ...]:
    """Return the terms of a short text; memories, notes and topics are compared at each message."""
    return tuple(_terms_in(text, LANGUAGES[language]))


def _terms_in(text: str, language: Language) -> list[str]:
    terms: list[str] = []
    for chunk in _chunks(text):
        normalized = folded(chunk)
        if not normalized.isascii():
            runs = [run for match in UNSPACED_RUN.findall(normalized) for run in _ngrams(match)]
            terms += [term for term in runs if not _is_stop_ngram(term)]
            normalized = UNSPACED_RUN.sub(" ", normalized)
        terms += _stems(_words_of(normalized), language)
    return terms


def _stems(words: list[str], language: Language) -> list[str]:
    if language is _ENGLISH or language.stemmer is None:
        return [stem_of(word) for word in words if word.replace("'", "") not in _ENGLISH.stop_words]
    whole = [word for word in words if word not in language.function_words]
    bare = [_without_elision(word, language) for word in whole]
    return [stem_of(word, language.stemmer) for word in bare if word not in language.function_words]


def _without_elision(word: str, language: Language) -> str:
    """Return a word without what is contracted with it: "école" of "l'école"."""
    match = _ELISION.fullmatch(word)
    return match[2] if match is not None and match[1] in language.elisions else word


def _ngrams(run: str) -> list[str]:
    """Return the terms of characters that no white space separates.

    Every Chinese character, since words of one are frequent, and every two adjacent characters but
    those that end one Japanese word and begin another: from hiragana, which inflect, to another
    script. A run of one character is a term by itself.
    """
    for suffix in SUFFIXES:
        if len(suffix) < len(run) and run.endswith(suffix):
            run = run[: -len(suffix)]
            break
    if len(run) == 1:
        return [run]
    pairs = [
        first + second
        for first, second in pairwise(run)
        if not _HIRAGANA.match(first) or _HIRAGANA.match(second)
    ]
    return _HAN.findall(run) + pairs


# The terms of the stop words of languages whose words are not separated.
_STOP_NGRAMS = frozenset(
    term
    for language in LANGUAGES.values()
    if language.script in UNSPACED
    for word in language.stop_words
    for term in _ngrams(word)
)


def _is_stop_ngram(term: str) -> bool:
    """Return whether a term is a stop word, or one Chinese character of it is."""
    return term in _STOP_NGRAMS or not _STOP_NGRAMS.isdisjoint(_HAN.findall(term))


def is_stop_run(run: str) -> bool:
    """Return whether characters that no white space separates are stop words, or one particle."""
    alone = len(run) == 1 and not _HAN.match(run) and not "\uac00" <= run <= "\ud7a3"
    return alone or all(map(_is_stop_ngram, _ngrams(run)))


def names_in(text: str) -> list[str]:
    """Return the words that are capitalised inside a sentence."""
    return _NAME.findall(text)


def query_terms_of(text: str, fallback: str = ENGLISH) -> list[str]:
    """Return the terms by which memories are searched for `text`: its terms, and what they share.

    Stemmers leave many forms of a word apart ("cumple", "cumpleaños"; "radeln", "Radtour"), so the
    beginnings of words are terms, too, in languages that have a stemmer, but for English. So are
    the sets of synonyms that its words belong to ("Vater", "Papa"), in each language that has some.
    """
    language = LANGUAGES[language_of(text, fallback)]
    terms = _terms_in(text, language)
    return terms + _beginnings(terms, language) + _synonym_sets(text, terms, language)


def _beginnings(terms: Iterable[str], language: Language) -> list[str]:
    if language is _ENGLISH or language.stemmer is None:
        return []
    return [f"{term[:_BEGINNING_CHARS]}…" for term in terms if len(term) >= _BEGINNING_CHARS]


def _synonym_sets(text: str, terms: Iterable[str], language: Language) -> list[str]:
    """Return a term for each set of synonyms that a text has a word of."""
    sets = _SYNONYMS[language.code]
    if language.script in UNSPACED:
        known = [firsts for word, firsts in sets.items() if word in text]
    else:
        known = [sets[term] for term in terms if term in sets]
    return [f"≈{first}" for first in sorted(frozenset[str]().union(*known))]


def count_terms(text: str, fallback: str = ENGLISH) -> dict[str, int]:
    """Return how often each term occurs in `text`, or in as much of it as is indexed.

    These are its `query_terms_of`. In other languages than English they include words' English
    stems: a question of few words, such as a name, may not tell its language and is then stemmed as
    English.
    """
    indexed = text[: 2 * MAX_CHARS]
    language = LANGUAGES[language_of(indexed, fallback)]
    terms = _terms_in(indexed, language)
    counts = Counter(terms)
    counts.update(_beginnings(terms, language))
    counts.update(_synonym_sets(indexed, terms, language))
    if language is not _ENGLISH and language.script == "latin":
        words = [word for word in words_of(indexed) if word not in language.function_words]
        english = Counter(_stems([_without_elision(word, language) for word in words], _ENGLISH))
        counts.update({term: english[term] for term in english.keys() - counts.keys()})
    return {term: min(count, _MAX_FREQUENCY) for term, count in counts.items()}


def terms_key(text: str) -> str:
    """Return the sorted terms of a short text: "The Gardens" and "garden" have the same."""
    return " ".join(sorted(set(terms_of(text)))) or text.casefold().strip()


#: Everyday words that are also names of people or works. Flowers, stones and the like are not among
#: them: "ruby" in lower case may well be a person.
EVERYDAY_NAMES = frozenset(
    """art august bill chance chase cliff dale dawn dean don drew faith frank gene grace grant guy
    hope hunter jack joy june lane march mark mason may miles nick norm page pat pierce ray rich rob
    rod rose stone sue summer van wade ward will""".split()  # noqa: SIM905
)
# If one of these follows, the first word of a sentence is not a name.
_AFTER_A_VERB = frozenset(
    """i you he she it we they me him us them my your his her its our their a an the this that these
    those there any anyone anybody anything some someone somebody something every everyone everybody
    everything no nobody nothing not all""".split()  # noqa: SIM905
)
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[.!?…:;\n\"“„(\[*>—,]")


def everyday_names_in(text: str) -> set[str]:
    """Return the everyday words, in lower case, that the beginning of `text` uses as names."""
    text = text[:MAX_CHARS]
    if text.isupper():
        return set()  # capitals are no evidence here
    tokens = _TOKEN.findall(text)
    neighbours = zip([".", *tokens], tokens, [*tokens[1:], "."], strict=False)
    return {
        word.lower()
        for previous, word, following in neighbours
        if word[0].isupper()
        and word.lower() in EVERYDAY_NAMES
        and (_inside_sentence(previous) or following.lower() not in _AFTER_A_VERB)
    }


def _inside_sentence(previous: str) -> bool:
    """Return whether a token continues the sentence of the previous one."""
    return previous == "," or previous[0].isalnum()
