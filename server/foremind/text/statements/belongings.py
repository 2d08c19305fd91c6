"""Statements about family, pets and belongings, and what these are called. Pure."""

import re

from foremind.text.statements import vocabulary
from foremind.text.statements.clauses import (
    AM,
    HAVE,
    Statement,
    Statements,
    compiled,
    either,
    without_article,
)

_COUNT = r"(?P<count>an?|one|two|three|four|five|six|seven|eight|nine|ten|\d{1,2}|many|several)"
_KIND = (
    r"(?P<kind>(?:(?:twin|older|younger|little|big|elder|half|baby|small|old|young|black|white|"
    r"grey|"
    r"lovely|rescue|pet|golden|german) )*)"
)


_KIN = either(vocabulary.KIN)
_ANIMAL = either(vocabulary.ANIMALS)
_NAME = r"(?P<name>[A-Z][\w'-]*(?: [A-Z][\w'-]*)?)"


def _owned(singular: frozenset[str], plural: frozenset[str]) -> re.Pattern[str]:
    noun = either(singular | plural)
    return re.compile(
        rf"(?i:(?:{HAVE}|\b(?:i|we)(?:'ve| have)? (?:just |recently )?(?:own|adopted|got|keep|"
        rf"bought)"
        rf"|(?P<more>\band|,)) {_COUNT} {_KIND}(?P<noun>{noun}))(?![\w-])"
        rf"(?:(?i:,? (?:called|named|whose name is)) {_NAME})?"
        r"(?=$|[.,;:!)]| (?i:and|but|who|at|in|that|with|yesterday|too|now|now|called|named|so|"
        r"since|"
        r"from|today|last|living|as|here|together|already|because|for|which|on)\b)"
    )


_HAS_KIN = _owned(vocabulary.KIN, vocabulary.KIN_MANY)
_HAS_ANIMALS = _owned(vocabulary.ANIMALS, vocabulary.ANIMALS_MANY)
# "A frog in my throat", "a chicken in the oven"
_NOT_KEPT = compiled(
    r" (?:(?:in|on) (?:my|the|this) (?:\w+ )?(?:throat|bonnet|oven|freezer|fridge|pan|pot|stomach|"
    r"head|plate|grill|menu|room)\b|to (?:fry|cook|roast)\b|for (?:dinner|lunch|tea|supper)\b)"
)
_CALLED = re.compile(
    r"(?i:\b(?:my|our) (?P<noun>[a-z]{1,40}(?: (?!is\b|called\b|named\b)[a-z]{1,40})?)"
    r"(?:'s name is|'s called|'s named| is called| is named|,? called|,? named)) "
    r"(?P<name>(?:[Tt]he )?[\w'-]+(?: [A-Z][\w'-]*){0,3})"
)
_NAME_FOLLOWS = re.compile(
    rf"\b(?i:my|our) (?P<noun>(?i:{_KIN}|{_ANIMAL})),? {_NAME}(?=[ .,;!']|$)"
)
_PARENT = compiled(
    rf"{AM} (?P<value>an only child|an? (?:\w+ )?(?:{either(vocabulary.PARENT)}) of "
    rf"(?:\d{{1,2}}|{either(vocabulary.NUMBERS | vocabulary.KIN_MANY)})(?![\w-])|"
    rf"an? (?:new |proud |single )?(?:{either(vocabulary.PARENT)})(?= ?(?:$|[.,;!])))"
)
_NO_LONGER = compiled(rf"\b(?:my|our) (?P<noun>{_ANIMAL}) (?:has )?(?:died|passed away|ran away)\b")


def _belonging(slot: str, pattern: re.Pattern[str], clause: str) -> Statements:
    in_list = False
    for match in pattern.finditer(clause):
        if match["more"] and not in_list:  # "and a dog" continues a list only
            continue
        if _NOT_KEPT.match(clause, match.end()):
            continue
        in_list = True
        count = match["count"].lower()
        prefix = "" if count in ("a", "an", "one") else f"{count} "
        noun = f"{prefix}{match['kind']}{match['noun']}".lower()
        yield Statement(slot, match["name"] or "", noun)


def family(clause: str) -> Statements:
    """Extract relatives, and whether the speaker is a parent."""
    yield from _belonging("family", _HAS_KIN, clause)
    for match in _PARENT.finditer(clause):
        yield Statement("family", without_article(match["value"]))


def pets(clause: str) -> Statements:
    """Extract animals that the speaker has, or no longer has."""
    yield from _belonging("pets", _HAS_ANIMALS, clause)
    for match in _NO_LONGER.finditer(clause):
        yield Statement("pets", "", match["noun"].lower(), holds=False)


_NOT_NAMED = frozenset({"name", "real", "new", "favourite", "favorite", "friends", "thing"})


def called(clause: str) -> Statements:
    """Extract the names of people, animals and things that belong to the speaker."""
    for match in _CALLED.finditer(clause):
        noun, name = match["noun"].lower(), match["name"]
        if name.lower() not in vocabulary.NO_NAMES and not _NOT_NAMED & set(noun.split()):
            yield Statement(_slot_of(noun), name, noun)
    for match in _NAME_FOLLOWS.finditer(clause):
        if match["name"].lower() not in (*vocabulary.NO_NAMES, "i", "i'm", "i've"):
            noun = match["noun"].lower()
            yield Statement(_slot_of(noun), match["name"].removesuffix("'s"), noun)


def _slot_of(noun: str) -> str:
    last = noun.rsplit(maxsplit=1)[-1]
    if last in vocabulary.KIN:
        return "family"
    return "pets" if last in vocabulary.ANIMALS else "names"
