"""Which language a text is in: by its script, or by its function words and letters. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from foremind.runtime.caches import erasable_cache
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, Script

_MAX_CHARS = 2_000  # the beginning of a text tells its language
_WORD = re.compile(r"\b[^\W\d_]+(?:['’][^\W\d_]+)*\b")
_LINK = re.compile(r"\bhttps?://\S+")
_SCRIPTS: dict[Script, re.Pattern[str]] = {
    "kana": re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]"),
    "han": re.compile(r"[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"),
    "hangul": re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]"),
    "thai": re.compile(r"[\u0e01-\u0e4e]"),
    "cyrillic": re.compile(r"[\u0400-\u04ff]"),
}
_LATIN_WORD = re.compile(r"[a-z\u00c0-\u024f]+", re.IGNORECASE)
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+\b")  # within a sentence: "call me Al"
# Who says something may be called like a word: "bo: Good evening", "bo (whispering to you): ".
_SPEAKER = re.compile(r"\A[^\W\d_]+(?: \([^)]*\))?: ")
_SHARED_VOTE = 0.5  # of a word that English has too
_LETTER_VOTE = 0.5  # of a word with a letter that English has not: it may be a name
# Of a text that is in a language, at least so many words speak for it, and one in so many.
_MIN_VOTES, _MAX_WORDS_PER_VOTE = 1.0, 12


def _vocabularies() -> dict[str, tuple[str, ...]]:
    """Return the languages of each function word and request of those in Latin script.

    Single letters may stand for anything, but in English for "I" and "a".
    """
    languages_of_word = defaultdict(list)
    for code, language in LANGUAGES.items():
        if language.script == "latin":
            words = language.stop_words | language.question_words | language.first_person
            requests = {word for word in language.request_words if "+" not in word}
            for word in words | requests | language.fillers | language.shared_words:
                is_word = len(word) > 1 or not word.isascii()
                if is_word or (code == ENGLISH and word in language.stop_words):
                    languages_of_word[word].append(code)
    return {word: tuple(codes) for word, codes in languages_of_word.items()}


_LANGUAGES_OF_WORD = _vocabularies()
_LANGUAGES_OF_ELISION = {
    elision: tuple(code for code, language in LANGUAGES.items() if elision in language.elisions)
    for elision in {elision for language in LANGUAGES.values() for elision in language.elisions}
}
_LANGUAGES_OF_LETTER = {
    letter: tuple(code for code, language in LANGUAGES.items() if letter in language.letters)
    for letter in {letter for language in LANGUAGES.values() for letter in language.letters}
}
_LANGUAGE_OF_SCRIPT = {
    language.script: code for code, language in LANGUAGES.items() if language.script != "latin"
}


def language_of(text: str, fallback: str = ENGLISH) -> str:
    """Return the code of the language that the beginning of `text` is in.

    Words of another language in a text do not change its language. Few words may not decide:

    Args:
        fallback: the language if nothing speaks for another, or as much for it as for others, such
            as the one that the player is known to write, perhaps with its region ("pt-BR"); English
            if it has no file.
    """
    fallback = fallback.partition("-")[0]
    if fallback not in LANGUAGES:
        fallback = ENGLISH
    if len(text) > _MAX_CHARS:
        # Without its last word, which may be cut into one of another language.
        text = next(iter(text[:_MAX_CHARS].rsplit(None, 1)), "")
    return _language_of(text, fallback)


@erasable_cache(4_000)
def _language_of(text: str, fallback: str) -> str:
    """Return the language of a text; one message is asked for its language dozens of times."""
    if not text.isascii():
        script = _script_of(text)
        if script != "latin":
            return _LANGUAGE_OF_SCRIPT.get(script, fallback)
    text = _SPEAKER.sub("", text) if ":" in text else text
    text = _NAME.sub("", _LINK.sub("", text) if "://" in text else text)
    words = _WORD.findall(text.lower())
    votes = _votes(words)
    if not votes:
        return fallback
    best = max(votes, key=lambda code: (votes[code], code == fallback, code == ENGLISH))
    return best if votes[best] >= max(_MIN_VOTES, len(words) / _MAX_WORDS_PER_VOTE) else fallback


def _script_of(text: str) -> Script:
    """Return the script of most letters; a Latin word counts as one letter of another script."""
    counts = Counter({script: len(pattern.findall(text)) for script, pattern in _SCRIPTS.items()})
    if counts["kana"]:  # Japanese is written in both
        counts["kana"] += counts.pop("han")
    script, count = counts.most_common(1)[0]
    return script if count > len(_LATIN_WORD.findall(text)) else "latin"


def _votes(words: Iterable[str]) -> dict[str, float]:
    """Return how many of these words, in lower case, speak for each language in Latin script."""
    votes: defaultdict[str, float] = defaultdict(float)
    for found in words:
        word = found.replace("’", "'")
        codes = _LANGUAGES_OF_WORD.get(word.replace("'", ""), ())
        if not codes and "'" in word:
            elision, _, word = word.partition("'")
            for code in _LANGUAGES_OF_ELISION.get(elision, ()):
                votes[code] += 1
            codes = _LANGUAGES_OF_WORD.get(word, ())
        vote = _SHARED_VOTE if ENGLISH in codes and len(codes) > 1 else 1.0
        for code in codes:
            votes[code] += vote
        if not word.isascii():
            for code in {code for letter in word for code in _LANGUAGES_OF_LETTER.get(letter, ())}:
                votes[code] += _LETTER_VOTE
    return votes
