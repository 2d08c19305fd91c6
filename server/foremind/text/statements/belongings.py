"""Who and what belongs to somebody: family, pets, and what these are called. Pure."""

import re

from foremind.text.statements import vocabulary as known
from foremind.text.statements.clauses import AM, HAVE, Found, Statement, bare, compiled, either

_COUNT = r"(?P<count>an?|one|two|three|four|five|six|seven|eight|nine|ten|\d{1,2}|many|several)"
_KIND = (
    r"(?P<kind>(?:(?:twin|older|younger|little|big|elder|half|baby|small|old|young|black|white|"
    r"grey|"
    r"lovely|rescue|pet|golden|german) )*)"
)


_KIN = either(known.KIN)
_ANIMAL = either(known.ANIMALS)
_NAME = r"(?P<name>[A-Z][\w'-]*(?: [A-Z][\w'-]*)?)"


def _owned(one: frozenset[str], many: frozenset[str]) -> re.Pattern[str]:
    noun = either(one | many)
    return re.compile(
        rf"(?i:(?:{HAVE}|\b(?:i|we)(?:'ve| have)? (?:just |recently )?(?:own|adopted|got|keep|"
        rf"bought)"
        rf"|(?P<more>\band|,)) {_COUNT} {_KIND}(?P<noun>{noun}))(?![\w-])"
        rf"(?:(?i:,? (?:called|named|whose name is)) {_NAME})?"
        r"(?=$|[.,;:!)]| (?i:and|but|who|at|in|that|with|yesterday|too|now|now|called|named|so|"
        r"since|"
        r"from|today|last|living|as|here|together|already|because|for|which|on)\b)"
    )


_HAS_KIN = _owned(known.KIN, known.KIN_MANY)
_HAS_ANIMALS = _owned(known.ANIMALS, known.ANIMALS_MANY)
_CALLED = re.compile(
    r"(?i:\b(?:my|our) (?P<noun>[a-z]{1,40}(?: (?!is\b|called\b|named\b)[a-z]{1,40})?)"
    r"(?:'s name is|'s called|'s named| is called| is named|,? called|,? named)) "
    r"(?P<name>(?:[Tt]he )?[\w'-]+(?: [A-Z][\w'-]*){0,3})"
)
_BESIDE = re.compile(rf"\b(?i:my|our) (?P<noun>(?i:{_KIN}|{_ANIMAL})),? {_NAME}(?=[ .,;!']|$)")
_PARENT = compiled(
    rf"{AM} (?P<value>an only child|an? (?:\w+ )?(?:{either(known.PARENT)}) of (?:\w+)|"
    rf"an? (?:new |proud |single )?(?:{either(known.PARENT)})(?= ?(?:$|[.,;!])))"
)
_LOST = compiled(rf"\b(?:my|our) (?P<noun>{_ANIMAL}) (?:has )?(?:died|passed away|ran away)\b")


def _belonging(slot: str, owned: re.Pattern[str], clause: str) -> Found:
    begun = False
    for match in owned.finditer(clause):
        if match["more"] and not begun:
            continue
        begun = True
        count = match["count"].lower()
        counted = "" if count in ("a", "an", "one") else f"{count} "
        noun = f"{counted}{match['kind']}{match['noun']}".lower()
        yield Statement(slot, match["name"] or "", noun)


def family(clause: str) -> Found:
    yield from _belonging("family", _HAS_KIN, clause)
    for match in _PARENT.finditer(clause):
        yield Statement("family", bare(match["value"]))


def pets(clause: str) -> Found:
    yield from _belonging("pets", _HAS_ANIMALS, clause)
    for match in _LOST.finditer(clause):
        yield Statement("pets", "", match["noun"].lower(), holds=False)


_NO_THING = frozenset({"name", "real", "new", "favourite", "favorite", "friends", "thing"})


def called(clause: str) -> Found:
    """Read what something or somebody of one's own is called."""
    for match in _CALLED.finditer(clause):
        noun, name = match["noun"].lower(), match["name"]
        if name.lower() not in known.NO_NAMES and not _NO_THING & set(noun.split()):
            yield Statement(_slot_of(noun), name, noun)
    for match in _BESIDE.finditer(clause):
        if match["name"].lower() not in (*known.NO_NAMES, "i", "i'm", "i've"):
            noun = match["noun"].lower()
            yield Statement(_slot_of(noun), match["name"].removesuffix("'s"), noun)


def _slot_of(noun: str) -> str:
    last = noun.rsplit(maxsplit=1)[-1]
    if last in known.KIN:
        return "family"
    return "pets" if last in known.ANIMALS else "names"
