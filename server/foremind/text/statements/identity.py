"""Who somebody is: name, pronouns, age, birthday, status, languages. Pure."""

import re

from foremind.text.statements import vocabulary as known
from foremind.text.statements.clauses import AM, NOW, Found, Statement, compiled, value_of
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
    r"(?P<rest> years? old| years? of age| y/?o)?"
    r"(?= ?(?:$|[.,;!)]| (?:and|but|now|last|this|today|yesterday|so|years|already|tomorrow)\b))"
)
_MONTH = "|".join(sorted(known.MONTHS, key=len, reverse=True))
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
    rf"(?:{AM} {NOW}(?:newly |happily |recently |a (?=widow))?|\b(?:i|we)(?:'ve)? (?:just |"
    rf"finally )?got )"
    r"(?P<value>single|married|engaged|divorced|widowed|widow|widower|separated|in a relationship)"
    r"\b(?![\w-])(?! (?:in|with my thoughts|by|out|malt|from))"
)
_LEAST_AGE, _MOST_AGE = 5, 115
_LIKELY_AGE = 10  # said without "years old"


def names(clause: str) -> Found:
    for match in _NAMED.finditer(clause):
        value = _name(clause[match.end() :], asked=match["ask"] is not None)
        if value:
            yield Statement("name", value)
    introduced = _INTRODUCED.match(clause)
    if introduced is None:
        return
    name = introduced["name"]
    if name.lower() in known.NO_NAMES or name.lower() in known.MONTHS:
        return
    if not re.match(r" \w+ing\b| to\b| for\b| that\b", clause[introduced.end("name") :]):
        yield Statement("name", name)
        yield from _introduction(clause[introduced.end("name") :])


def _introduction(rest: str) -> Found:
    """Read what follows a name: ", 29, a nurse from Leeds"."""
    for part in rest.split(",")[1:4]:
        said = part.strip().removeprefix("and ")
        if said[:3].isdigit() or (said[:2].isdigit() and len(said) == 2):
            yield Statement("age", said)
        elif said.startswith(("a ", "an ")):
            yield from jobs(f"I'm {said}")
        if " from " in f" {said} ":
            yield from origins(f"I'm from {said.partition('from ')[2]}")


def _name(rest: str, *, asked: bool) -> str:
    value = value_of(rest, 3)
    first = value.split()[0] if value else ""
    if not first or first.lower() in known.NO_NAMES or any(each.isdigit() for each in value):
        return ""
    if "/" in value:  # pronouns
        return ""
    if not first[0].isupper() and (len(value.split()) > 1 or (asked and len(first) < 2)):
        return ""
    words = [each for each in value.split() if each[0].isupper()] or [first]
    return " ".join(words)


def pronouns(clause: str) -> Found:
    for match in _PRONOUNS.finditer(clause):
        yield Statement("pronouns", match["value"].replace(" ", "").lower())


def ages(clause: str) -> Found:
    for match in _AGE.finditer(clause):
        value = match["value"]
        years = int(value) if value.isdigit() else _MOST_AGE
        least = _LEAST_AGE if match["rest"] else _LIKELY_AGE
        if least <= years <= _MOST_AGE:
            yield Statement("age", value)


def birthdays(clause: str) -> Found:
    for match in _BIRTHDAY.finditer(clause):
        yield Statement("birthday", match["value"])


def statuses(clause: str) -> Found:
    for match in _STATUS.finditer(clause):
        value = match["value"].lower()
        yield Statement("status", "widowed" if value.startswith("widow") else value)


_SPEAKS = compiled(
    rf"\bi (?:can )?{NOW}(?:speak|understand) |{AM} {NOW}(?:fluent in|bilingual in) |"
    r"\bmy (?:native |first |second |mother )?(?:language|tongue)(?: is|'s) |"
    r"\bi(?:'m| am) (?P<learns>learning|studying) "
)
_A_LANGUAGE = compiled(rf"\b(?:{'|'.join(sorted(known.LANGUAGES, key=len, reverse=True))})\b")
_NO_MORE_LANGUAGES = compiled(r"\b(?:but|to|with|because|i|at)\b")
_OF_LANGUAGES = compiled(r"^[\w' ,]{0,80}")


def languages(clause: str) -> Found:
    for match in _SPEAKS.finditer(clause):
        end = _OF_LANGUAGES.match(clause[match.end() :])
        told = "" if end is None else _NO_MORE_LANGUAGES.split(end[0], maxsplit=1)[0]
        learns = "learning " if match["learns"] else ""
        for language in _A_LANGUAGE.finditer(told):
            yield Statement("languages", f"{learns}{language[0]}")
