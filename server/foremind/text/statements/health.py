"""What must be minded with somebody: allergies, illness, what is not eaten. Pure."""

import re

from foremind.text.statements import vocabulary as known
from foremind.text.statements.clauses import (
    AM,
    NOT,
    NOW,
    Found,
    Statement,
    bare,
    begins,
    compiled,
    either,
    first_of,
    value_of,
)

_ALLERGIC = compiled(rf"{AM} {NOW}(?:(?:severely|very|badly|highly|a bit|quite) )?allergic to ")
_ALLERGY = compiled(
    r"\bi(?:'ve| have)(?: got)? an? (?:(?:severe|bad|mild) )?"
    r"(?P<value>(?:[a-z]+ )?allergy(?: to [\w ]{2,30})?)"
)
_INTOLERANT = compiled(rf"{AM} {NOW}(?P<value>[a-z]+ intolerant|intolerant to \w+)\b")
_ILL = compiled(
    r"\bi(?:'ve got| have got| have| got| suffer from|'ve had| have had| live with) "
    rf"(?:an? )?(?:(?:severe|mild|chronic|bad) )?(?P<value>{either(known.CONDITIONS)})(?![\w-])"
    r"(?! (?:about|over|when|that you))"
)
_BODILY = compiled(
    rf"{AM} {NOW}(?:(?:completely|partly|partially|profoundly|very) )?"
    rf"(?P<value>(?:{either(known.BODILY)})(?: in (?:one|my|the) (?:\w+ )?(?:ear|eye)s?)?)"
    r"(?![\w-])(?! (?:to|with))"
)
_DIET = compiled(
    rf"{AM} {NOW}(?:(?:mostly|strictly|a strict) )?(?P<value>{either(known.DIETS)})(?![\w-])|"
    r"\bi (?:keep|eat|only eat) (?P<law>kosher|halal)\b"
)
_AVOIDS = compiled(
    rf"\bi (?:{NOT}|never|can'?t|cannot|can not|mustn't|must not|am not allowed to) "
    r"(?:ever )?(?P<verb>eat|drink|tolerate|digest)\b ?(?:any )?"
)


def health(clause: str) -> Found:
    for match in _ALLERGIC.finditer(clause):
        value = value_of(clause[match.end() :], 5, through="and or")
        if value and not begins(known.NO_ALLERGIES, value):
            yield Statement("health", f"allergic to {value}")
    for pattern in (_ALLERGY, _INTOLERANT, _ILL, _BODILY):
        for match in pattern.finditer(clause):
            yield Statement("health", match["value"].strip())


def diets(clause: str) -> Found:
    for match in _DIET.finditer(clause):
        yield Statement("diet", bare(match["value"] or match["law"]).lower())
    for match in _AVOIDS.finditer(clause):
        value = bare(value_of(clause[match.end() :], 4, through="and or"))
        if not value and match["verb"].lower() == "drink" and _over(clause[match.end() :]):
            yield Statement("diet", "no alcohol")
        elif value and first_of(value) not in known.NO_MEALS:
            yield Statement("diet", f"no {value}")


def _over(rest: str) -> bool:
    return re.match(r"\s*(?:$|[.,;!]|and\b|but\b|at all\b|any ?more\b)", rest, re.I) is not None
