"""Splits texts into sentences, and gives sentences keys to find duplicates by. Pure."""

import re

from foremind.text.languages.prompt_words import STOPPED_DAYS, is_day_heading
from foremind.text.tokenization import unspaced_chars, words_of

#: What a question ends with: also in Chinese, Japanese and Arabic.
QUESTION_MARKS = ("?", "？", "؟")

# Trailing white space stays with its sentence, so that joined sentences are the text again. A day
# ("On 20 May 2026:") is a part of its own, since it applies to all that follows; none ends within
# one ("20. Mai 2026").
_END = re.compile(
    rf"(?P<within>{STOPPED_DAYS})|"
    r"(?<=[.!?…;|؟۔])[\"'”’)\]]*\s+|(?<=[。！？])|(?<= \d{4}:)\s+|\s*\n\s*"
)
# What ends with a full stop within a sentence: titles ("Mr."); other abbreviations before what goes
# on in small letters or numbers ("at 5 p.m. today"); initials ("J. K. Rowling", "Harry S. Truman").
_TITLE = re.compile(
    r"(?i:\b(?:mrs?|ms|mx|dr|prof|st|mt|capt|lt|sgt|col|gen|rev|hon|messrs|sra?|dra|hr|fr|vs|cf|"
    r"e\.g|i\.e|z\.\s?b|bzw|ca|approx))\.$"
)
_ABBREVIATION = re.compile(r"(?i:\b(?:[ap]\.m|etc|inc|ltd|jr|usw|u\.s|no|nr))\.$")
_INITIAL = re.compile(r"\b[A-Z]\.$")
_INITIAL_AFTER_NAME = re.compile(r"\b(?:[A-Z][a-z]+|[A-Z]\.) [A-Z]\.$")
_INITIAL_NEXT = re.compile(r"[A-Z]\.\s")
_MOST_LOOKED_BACK = 24  # characters before a full stop
# Labels in front of a quotation: "Ana: ", "home (20 May 2026): ".
_LABEL_WORD = r"[\w'’\u0e31-\u0e4e-]{1,40}"  # some vowels of Thai are no letters
_LABEL = re.compile(
    rf"(?:{_LABEL_WORD}(?:,? {_LABEL_WORD}){{0,3}}(?: \([^()]{{1,40}}\))?: +){{1,3}}(?=\S)"
)
_MIN_WORDS = 3  # shorter sentences may occur twice: "Oh yes!"
_MIN_UNSPACED_CHARS = 8  # likewise, where no spaces separate words: "はい、そうです"
_INTRODUCES = re.compile(r"[:：]\s*$")  # "On 20 May 2026:" belongs to what follows
_IN_FULL = {"i'm": ("i", "am"), "i've": ("i", "have")}
_MAX_SENTENCES = 400  # of one text; the rest of it counts as one sentence
_MAX_CHARS = 20_000  # of one text that are compared


def sentences_in(text: str) -> list[str]:
    """Return the sentences of a text; joined they are the text."""
    sentences: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if (
            match["within"] is None
            and match.end() > start
            and text[start : match.end()].strip()
            and not _goes_on(text, match.start(), match.end())
        ):
            sentences.append(text[start : match.end()])
            start = match.end()
            if len(sentences) == _MAX_SENTENCES:
                break
    if text[start:].strip():
        sentences.append(text[start:])
    return sentences


_WHOLE = re.compile(
    r"""[.!?…؟۔।]["'”’»›)\]*_~]*(?=\s|\Z)|[。！？]["'”’」』）]*|(?<=[^\s,:;])[ \t]*\n"""
)
_MAY_GO_ON = re.compile(r"\d\.\Z")  # 3.14, cut off


def whole_sentences(text: str) -> str:
    """Return a text up to the end of its last whole sentence, or line; empty without one."""
    end = 0
    for match in _WHOLE.finditer(text):
        stop = match.start() + 1
        said = text[max(0, stop - _MOST_LOOKED_BACK) : stop]
        is_last = match.end() == len(text)
        unsure = (_TITLE, _INITIAL, _MAY_GO_ON)
        if not _goes_on(text, stop, match.end() + 1) and not (
            is_last and any(pattern.search(said) for pattern in unsure)
        ):
            end = match.end()
    return text[:end]


_STREAM_END = re.compile(
    r"""(?P<stop>[.!?…؟۔।]+)(?P<closing>["'”’»›)\]*_~]*)\s+|[。！？｡]+["'”’」』）】]*\s*|\n\s*"""
)
_ELLIPSIS = re.compile(r"(?:\.\.|…)\Z")
# "am 3. Oktober", "1. A list": what may be an ordinal goes on.
_ORDINAL = re.compile(r"(?<![\d.,:])\d{1,2}\.\Z")
_INITIAL_CHARS = 3  # that tell whether another initial follows
_LONGEST, _LONGEST_UNSPACED = 300, 80  # characters that are spoken at once without an end
_CLAUSE_END = re.compile(r"[,;:–—]\s+|[，、；：]")
_WORD_END = re.compile(r"\s+")


class SentenceStream:
    """Splits a text that arrives in pieces into sentences, to be spoken one by one.

    A sentence is whole once what follows it has begun and shows that it does not go on: after
    abbreviations, initials, ordinals, decimals and ellipses it may. One that is very long, as in a
    language without full stops, is split between clauses or words.
    """

    def __init__(self) -> None:
        self._text = ""

    def feed(self, piece: str) -> list[str]:
        """Return the sentences that are whole now; joined they are the text so far."""
        self._text += piece
        sentences: list[str] = []
        start = 0
        for match in _STREAM_END.finditer(self._text):
            end = match.end()
            said = self._text[start:end]
            if end == len(self._text) and "\n" not in match[0]:
                break  # what follows decides
            ends = self._ends(match, said)
            if ends is None:
                break
            if ends:
                sentences.append(said)
                start = end
        self._text = self._text[start:]
        while cut := _long_part(self._text):
            sentences.append(self._text[:cut])
            self._text = self._text[cut:]
        return sentences

    def end(self) -> list[str]:
        """Return the rest of the text, if there is any."""
        rest, self._text = self._text, ""
        return [rest] if rest.strip() else []

    def _ends(self, match: re.Match[str], said: str) -> bool | None:
        """Return whether a sentence ends with a match, None if more must arrive to tell."""
        if not any(char.isalnum() for char in said):
            return False
        if match["stop"] is None or "\n" in match[0]:
            return True
        text, following = self._text, self._text[match.end() :]
        before = text[max(0, match.end("stop") - _MOST_LOOKED_BACK) : match.end("stop")]
        if match["stop"] == "." and _INITIAL.search(before) and len(following) < _INITIAL_CHARS:
            return None
        if _ORDINAL.search(before) or _goes_on(text, match.end("stop"), match.end()):
            return False
        return not (following[0].islower() and (match["closing"] or _ELLIPSIS.search(before)))


def _long_part(text: str) -> int:
    """Return how much of the beginning of a sentence is spoken by itself; 0 if it is not long."""
    longest = _LONGEST_UNSPACED if 2 * unspaced_chars(text) > len(text) else _LONGEST
    if len(text) <= longest:
        return 0
    for pattern in (_CLAUSE_END, _WORD_END):
        ends = [match.end() for match in pattern.finditer(text, longest // 4, longest)]
        if ends:
            return ends[-1]
    return longest


def _goes_on(text: str, end: int, next_start: int) -> bool:
    """Return whether a sentence goes on after a full stop that ends at `end`."""
    if not text.endswith(".", 0, end) or "\n" in text[end:next_start]:
        return False
    before = text[max(0, end - _MOST_LOOKED_BACK) : end]
    if _TITLE.search(before):
        return True
    if _ABBREVIATION.search(before):
        following = text[next_start : next_start + 1]
        return following.islower() or following.isdigit()
    if not _INITIAL.search(before) or before.endswith(" I."):
        return False
    return (
        _INITIAL_NEXT.match(text, next_start) is not None
        or _INITIAL_AFTER_NAME.search(before) is not None
    )


def sentence_keys(sentences: list[str]) -> list[int]:
    """Return a key for each sentence, which ignores case, punctuation and labels.

    A short text after a label ("home: Porto") has a key with its label. The key is 0 for any other
    sentence that is too short, or only introduces the next.
    """
    return [_key(sentence) for sentence in sentences]


def key_of_words(words: str) -> int:
    """Return the key of a sentence given as its words: in lower case, one space between them."""
    return hash(words) if words.count(" ") + 1 >= _MIN_WORDS else 0


def is_day(sentence: str) -> bool:
    """Return whether a sentence only says on which day the next ones were said."""
    return is_day_heading(sentence.rstrip())


def _key(sentence: str) -> int:
    label = _LABEL.match(sentence)
    words = words_of(sentence if label is None else sentence[label.end() :])
    if _INTRODUCES.search(sentence):
        return 0
    if len(words) >= _MIN_WORDS or _is_long_unspaced(words):
        return hash(" ".join((*_IN_FULL.get(words[0], words[:1]), *words[1:])))
    if label is None or not words:
        return 0
    last_label = label[0].rstrip(": ").rpartition(": ")[2].partition(" (")[0]
    return hash(f"{' '.join(words_of(last_label))}: {' '.join(words)}")


def _is_long_unspaced(words: list[str]) -> bool:
    """Return whether a sentence of few words is long in a script that does not separate them."""
    return sum(map(unspaced_chars, words)) >= _MIN_UNSPACED_CHARS


def sentence_keys_in(text: str) -> frozenset[int]:
    """Return the keys of the sentences at the beginning of a text, without 0."""
    return frozenset(sentence_keys(sentences_in(text[:_MAX_CHARS]))) - {0}
