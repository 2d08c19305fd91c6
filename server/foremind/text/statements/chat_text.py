"""What people type as sentences in one spelling, without what they only mention. Pure.

Left out are quoted blocks, code and played actions; a text about words or about a play has no
sentences at all, since nothing in it need be true of its speaker.
"""

import re
from dataclasses import dataclass

from foremind.text.statements.vocabulary import SPELLINGS, pattern

_FENCED = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^[ \t]*(?:>|\|).*$", re.MULTILINE)
_CODE = re.compile(
    r"`[^`\n]+`|<[^<>\n]{1,200}>|\b(?:https?://|www\.)\S+|(?<!\S)\S[^\s@]*+@[^\s.]++\.\S*\w"
)
_APOSTROPHE = re.compile(r"(?<=\w) ?[’‘`´ʼ′＇](?=\w)")
_PLAYED = re.compile(
    r"(?<![\w*])\*{1,3}(?=[^\s*])([^*\n]{1,500})\*{1,3}(?!\w)|(?<!\w)_(\w[^_\n]+ [^_\n]+)_"
)
_AMENDED = re.compile(r"(?<=\w) \*([\w' ]{1,20})$", re.MULTILINE)  # "I'm 30 *31"
# "I'm allergic to nuts, ok?" asks for assent only; "right?" asks whether it is so.
_ASSENT = re.compile(
    r"(?<=\w)(?:\s*,|\s)\s*(?:ok(?:ay)?|kk?|alright|got it|understood)\s*\?+", re.I
)
_QUOTATION = re.compile(
    r"“([^“”]{1,500})”|«([^«»]{1,500})»|\"([^\"]{1,500})\"|„([^„“]{1,500})“|"
    r"(?<![\w'])[‘']((?!s\b|re\b|cause\b|til|em\b|\d)[^'\n]{1,200}(?:\w'\w[^'\n]{1,200})*)['’](?!\w)"
)
_OF_SPEAKER = re.compile(r"\b(?:i|my|me|we|our|us)\b", re.IGNORECASE)
_MAX_QUOTED_WORDS = 5  # of a title or a name; what is longer says something itself
_SMILEY = re.compile(
    r"(?:(?<=\s)|^)(?:[:;=8xX][-'^]?[)(DPpOo3/\\|*\[\]]+|<3+|\^_*\^|xd+|XD+)(?=\s|$|[.,!?])|"
    r"[\U0001F000-\U0001FAFF\u2600-\u27BF\u2B00-\u2BFF\uFE0F\u200D]+"
)
_REPEATED = re.compile(r"([a-zA-Z])\1{2,}")
# A text with one of these is about words, or a play.
# Lines of a play or a log: "ANNA: I have a sister."
_SCRIPT = re.compile(
    r"^[^\S\n]*(?!(?:ps|edit|update|correction|note|(?:my )?pronouns|fun fact|btw|about me|"
    r"(?:(?:as|like) )?i)\b)(?:[A-Z]\w*|\[[^\]\n]+\])(?: [A-Z]\w*){0,2}:\s",
    re.MULTILINE | re.IGNORECASE,
)
_ABBREVIATION = re.compile(r"\b(St|Mr|Mrs|Ms|Dr|Prof|Jr|Sr|Mt|vs|approx)\.(?= [A-Z\w])")
_NOT_MY_NAME = re.compile(
    r"\b(?:that|this|it)(?:'?s not| is not| ?isn'?t) my name\W+(?:it'?s|it is|i'?m|i am)(?= \w)",
    re.I,
)
_TRAILING_OFF = re.compile(r"\s*(?<!\.)(?:…|\.\.++)\s*+(?=[a-z])")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|\s*\n\s*|(?<=[a-z][!?])(?=[A-Z])")
_WORD = re.compile(r"[\w'’]+(?:[-/.][\w'’]+)*")
_ENDING = re.compile(r"(?<=\w)(?:n't|'(?:m|ve|re|ll|d))\b", re.IGNORECASE)
_REWRITTEN = (
    (re.compile(r"\b(do|does|did|is|are|was|were|have|has|would)nt\b", re.I), r"\1 not"),
    (re.compile(r"(?<=\d) ?y/?o\b", re.I), " years old"),
    (re.compile(r"\b(my|the|our) names (?=\w)", re.I), r"\1 name is "),
    (
        re.compile(r"\b(he|she|it|that|what)'?s\b|\b(who|where|how|there|name)'s\b", re.I),
        r"\1\2 is",
    ),
    (re.compile(r"\b(favourite \w+)'s (?=\w)", re.I), r"\1 is "),
    (pattern("dying"), "died"),
    (re.compile(r"\s+(?=[,;])"), ""),
)


@dataclass(frozen=True, slots=True)
class ChatSentence:
    """A sentence in full spelling, words as they were written otherwise; and whether it asks."""

    text: str
    asks: bool


def chat_sentences(text: str, *, whole: bool = True) -> list[ChatSentence]:
    """Return the sentences of a text that may be meant as they stand.

    Args:
        whole: a text about words, or a play, has none; otherwise only its sentences that are about
            words or played are left out, and what follows one that ends with a colon.
    """
    text = own_words(text)
    text = "\n".join(" ".join(line.split()) for line in text.split("\n") if line.strip())
    text = _QUOTED_LINE.sub("\n", _FENCED.sub("\n", text))
    text = _CODE.sub('""', _APOSTROPHE.sub("'", text))
    text = _AMENDED.sub(r", i mean \1", without_assent(text))
    plain = _QUOTATION.sub(_quoted, _PLAYED.sub(_emphasised, text))
    if whole and ("\0" in plain or _is_about_words(text)):
        return []
    plain = _TRAILING_OFF.sub(", ", _ABBREVIATION.sub(r"\1", _SMILEY.sub(". ", plain)))
    plain = _NOT_MY_NAME.sub("my name is", plain)
    if plain.isupper():
        plain = plain.lower()
    sentences = []
    for sentence in _SENTENCE_END.split(_REPEATED.sub(r"\1", plain)):
        ended = sentence.rstrip() if sentence.count('"') == 2 else sentence.rstrip("\"') ")
        if not whole and ("\0" in ended or _is_about_words(ended)):
            if ended.endswith(":"):
                break
            continue
        words = in_full(ended.rstrip(".!?… ").strip())
        if words or ended:
            sentences.append(ChatSentence(words, "?" in ended[-3:]))
    return sentences


def _is_about_words(text: str) -> bool:
    return bool(pattern("about_words").search(text) or _SCRIPT.search(text))


def own_words(text: str) -> str:
    """Return a text up to where it goes on with what somebody else wrote or said."""
    reports = (match for match in pattern("report").finditer(text) if not match["own"])
    return text[: report.end()] if (report := next(reports, None)) else text


def without_assent(text: str) -> str:
    """Return a text that does not ask whether it was heard: "I'm allergic to nuts, ok?"."""
    return _ASSENT.sub(".", text)


def in_full(text: str) -> str:
    """Return a text with contractions and chat spellings in full, one space between words."""
    text = _WORD.sub(lambda match: SPELLINGS.get(match[0].lower(), match[0]), text)
    text = _ENDING.sub(lambda match: f" {SPELLINGS[match[0].lower()]}", text)
    for written, meant in _REWRITTEN:
        text = written.sub(meant, text)
    return " ".join(text.split())


def _quoted(match: re.Match[str]) -> str:
    """Return a short quotation, which may be a title, as its words; what somebody said as none."""
    inside = next(group for group in match.groups() if group is not None)
    words = _WORD.findall(inside)
    said = _OF_SPEAKER.search(inside) and not all(word[0].isupper() for word in words)
    return '""' if said or len(words) > _MAX_QUOTED_WORDS else f'"{" ".join(words)}"'


def _emphasised(match: re.Match[str]) -> str:
    """Return an emphasised word; a played action makes a text a play."""
    inside = match[1] or match[2]
    within = match.start() and match.string[match.start() - 1] == " "
    is_word = re.fullmatch(r"\w+(?<!s)(?<!ing)", inside) is not None
    return inside if is_word and within else "\0"
