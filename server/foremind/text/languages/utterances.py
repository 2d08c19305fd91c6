"""What an utterance does, by the words of its language: asks, states something, or neither. Pure.

For languages besides English, for which there are no patterns and no trained classifiers. Where the
language of a text is unsure, it is the `fallback` of `language_of`.
"""

import re

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, UNSPACED, Language
from foremind.text.sentences import QUESTION_MARKS

_MAX_CHARS = 16_000  # the beginning of a longer text is judged
_SENTENCE = re.compile(r"[^.!?。！？؟۔…\n]+[.!?。！？؟۔…]*")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_CHUNK = re.compile(r"[^\s,、，;；]+")
_INVERTED_MARK = "¿"
# "Nothing", "whenever": a question word with one of these states something.
_INDEFINITE = "(?!も|でも|か|都|也|도|든)"
_QUESTION_WORDS = {
    code: re.compile(f"(?:{'|'.join(map(re.escape, language.question_words))}){_INDEFINITE}")
    for code, language in LANGUAGES.items()
    if language.script in UNSPACED
}


def _in_order(language: Language) -> re.Pattern[str]:
    """Return a pattern of the words that ask to be told something where they stand in order."""
    gap = r".+" if language.script in UNSPACED else r"\b.+\b"
    phrases = [
        gap.join(map(re.escape, words.split("+")))
        for words in language.request_words
        if "+" in words
    ]
    bound = "" if language.script in UNSPACED else r"\b"
    return re.compile(rf"{bound}(?:{'|'.join(sorted(phrases)) or '(?!)'}){bound}")


_REQUESTS_IN_ORDER = {code: _in_order(language) for code, language in LANGUAGES.items()}
_CLAUSE_BREAK = re.compile(r"[,;:、，]")
# A statement has this many words, two of them no stop words, or letters where words are not
# separated; fewer of either if it is about the speaker.
_MIN_WORDS, _MIN_OWN_WORDS = 3, 2
_MIN_LETTERS, _MIN_OWN_LETTERS = 6, 4


def asks(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether a sentence of `text` is a question."""
    language = _language(text, fallback)
    return any(_asks(sentence, language) for sentence in _sentences(text))


def only_asks(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether every sentence of `text` is a question, besides greetings and the like."""
    language = _language(text, fallback)
    sentences = [sentence for sentence in _sentences(text) if not _is_filler(sentence, language)]
    return bool(sentences) and all(_asks(sentence, language) for sentence in sentences)


def requests(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether a sentence of `text` asks to be told or shown something: "zeig die Karte"."""
    language = _language(text, fallback)
    return any(_requests(sentence, language) for sentence in _sentences(text))


def states(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether a sentence of `text` states something: no question, greeting or filler."""
    language = _language(text, fallback)
    return any(_states(sentence, language) for sentence in _sentences(text))


def is_about_speaker(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` has a word for its speaker: "I", "my"."""
    language = _language(text, fallback)
    return any(_mentions_speaker(sentence, language) for sentence in _sentences(text))


def has_content(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` says or asks anything: it is more than greetings and fillers."""
    language = _language(text, fallback)
    return any(
        _asks(sentence, language) or not _is_filler(sentence, language)
        for sentence in _sentences(text)
    )


def _language(text: str, fallback: str) -> Language:
    return LANGUAGES[language_of(text, fallback)]


def _sentences(text: str) -> list[str]:
    found = (match.strip() for match in _SENTENCE.findall(text[:_MAX_CHARS]))
    return [sentence for sentence in found if _WORD.search(sentence)]


def _words(sentence: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(sentence.lower())]


def _asks(sentence: str, language: Language) -> bool:
    if sentence.endswith(QUESTION_MARKS) or _INVERTED_MARK in sentence:
        return True
    if language.script in UNSPACED:
        return _asks_unspaced(sentence, language)
    if sentence.endswith((".", "!")) or _CLAUSE_BREAK.search(sentence):
        return False
    content = [word for word in _words(sentence) if word not in language.fillers]
    first = content[0] if content else ""
    elided = first.partition("'")[0]
    return first in language.question_words or (
        elided != first and elided in language.question_words
    )


def _asks_unspaced(sentence: str, language: Language) -> bool:
    words = _WORD.findall(sentence.lower())
    if words[-1].endswith(language.question_endings):
        return True
    if sentence.endswith(("。", "！", ".", "!")) or _CLAUSE_BREAK.search(sentence):
        return False
    return _QUESTION_WORDS[language.code].search(sentence) is not None


def _requests(sentence: str, language: Language) -> bool:
    if _REQUESTS_IN_ORDER[language.code].search(sentence.lower().replace("’", "'")):
        return True
    if language.script in UNSPACED:
        words, letters = tuple(language.request_words), sentence.strip(" .!?。！")
        return bool(words) and (letters.startswith(words) or letters.endswith(words))
    content = [word for word in _words(sentence) if word not in language.fillers]
    asking = {part for word in (content[:1] + content[-1:]) for part in (word, word.split("-")[0])}
    return len(content) > 1 and not language.request_words.isdisjoint(asking)


def _is_filler(sentence: str, language: Language) -> bool:
    if language.script in UNSPACED:
        parts = [_WORD.findall(chunk.lower()) for chunk in _CHUNK.findall(sentence)]
        return all("".join(part) in language.fillers for part in parts if part)
    return language.fillers.union(language.stop_words).issuperset(_words(sentence))


def _states(sentence: str, language: Language) -> bool:
    if _is_filler(sentence, language) or _asks(sentence, language):
        return False
    own = _mentions_speaker(sentence, language)
    if language.script in UNSPACED:
        letters = sum(map(str.isalpha, sentence))
        return letters >= (_MIN_OWN_LETTERS if own else _MIN_LETTERS)
    words = _words(sentence)
    content = [word for word in words if word not in language.stop_words | language.fillers]
    return len(words) >= _MIN_OWN_WORDS if own else len(words) >= _MIN_WORDS and len(content) > 1


def _mentions_speaker(sentence: str, language: Language) -> bool:
    if language.script in UNSPACED:
        return any(word in sentence for word in language.first_person)
    return any(
        part in language.first_person
        for word in _words(sentence)
        for part in (word, *word.split("'"))
    )
