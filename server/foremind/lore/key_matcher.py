"""Finds the keys of a lorebook in a text: plain keys by an index, patterns by RE2. Pure.

The patterns are written by strangers, so they never reach Python's `re`: RE2 takes time linear in
the text, whatever the pattern (Cox, "Regular Expression Matching in the Wild", 2010). They are as
JavaScript writes them ("Patterns" of ECMA-262), and are translated to RE2's syntax
(https://github.com/google/re2/wiki/Syntax). What RE2 has no word for, such as look-ahead, is left
as it is: RE2 refuses it.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import re2

from foremind.text.folding import caseless, folded

#: A pattern with its flags, `/pattern/flags`.
LITERAL = re.compile(r"/(.+)/([a-z]*)", re.DOTALL)
#: What each flag is in RE2; those that change nothing about what is found are empty.
JS_FLAGS = {"i": "i", "m": "m", "s": "s", "d": "", "g": "", "u": "", "v": "", "y": ""}
_TOKEN = re.compile(
    r"\\u\{(?P<point>[0-9A-Fa-f]{1,6})\}"
    r"|\\u(?P<high>[Dd][89ABab][0-9A-Fa-f]{2})\\u(?P<low>[Dd][C-Fc-f][0-9A-Fa-f]{2})"
    r"|\\u(?P<unit>[0-9A-Fa-f]{4})"
    r"|\\(?P<kind>[pP])\{(?P<property>[^}]*)\}"
    r"|\\c(?P<control>[A-Za-z])"
    r"|\[\^?\]|\\?.",
    re.DOTALL,
)
_OF_SCRIPT = {"Script", "sc", "Script_Extensions", "scx"}
_OF_CATEGORY = {"General_Category", "gc"}
_SCRIPTS = {
    "Arab": "Arabic", "Cyrl": "Cyrillic", "Deva": "Devanagari", "Grek": "Greek", "Hang": "Hangul",
    "Hani": "Han", "Hebr": "Hebrew", "Hira": "Hiragana", "Kana": "Katakana", "Latn": "Latin",
}  # fmt: skip
_CATEGORIES = {
    "Letter": "L", "Alphabetic": "L", "Alpha": "L", "Uppercase_Letter": "Lu", "Uppercase": "Lu",
    "Lowercase_Letter": "Ll", "Lowercase": "Ll", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm",
    "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Punctuation": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po",
    "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk",
    "Other_Symbol": "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp", "Other": "C", "Control": "Cc", "Format": "Cf",
    "White_Space": "Z",
}  # fmt: skip
_EMOJI = {"Emoji", "Emoji_Presentation", "Extended_Pictographic"}
_EMOJI_RANGES = (
    r"\x{a9}\x{ae}\x{203c}\x{2049}\x{2122}\x{2139}\x{2190}-\x{21ff}\x{2300}-\x{27bf}"
    r"\x{2900}-\x{2bff}\x{3030}\x{303d}\x{3297}\x{3299}\x{1f000}-\x{1faff}"
)
_QUOTES = "'\""
_ANY, _NONE = r"[\x{0}-\x{10ffff}]", r"[^\x{0}-\x{10ffff}]"


def re2_syntax(pattern: str) -> str:
    """Return a pattern of JavaScript, without its slashes and flags, as RE2 writes it."""
    parts: list[str] = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        parts.append(_translated(token, in_class=in_class))
        text = token.group()
        if text == "[":
            in_class = True
        elif text.endswith("]") and not text.startswith("\\"):
            in_class = False
    return "".join(parts)


def _translated(token: re.Match[str], *, in_class: bool) -> str:
    text, groups = token.group(), token.groupdict()
    if code := groups["point"] or groups["unit"]:
        return rf"\x{{{code}}}"
    if groups["high"]:
        point = 0x10000 + ((int(groups["high"], 16) & 0x3FF) << 10) + int(groups["low"], 16) % 0x400
        return rf"\x{{{point:x}}}"
    if groups["control"]:
        return rf"\x{{{ord(groups['control']) % 32:x}}}"
    if groups["kind"]:
        return _property(groups["kind"], groups["property"], text, in_class=in_class)
    if not text.isascii():
        return _folded_sign(text)
    if in_class:
        return {r"\b": r"\x{8}"}.get(text, text)
    return {"[^]": _ANY, "[]": _NONE}.get(text, text)


def _folded_sign(sign: str) -> str:
    """Return a sign as folded texts have it, if it is a letter, a digit or a quotation mark."""
    one = folded(sign, lower=False)
    return one if len(one) == 1 and (one.isalnum() or one in _QUOTES) else sign


def _property(kind: str, stated: str, text: str, *, in_class: bool) -> str:
    """Return a class of characters by a property of theirs; as it is if there is no word for it."""
    name, separator, value = stated.partition("=")
    if separator and name in _OF_SCRIPT:
        return rf"\{kind}{{{_SCRIPTS.get(value, value)}}}"
    if separator and name not in _OF_CATEGORY:
        return text
    known = value if separator else name
    if known in _EMOJI:
        if in_class:
            return _EMOJI_RANGES if kind == "p" else text
        return f"[{'' if kind == 'p' else '^'}{_EMOJI_RANGES}]"
    return rf"\{kind}{{{_CATEGORIES.get(known, known)}}}"


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
