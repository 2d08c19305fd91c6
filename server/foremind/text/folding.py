"""Text as it is compared: what people write differently and mean the same is the same. Pure.

Memories are searched and the keys of lorebooks are found in texts that are folded here.
"""

import re
import unicodedata

# What is typed for an apostrophe. NFKC would make a space and a mark of some.
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u2032\u00b4`\uff07", "'"))
# Joiners show between letters of scripts that they shape (Arabic, Indic, Mongolian) and in emoji.
_SHAPED = (
    "\u0600-\u06ff\u0700-\u077f\u08a0-\u08ff\u0900-\u0dff\u1800-\u18af\ufb50-\ufdff\ufe0f\ufe70-\ufefc"
    "\u00a9\u00ae\u2190-\u2bff\u3030\U0001f000-\U0001faff"
)
# What nobody sees, and a model reads: controls, zero widths, directions, tags, fillers, hyphens.
_INVISIBLE = (
    "\0-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Looked for first, because most texts have none: four times faster than `_HIDDEN`.
_MAYBE_HIDDEN = re.compile(f"[{_INVISIBLE}\u200c\u200d\ufe00-\ufe0f]")
# A character has one variation selector; more of them can spell anything.
_HIDDEN = re.compile(
    f"[{_INVISIBLE}]|(?<![{_SHAPED}])[\u200c\u200d]|[\u200c\u200d](?![{_SHAPED}])"
    r"|(?<![^\s\ufe00-\ufe0f])[\ufe00-\ufe0f]"
)
# NFKC expands some characters to eighteen, so its result is cut to this multiple of the length.
_MAX_EXPANSION, _SHORT_TEXT_CHARS = 2, 64

# Signs that many write and many leave out: points of Hebrew, vowels and kashida of Arabic, and
# selectors of how an emoji is drawn.
_OPTIONAL = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\ufe0e\ufe0f]"
)
# One sign for the kinds of a quotation mark, and of a hyphen.
_SAME = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"')
    | dict.fromkeys("\u201a\u201b\u05f3", "'")
    | {"\u05f4": '"', "\u301c": "~"}
    | dict.fromkeys("\u05be\u2010\u2011\u2012\u2013\u2212", "-")
    # Letters of Arabic that keyboards and habits exchange, and its digits.
    | dict.fromkeys("\u0622\u0623\u0625\u0671", "\u0627")
    | {"\u0629": "\u0647", "\u0649": "\u064a", "\u06cc": "\u064a", "\u06a9": "\u0643"}
    | {chr(zero + digit): str(digit) for zero in (0x660, 0x6F0) for digit in range(10)}
)
# Letters that differ by language or habit in what is lower case or written at all: I and Ё.
_CASELESS = str.maketrans("\u0131\u0451", "i\u0435")
_ARABIC = re.compile("[\u0621-\u064a]")
# The Arabic article, with what is written as one word with it; "Allah" is a word without one.
_ARTICLE = re.compile(
    "(?<![^\\W_])[\u0648\u0641]?(?:[\u0628\u0643]?[\u0627\u0671]\u0644|\u0644\u0644)"
    "(?=[\u0621-\u064a]{2})(?!\u0644\u0647(?![^\\W_]))"
)


def visible(text: str) -> str:
    """Return `text` without invisible characters, by which words could be hidden from readers."""
    if (text.isascii() and text.isprintable()) or _MAYBE_HIDDEN.search(text) is None:
        return text
    return _HIDDEN.sub("", text)


def composed(text: str) -> str:
    """Return `text` in NFKC, without invisible characters, with apostrophes of one kind."""
    max_chars = _MAX_EXPANSION * len(text) + _SHORT_TEXT_CHARS
    return unicodedata.normalize("NFKC", visible(text).translate(_APOSTROPHES))[:max_chars]


def folded(text: str, *, lower: bool = True) -> str:
    """Return `text` as it is compared; lines stay lines.

    Args:
        lower: whether in lower case, too.
    """
    text = composed(text)
    if not text.isascii():
        text = _OPTIONAL.sub("", text)
        if _ARABIC.search(text) is not None:
            text = _ARTICLE.sub("", text)
        text = text.translate(_SAME)
    # The lower case of İ is i with a dot above.
    return text.lower().replace("i\u0307", "i") if lower else text.replace("\u0130", "I")


def caseless(text: str) -> str:
    """Return a folded text that is the same in any case, of any language."""
    return folded(text).casefold().translate(_CASELESS)
