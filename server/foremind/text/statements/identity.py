"""Statements about identity: name, pronouns, age, birthday, status, languages. Pure."""

import re

from foremind.text.statements import vocabulary
from foremind.text.statements.clauses import (
    AM,
    NOW,
    Statement,
    Statements,
    compiled,
    either,
    value_of,
)
from foremind.text.statements.occupation import jobs
from foremind.text.statements.places import origins

_NAMED = compiled(
    r"\bmy (?:real |full |first |actual )?name(?: is|'s) |\bthe name(?: is|'s) |"
    rf"{AM} called |"
    r"(?P<ask>(?<!n't )(?<!not )(?<!never )(?<!stop )\bcall me )|"
    r"\b(?:people|friends|everybody|everyone|they all|most people) calls? me |"
    r"\bi go by (?:the name (?:of )?)?|\bi prefer (?:to be called |being called )"
)
_INTRODUCED = re.compile(
    r"^\W*(?:(?:hi|hello|hey|hiya|good \w+|greetings|oh|well|so)\b(?: there| \w+)?\W*)?"
    r"[iI](?:'m| am) (?P<name>[A-Z][\w-]+)(?=$|[,.!;]| and\b| from\b| [A-Z])",
)
_PRONOUNS = compiled(
    r"(?:\bmy pronouns are|^\W*pronouns ?(?:are|:)?|\bi use|\bi go by|\buse|\bi prefer) "
    r"(?P<value>(?:she|he|they|it|xe|ze|any)(?: ?/ ?\w{1,6}){1,2}|any pronouns)(?P<rest>.{0,20})"
)
_NUMBER = (
    r"(?P<value>\d{1,3}|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)"
    r"(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?|"
    r"ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen)"
)
_AGE = compiled(
    rf"(?:{AM} {NOW}|\bi(?:'ve)? (?:just |recently )?turned |\bmy age is ){_NUMBER}"
    r"(?P<unit> years? old| years? of age| y/?o)?"
    r"(?= ?(?:$|[.,;!)]| (?:and|but|now|last|this|today|yesterday|so|years|already|tomorrow)\b))"
)
_MONTH = "|".join(sorted(vocabulary.MONTHS, key=len, reverse=True))
_DATE = (
    rf"(?P<value>\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{_MONTH})\b(?:,? \d{{4}})?|"
    rf"(?:{_MONTH}) (?:the )?\d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}})?|"
    rf"(?:{_MONTH})(?: \d{{4}})?\b|"
    r"\d{1,2}[./]\d{1,2}(?:[./]\d{2,4})?|(?:19|20)\d{2}\b)"
)
_BIRTHDAY = compiled(
    rf"(?:\bmy (?:birthday|bday|b-day|birth date)(?:'s| is| falls)\b[^.!?]{{0,40}}?|"
    rf"\bi was born (?:on |in |the )*(?:\w{{1,20}} (?:on|in) (?:the )?)?)\b{_DATE}"
)
_STATUS = compiled(
    rf"(?:(?:{AM}|\b(?:i|we)(?:'ve| have) been) {NOW}(?:newly |happily |recently |a (?=widow))?|"
    rf"\b(?:i|we)(?:'ve)? (?:just |finally )?got )"
    r"(?P<value>single|married|engaged|divorced|widowed|widow|widower|separated|in a relationship)"
    r"\b(?![\w-])(?! (?:by|out|malt|before|once|twice|\w+ times)\b)"
)
_BOUND_TO = compiled(r" (?P<by>to|from|with|in) (?P<whom>[\w' -]{1,60})")
# Figures of speech need no list of things: one is married to a person, or it is no marriage.
_PERSON = re.compile(
    r"(?:be married\b|(?i:some(?:one|body)\b)|(?!I\b)[A-Z]|"
    r"(?i:an? )(?!(?:\w+ )?(?:" + either(vocabulary.NO_SPOUSES) + r")\b)|"
    r"(?:(?i:my|the|his|her|our|this|that|one of) )(?:[\w'-]+ ){0,3}?"
    r"(?i:" + either(vocabulary.KIN | vocabulary.PERSONS) + r")\b)"
)
_MIN_AGE, _MAX_AGE = 5, 115
_MIN_BARE_AGE = 10  # without "years old"


def names(clause: str) -> Statements:
    """Extract the speaker's name, and what an introduction adds to it."""
    for match in _NAMED.finditer(clause):
        value = _name(clause[match.end() :], requested=match["ask"] is not None)
        if value:
            yield Statement("name", value)
    introduced = _INTRODUCED.match(clause)
    if introduced is None:
        return
    name, rest = introduced["name"], clause[introduced.end("name") :]
    if name.lower() in vocabulary.NO_NAMES or name.lower() in vocabulary.MONTHS:
        return
    if not re.match(r" \w+ing\b| to\b| for\b| that\b", rest):
        yield Statement("name", name)
        yield from _introduction(rest)


def _introduction(rest: str) -> Statements:
    """Extract what follows a name: ", 29, a nurse from Leeds"."""
    for part in rest.split(",")[1:4]:
        detail = part.strip().removeprefix("and ")
        if detail[:3].isdigit() or (detail[:2].isdigit() and len(detail) == 2):
            yield Statement("age", detail)
        elif detail.startswith(("a ", "an ")):
            yield from jobs(f"I'm {detail}")
        if " from " in f" {detail} ":
            yield from origins(f"I'm from {detail.partition('from ')[2]}")


def _name(text: str, *, requested: bool) -> str:
    """Return the name at the beginning of a text; `requested` by "call me"."""
    value = value_of(text, 3)
    first = value.split()[0] if value else ""
    if not first or first.lower() in vocabulary.NO_NAMES or any(char.isdigit() for char in value):
        return ""
    if "/" in value:  # pronouns
        return ""
    if not first[0].isupper() and (len(value.split()) > 1 or (requested and len(first) < 2)):
        return ""
    words = [word for word in value.split() if word[0].isupper()] or [first]
    return " ".join(words)


def pronouns(clause: str) -> Statements:
    """Extract the speaker's pronouns."""
    for match in _PRONOUNS.finditer(clause):
        yield Statement("pronouns", match["value"].replace(" ", "").lower())


def ages(clause: str) -> Statements:
    """Extract the speaker's age in years."""
    for match in _AGE.finditer(clause):
        value = match["value"]
        years = int(value) if value.isdigit() else _MAX_AGE
        minimum = _MIN_AGE if match["unit"] else _MIN_BARE_AGE
        if minimum <= years <= _MAX_AGE:
            yield Statement("age", value)


def birthdays(clause: str) -> Statements:
    """Extract the speaker's day, month or year of birth."""
    for match in _BIRTHDAY.finditer(clause):
        yield Statement("birthday", match["value"])


def statuses(clause: str) -> Statements:
    """Extract the speaker's relationship status."""
    for match in _STATUS.finditer(clause):
        value = match["value"].lower()
        if _is_about_people(value, clause[match.end() :]):
            yield Statement("status", "widowed" if value.startswith("widow") else value)


def _is_about_people(status: str, rest: str) -> bool:
    """Distinguish "married to Ben" from "married to my work" and "engaged in the story"."""
    bond = _BOUND_TO.match(rest)
    if bond is None:
        return True
    by = bond["by"].lower()
    if by == "in" or (by == "with" and status != "in a relationship"):  # "married in June"
        return status not in ("engaged", "separated")
    return _PERSON.match(bond["whom"]) is not None


_SPEAKS = compiled(
    rf"\bi (?:can )?{NOW}(?:speak|understand) |{AM} {NOW}(?:fluent in|bilingual in) |"
    r"\bmy (?:native |first |second |mother )?(?:language|tongue)(?: is|'s) |"
    r"\bi(?:'m| am) (?P<learns>learning|studying) "
)
_LANGUAGE = compiled(rf"\b(?:{'|'.join(sorted(vocabulary.LANGUAGES, key=len, reverse=True))})\b")
_LANGUAGES_END = compiled(r"\b(?:but|to|with|because|i|at)\b")
_LANGUAGE_LIST = compiled(r"^[\w' ,]{0,80}")


def languages(clause: str) -> Statements:
    """Extract the languages that the speaker speaks or learns."""
    for match in _SPEAKS.finditer(clause):
        listed = _LANGUAGE_LIST.match(clause[match.end() :])
        languages_text = "" if listed is None else _LANGUAGES_END.split(listed[0], maxsplit=1)[0]
        prefix = "learning " if match["learns"] else ""
        for language in _LANGUAGE.finditer(languages_text):
            yield Statement("languages", f"{prefix}{language[0]}")
