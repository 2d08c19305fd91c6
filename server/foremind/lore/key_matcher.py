"""Finds the keys of a lorebook in a text: plain keys by an index, patterns by RE2. Pure.

The patterns are written by strangers, so they never reach Python's `re`: RE2 takes time linear in
the text, whatever the pattern (Cox, "Regular Expression Matching in the Wild", 2010).
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import re2

from foremind.lore.javascript_patterns import JS_FLAGS, LITERAL, re2_syntax
from foremind.text.folding import caseless, folded

MAX_SCANNED_CHARS = 8_000  # of a message: its end
MAX_SCANNED_BY_PATTERNS = 2_000  # likewise, by patterns
MAX_PATTERNS = 500  # of a book
_PATTERN_BYTES = 1 << 16  # of memory that one compiled pattern may take
_SET_BYTES = 8 << 20  # of memory for all patterns of a book and the states that a scan adds

# Letters of scripts that put no spaces between words, or join particles to them: Thai to Myanmar,
# kana, Chinese characters, Hangul. A key may begin and end anywhere among these.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u30ff\u3130-\u318f"
_UNSPACED += "\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
# Marks that are part of the letter before them, for which \w does not stand.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff"
_LETTER = re.compile(f"(?![{_UNSPACED}])(?:[^\\W_]|[{_MARKS}])")
_WORD = re.compile(f"(?:(?![{_UNSPACED}])(?:[^\\W_]|[{_MARKS}]))+")
_ENDS_OF_NAMES = ("#", "+")  # of one letter: "C" is neither "C#" nor "C++"
# Categories of signs that are no part of a word that they touch: brackets, and symbols as emoji.
_APART = {"Ps", "Pe", "Pi", "Pf", "So", "Sk"}


class PlainKey(msgspec.Struct, frozen=True):
    """A key that is text; `whole_words`: not within a longer word."""

    text: str
    case_sensitive: bool = False
    whole_words: bool = True


class PatternKey(msgspec.Struct, frozen=True):
    """A key that is a regular expression, by itself or as `/expression/flags`."""

    text: str
    case_sensitive: bool = False


Key = PlainKey | PatternKey


class KeyMatcher:
    """The distinct keys of one lorebook, numbered from 0.

    Args:
        keys: their order is that of their numbers.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._folded = _PlainIndex()
        self._exact = _PlainIndex()
        sources: list[tuple[int, str]] = []
        #: The numbers of the patterns that RE2 cannot run.
        self.unusable: set[int] = set()
        for number, key in enumerate(keys):
            if isinstance(key, PlainKey):
                index = self._exact if key.case_sensitive else self._folded
                index.add(number, key)
            elif len(sources) < MAX_PATTERNS and (source := _usable_source(key)) is not None:
                sources.append((number, source))
            else:
                self.unusable.add(number)
        self._patterns, self._pattern_numbers = _pattern_set(sources)
        self.unusable |= {number for number, _ in sources[len(self._pattern_numbers) :]}

    @property
    def has_patterns(self) -> bool:
        """Whether any key is a pattern, so that a scan is better run in a thread."""
        return self._patterns is not None

    def found_in(self, text: str) -> frozenset[int]:
        """Return the numbers of the keys that the end of a text contains."""
        text = text[-MAX_SCANNED_CHARS:]
        found: set[int] = set()
        if self._exact:
            self._exact.find(_as_key(text, case_sensitive=True), found)
        if self._folded:
            self._folded.find(_as_key(text), found)
        if self._patterns is not None:
            # As it is written, and as it is folded: a pattern may name the very sign, or its kind.
            end = "\n".join(text[-MAX_SCANNED_BY_PATTERNS:].splitlines())
            for written in {unicodedata.normalize("NFC", end), folded(end, lower=False)}:
                matches = self._patterns.Match(written.encode("utf-8", "replace")) or ()
                found.update(self._pattern_numbers[match] for match in matches)
        return frozenset(found)


def _as_key(text: str, *, case_sensitive: bool = False) -> str:
    """Return a text or a plain key as they are compared, with white space as one space each."""
    text = folded(text, lower=False) if case_sensitive else caseless(text)
    return " ".join(text.split())


class _PlainIndex:
    """Plain keys by how they begin: those of whole words by their first word."""

    def __init__(self) -> None:
        self._by_word: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self._by_start: defaultdict[str, list[tuple[str, int, bool]]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self._by_word or self._by_start)

    def add(self, number: int, key: PlainKey) -> None:
        text = _as_key(key.text, case_sensitive=key.case_sensitive)
        word = _WORD.match(text) if key.whole_words else None
        if word is not None:
            self._by_word[word.group()].append((text, number))
        elif text:
            self._by_start[text[:2]].append((text, number, key.whole_words))

    def find(self, text: str, found: set[int]) -> None:
        if self._by_word:
            for word in _WORD.finditer(text):
                for key, number in self._by_word.get(word.group(), ()):
                    if text.startswith(key, word.start()) and _ends_word(text, word.start(), key):
                        found.add(number)
        if self._by_start:
            for start in range(len(text)):
                for key, number, whole_words in self._starting(text[start : start + 2]):
                    if text.startswith(key, start) and (
                        not whole_words
                        or (_begins_word(text, start, key) and _ends_word(text, start, key))
                    ):
                        found.add(number)

    def _starting(self, pair: str) -> Iterator[tuple[str, int, bool]]:
        yield from self._by_start.get(pair, ())
        if len(pair) > 1:
            yield from self._by_start.get(pair[0], ())


def _begins_word(text: str, start: int, key: str) -> bool:
    """Return whether what is before a key in a text is no part of a word with it."""
    return start == 0 or _LETTER.match(text, start - 1) is None or _is_apart(key[0])


def _ends_word(text: str, start: int, key: str) -> bool:
    """Return whether what follows a key in a text is no part of a word with it: 7 in "C#7" is."""
    following = text[start + len(key) : start + len(key) + 1]
    if len(key) == 1 and following in _ENDS_OF_NAMES:
        return False
    return _LETTER.match(following) is None or _is_apart(key[-1])


def _is_apart(character: str) -> bool:
    """Return whether a letter next to a character is of another word."""
    if _LETTER.match(character) is not None:
        return False
    return character.isalnum() or unicodedata.category(character) in _APART


def _usable_source(key: PatternKey) -> str | None:
    """Return the RE2 syntax of a pattern; None if RE2 cannot run it, or it is too large."""
    literal = LITERAL.fullmatch(key.text)
    if literal is None:
        source, flags = key.text, "" if key.case_sensitive else "i"
    else:
        source, given = literal.groups()
        if any(flag not in JS_FLAGS for flag in given):
            return None
        flags = "".join(sorted({JS_FLAGS[flag] for flag in given}))
    source = re2_syntax(source)
    source = f"(?{flags}:{source})" if flags else source
    try:
        re2.compile(source, _options(_PATTERN_BYTES))
    except (re2.error, UnicodeEncodeError):
        return None
    return source


def _options(max_bytes: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # the pattern would be in the log
    options.never_capture = True
    options.max_mem = max_bytes
    return options


def _pattern_set(sources: Sequence[tuple[int, str]]) -> tuple[re2.Set | None, list[int]]:
    """Return the set that finds all patterns in one pass, and their numbers.

    Patterns that are too large together are left out, from the last on.
    """
    while sources:
        patterns = re2.Set.SearchSet(_options(_SET_BYTES))
        for _, source in sources:
            patterns.Add(source)
        try:
            patterns.Compile()
        except re2.error:
            sources = sources[: len(sources) * 3 // 4]
            continue
        return patterns, [number for number, _ in sources]
    return None, []
