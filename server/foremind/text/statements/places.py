"""Statements about where somebody lives and comes from. Pure."""

from foremind.text.statements import vocabulary
from foremind.text.statements.clauses import (
    AM,
    NOT,
    NOW,
    WE,
    Statement,
    Statements,
    compiled,
    either,
    first_word,
    value_of,
    without_article,
)
from foremind.text.tokenization import words_of

_HOME = compiled(
    rf"(?P<negated>\bi(?:'m| am)? (?:{NOT}|no longer|not|don't) {NOW}liv(?:e|ing) (?:in|on|at) )|"
    rf"{WE} {NOW}(?:live|living|based|residing|settled) (?:in|on|at) |"
    rf"\b(?:i|we)(?:'ve| have) {NOW}(?:lived|been living) in |"
    rf"\bmy (?:home|house|flat|apartment|place|hometown|home town)(?: is|'s) (?:now )?(?:in|at|on) "
)
_MOVED = compiled(
    rf"\b(?:i|we)(?:'ve| have)? {NOW}(?:moved|relocated) (?:(?:over|back|down|up|out|away) )?to "
)
_ORIGIN = compiled(
    rf"(?:{AM} {NOW}(?:originally )?from|\bi (?:originally )?come from|"
    r"\bi (?:grew up|was raised|was born(?: and raised)?) in) "
)
_TRAILING_DATE = compiled(
    rf" in (?:\d+|(?:{either(vocabulary.MONTHS)})\b|the (?:end|middle|past)).*$"
)
_DETERMINERS = ("a", "an", "the", "this", "that", "my", "his", "her", "our", "another", "their")
_NO_PLACE_WORDS = frozenset({"dream", "bubble", "fear", "denial"})


def _place(text: str, *, on_or_at: bool = False) -> str:
    """Return the place at the beginning of a text, or nothing."""
    value = _TRAILING_DATE.sub("", value_of(text, 5, through="in near"))
    words = words_of(value)
    if on_or_at and value.islower() and len(words) == 1:  # "I live on coffee"
        return ""
    if not words or words[0] in vocabulary.NO_PLACES | vocabulary.NUMBERS or words[0].isdigit():
        return ""
    if words[0] in _DETERMINERS:
        capitalised = any(word[:1].isupper() for word in value.split())
        is_place = capitalised or set(words) & vocabulary.PLACES
        if not is_place or set(words) & vocabulary.NO_PLACES:
            return ""
    return "" if set(words[1:]) & _NO_PLACE_WORDS else without_article(value)


def homes(clause: str) -> Statements:
    """Extract where the speaker lives, or no longer lives."""
    for match in _HOME.finditer(clause):
        on_or_at = match[0].lower().endswith((" on ", " at "))
        place = _place(clause[match.end() :], on_or_at=on_or_at)
        if place:
            yield Statement("home", place, holds=match["negated"] is None)
    for match in _MOVED.finditer(clause):
        place = _place(clause[match.end() :])
        if place:
            yield Statement("home", place)


def origins(clause: str) -> Statements:
    """Extract where the speaker comes from."""
    for match in _ORIGIN.finditer(clause):
        place = _place(clause[match.end() :])
        is_time = first_word(place).isdigit() or first_word(place) in vocabulary.MONTHS
        if place and not is_time and "department" not in place:
            yield Statement("origin", place)
