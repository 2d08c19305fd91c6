"""Patterns as JavaScript writes them, in the syntax of RE2. Pure.

Sources: "Patterns" of ECMA-262, and RE2's syntax (https://github.com/google/re2/wiki/Syntax).
What RE2 has no word for, such as look-ahead, is left as it is: RE2 refuses it.
"""

import re

from foremind.text.folding import folded

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
