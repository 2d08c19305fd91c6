"""Statements that can be true only one way at a time: where one lives, what one's cat is called.

Patterns, not understanding: they are few, and each is sure enough to act upon. Pure.
"""

import re

from foremind.memory.terms import MOST_CHARS, terms_of
from foremind.storage.remembering import Fact

_I = r"\bi(?:[’'](?:m|ve)| am| have)?"
_AM = r"\bi(?:[’']m| am)"
# Bounded: from each place where a statement begins, no more than this is read for its end.
_MOST_CHARS = 80
_END = (
    rf"(?P<value>[\w'’][\w'’ -]{{0,{_MOST_CHARS}}}?)"
    r"(?= (?:and|but|with|since|because|now|for|near|in the|when|so|these|at the moment)\b|"
    r"[.,;:!?()]|$)"
)
_NOUN = r"(?P<noun>[a-z]{1,40}(?: [a-z]{1,40})?)"
_NOW = r"(?:now |currently |still |just |recently |finally )*"
_AGE = r"(?P<value>\d{1,3}|[a-z]{1,8}(?:ty|teen)(?:-[a-z]{1,8})?)"
_STATUS = r"(?P<value>single|married|engaged|divorced|widowed)"

# A slot may hold {noun}, which is then a part of what is stated.
_STATEMENTS = tuple(
    (slot, re.compile(pattern, re.IGNORECASE))
    for slot, pattern in (
        ("home", rf"{_I} {_NOW}(?:live|living) in {_END}"),
        ("home", rf"{_I} {_NOW}(?:moved|relocated)(?: over| back)? to {_END}"),
        ("employer", rf"{_I} {_NOW}(?:work|working) (?:for|at) {_END}"),
        ("job", rf"{_I} {_NOW}(?:work|working) as {_END}"),
        ("name", rf"\bmy name(?:[’']s| is) {_END}"),
        ("age", rf"{_AM} (?:now )?{_AGE} years old\b"),
        ("status", rf"{_AM} (?:now |newly )?{_STATUS}\b"),
        ("favourite {noun}", rf"\bmy (?:new )?favou?rite {_NOUN} is (?:now )?{_END}"),
        ("name of {noun}", rf"\bmy {_NOUN}(?:[’']s name is|[’']s called| is called) {_END}"),
    )
)
_TASTE = re.compile(
    rf"\bi (?:really |absolutely |just |actually |don[’']t |do not )*"
    r"(?P<verb>love|like|adore|enjoy|hate|dislike|can[’']?t stand) "
    rf"{_END}",
    re.IGNORECASE,
)
_DISLIKES = re.compile(r"\b(?:hate|dislike|can[’']?t stand|don[’']t|do not)\b", re.IGNORECASE)
_MAX_WORDS = 4  # a longer value is a story


def facts_in(text: str) -> list[Fact]:
    """Return what `text` states of its speaker, near its beginning; questions state nothing."""
    if text.rstrip().endswith("?"):
        return []
    text = text[:MOST_CHARS]
    facts = []
    for slot, pattern in _STATEMENTS:
        for match in pattern.finditer(text):
            groups = match.groupdict()
            value = " ".join(terms_of(groups["value"]))
            if value and len(value.split()) <= _MAX_WORDS:
                facts.append(Fact(slot.format(noun=groups.get("noun", "").lower()), value))
    for match in _TASTE.finditer(text):
        taste = " ".join(terms_of(match["value"]))
        if taste and len(taste.split()) <= _MAX_WORDS:
            liked = "no" if _DISLIKES.search(match[0]) else "yes"
            facts.append(Fact(f"likes {taste}", liked))
    return facts
