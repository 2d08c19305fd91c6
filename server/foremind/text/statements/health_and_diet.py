"""Statements about health and diet: allergies, illnesses, what somebody does not eat. Pure."""

import re

from foremind.text.statements import vocabulary
from foremind.text.statements.clauses import (
    AM,
    NOT,
    NOW,
    Statement,
    Statements,
    begins_with,
    compiled,
    either,
    first_word,
    value_of,
    without_article,
)
from foremind.text.tokenization import words_of

_ALLERGIC = compiled(rf"{AM} {NOW}(?:(?:severely|very|badly|highly|a bit|quite) )?allergic to ")
_ALLERGY = compiled(
    r"\bi(?:'ve| have)(?: got)? an? (?:(?:severe|bad|mild) )?"
    r"(?P<value>(?:[a-z]+ )?allergy(?: to [\w ]{2,30})?)"
)
_INTOLERANT = compiled(rf"{AM} {NOW}(?P<value>[a-z]+ intolerant|intolerant to \w+)\b")
_ILL = compiled(
    r"\bi(?:'ve got| have got| have| got| suffer from|'ve had| have had| live with) "
    r"(?:an? )?(?:(?:severe|mild|chronic|bad) )?"
    rf"(?P<value>{either(vocabulary.CONDITIONS)})(?![\w-])"
    r"(?! (?:about|over|when|that you|just|from))"
)
_BODILY = compiled(
    rf"{AM} {NOW}(?:(?:completely|partly|partially|profoundly|very) )?"
    rf"(?P<value>(?:{either(vocabulary.BODILY)})(?: in (?:one|my|the) (?:\w+ )?(?:ear|eye)s?)?)"
    r"(?![\w-])(?! (?:to|with|without|as|drunk|from|by))"
)
_DIET = compiled(
    rf"{AM} {NOW}(?:(?:mostly|strictly|a strict) )?(?P<value>{either(vocabulary.DIETS)})(?![\w-])|"
    r"\bi (?:keep|eat|only eat) (?P<law>kosher|halal)\b"
)
_AVOIDS = compiled(
    rf"\bi (?:{NOT}|never|can'?t|cannot|can not|mustn't|must not|am not allowed to) "
    r"(?:ever )?(?P<verb>eat|drink|tolerate|digest)\b ?(?:any )?"
)


def health(clause: str) -> Statements:
    """Extract allergies, intolerances, illnesses and disabilities."""
    for match in _ALLERGIC.finditer(clause):
        value = value_of(clause[match.end() :], 5, through="and or")
        if value and not _is_joke(value):
            yield Statement("health", f"allergic to {value}")
    for pattern in (_ALLERGY, _INTOLERANT, _ILL, _BODILY):
        for match in pattern.finditer(clause):
            yield Statement("health", match["value"].strip())


def diets(clause: str) -> Statements:
    """Extract what the speaker does not eat or drink."""
    for match in _DIET.finditer(clause):
        yield Statement("diet", without_article(match["value"] or match["law"]).lower())
    for match in _AVOIDS.finditer(clause):
        value = without_article(value_of(clause[match.end() :], 4, through="and or"))
        if not value and match["verb"].lower() == "drink" and _clause_ends(clause[match.end() :]):
            yield Statement("diet", "no alcohol")
        elif value and _is_food(match["verb"].lower(), value):
            yield Statement("diet", f"no {value}")


def _is_joke(allergen: str) -> bool:
    """Distinguish pollen from what nobody is allergic to: "mornings", "getting up", "hard work"."""
    words = words_of(allergen)
    return (
        begins_with(allergen, vocabulary.NO_ALLERGIES)
        or words[-1] in vocabulary.NO_ALLERGIES
        or words[0].endswith("ing")
    )


def _is_food(verb: str, value: str) -> bool:
    """Return whether something is not eaten; what is not tolerated is seldom food."""
    if verb in ("tolerate", "digest"):
        return words_of(value)[-1] in vocabulary.NOT_TOLERATED
    return first_word(value) not in vocabulary.NO_MEALS


def _clause_ends(text: str) -> bool:
    return re.match(r"\s*(?:$|[.,;!]|and\b|but\b|at all\b|any ?more\b)", text, re.I) is not None
