"""Where somebody lives and comes from. Pure."""

from foremind.text.statements import vocabulary as known
from foremind.text.statements.clauses import (
    AM,
    NOT,
    NOW,
    WE,
    Found,
    Statement,
    bare,
    compiled,
    either,
    first_of,
    value_of,
)
from foremind.text.tokenization import words_of

_HOME = compiled(
    rf"(?P<gone>\bi(?:'m| am)? (?:{NOT}|no longer|not|don't) {NOW}liv(?:e|ing) (?:in|on|at) )|"
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


_DATED = compiled(rf" in (?:\d+|(?:{either(known.MONTHS)})\b|the (?:end|middle|past)).*$")


def _place(rest: str) -> str:
    value = _DATED.sub("", value_of(rest, 5, through="in near"))
    words = words_of(value)
    if not words or words[0] in known.NO_PLACES | known.NUMBERS or words[0].isdigit():
        return ""
    if words[0] in (
        "a",
        "an",
        "the",
        "this",
        "that",
        "my",
        "his",
        "her",
        "our",
        "another",
        "their",
    ):
        named = any(each[:1].isupper() for each in value.split())
        if not (set(words) & known.PLACES or named) or set(words) & known.NO_PLACES:
            return ""
    return "" if set(words[1:]) & {"dream", "bubble", "fear", "denial"} else bare(value)


def homes(clause: str) -> Found:
    for match in _HOME.finditer(clause):
        place = _place(clause[match.end() :])
        if place:
            yield Statement("home", place, holds=match["gone"] is None)
    for match in _MOVED.finditer(clause):
        place = _place(clause[match.end() :])
        if place:
            yield Statement("home", place)


def origins(clause: str) -> Found:
    for match in _ORIGIN.finditer(clause):
        place = _place(clause[match.end() :])
        is_time = first_of(place).isdigit() or first_of(place) in known.MONTHS
        if place and not is_time and "department" not in place:
            yield Statement("origin", place)
