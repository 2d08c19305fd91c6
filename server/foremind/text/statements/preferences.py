"""What somebody likes, prefers and wants to reach. Pure."""

import re

from foremind.text.statements import vocabulary as known
from foremind.text.statements.clauses import (
    AM,
    NOT,
    VERY,
    Found,
    Statement,
    bare,
    compiled,
    first_of,
    read_value,
    value_of,
)
from foremind.text.tokenization import terms_of, words_of

_ABOUT = (
    r"(?:new |all[- ]time |absolute |current |personal |very |own )*"
    r"favou?rite (?P<about>[a-z]{2,40}(?: [a-z]{2,40})?)"
)
_FAVOURITE = compiled(
    rf"\bmy {_ABOUT}(?: is|'s| are) (?:definitely |probably |now |still |always )*"
)
_IS_FAVOURITE = compiled(
    rf"(?:^|[,;:] |\b(?:and|but|that|think) )(?P<value>[\w'-]+(?: [\w'-]+){{0,3}}) (?:is|"
    rf"are) my {_ABOUT}"
    r"(?=$|[ .,;!])"
)
_NO_FAVOURITES = frozenset({"part", "thing", "bit", "moment", "way", "one", "place to", "parts"})
_LIKES = compiled(
    rf"(?P<not>\bi (?:really |honestly |actually |also )?{NOT} (?:really |actually |much |even )?"
    r"(?:like|love|enjoy|care for|fancy) )|"
    rf"(?P<hates>\bi {VERY}(?:hate|dislike|detest|loathe|despise|can(?:'?t|not) (?:stand|bear|"
    rf"abide))"
    rf" |{AM} {VERY}not (?:really )?(?:a (?:big |huge |great )?fan of|into|fond of|keen on) )|"
    rf"\bi {VERY}(?:love|like|adore|enjoy) |"
    rf"{AM} {VERY}(?:very |big |really |totally )?(?:into|fond of|obsessed with|keen on|"
    rf"crazy about|"
    r"mad about|an? (?:\w+ )?fan of) "
)
_PREFERS = compiled(
    r"\bi(?:'d| would)? (?:usually |really |much |always |generally |also )*prefer "
)
_RATHER_NOT = compiled(r"\bi'?d (?:really |much )?rather (?=not )")
_GOAL = compiled(
    r"\bmy (?:\w+ )?(?:goal|dream|ambition|plan|aim|resolution)(?: for \w+(?: \w+)?)? is (?:to )?|"
    r"\bi(?:'m| am) (?:currently |still )?(?P<doing>saving(?: up)? for|training for|writing an?|"
    r"working towards) |"
    r"\bi (?:really )?(?:want|hope|plan|intend) to (?P<learn>learn|become|master|quit|stop|run|"
    r"write|"
    r"visit|finish|build|lose) "
)
_NO_GOALS = frozenset(
    """it that this more you about here home now how what away out down up back fast late so
    be""".split()  # noqa: SIM905
)
_DIVIDED = re.compile(r",? (?:and|or) ", re.IGNORECASE)
_TASTE_THROUGH = "and or in on at to from with for the when like by my about"
_MOST_TASTE = 7
_MOST_DIVIDED = 2  # words of each of several
# What ends a value like this says that it is nothing by itself: "the friends I have".
_POINTS_BACK = frozenset(
    """i we you he she they it this that these those them him her his its their your there itself
    …""".split()  # noqa: SIM905
)


def favourites(clause: str) -> Found:
    for match in _FAVOURITE.finditer(clause):
        value = value_of(clause[match.end() :], 5, through="and in at on by to from like the with")
        about = match["about"].lower()
        if (
            value
            and about.split()[0] not in _NO_FAVOURITES
            and first_of(value)
            not in (
                *known.NO_TASTES,
                "not",
                "just",
            )
        ):
            yield Statement("favourites", bare(value), about)
    for match in _IS_FAVOURITE.finditer(clause):
        value, about = match["value"], match["about"].lower().split()[0]
        if about not in _NO_FAVOURITES and first_of(value) not in known.NO_TASTES | known.NO_NAMES:
            yield Statement("favourites", value, about)


def tastes(clause: str) -> Found:
    for match in _LIKES.finditer(clause):
        slot = "dislikes" if match["not"] or match["hates"] else "likes"
        said, ended = read_value(
            clause[match.end() :], _MOST_TASTE, _TASTE_THROUGH, "when because more than"
        )
        for value in () if ended in _POINTS_BACK else _divided(said):
            if _is_taste(value):
                yield Statement(slot, value.removeprefix("to "))


def _divided(said: str) -> list[str]:
    """Divide "chocolate and old films", and leave "books on growth and psychology" whole."""
    parts = [each.strip() for each in _DIVIDED.split(said) if each.strip()]
    alike = all(len(words_of(bare(part))) <= _MOST_DIVIDED for part in parts)
    return parts if alike and len(parts) <= 3 else [said]


def _is_taste(value: str) -> bool:
    words = words_of(value)
    if words[:1] == ["to"]:
        return len(words) > 1 and words[1] not in known.NO_INFINITIVES
    if not words or words[0] in known.NO_TASTES or not terms_of(value):
        return False
    if words[0] == "the" and value[0].islower():
        return _of_the_world(words[1:])
    of_kin = words[0] == "my" and set(words[1:2]) & (known.KIN | known.KIN_MANY)
    return not of_kin and not (len(words) == 1 and words[0] in known.NEEDS_AN_OBJECT)


def _of_the_world(words: list[str]) -> bool:
    """Tell "the ocean" and "the smell of bread" from "the energy", which points at something."""
    if not words:
        return False
    of_senses = len(words) > 2 and words[0] in known.SENSES and words[1] == "of"
    return of_senses or words[-1] in known.THE_ONLY


def preferences(clause: str) -> Found:
    for match in (*_PREFERS.finditer(clause), *_RATHER_NOT.finditer(clause)):
        value = value_of(
            clause[match.end() :],
            9,
            through="to over in for with and or at on by my that not than from",
        )
        is_name = re.match(r"(?:to be|being) called\b", value, re.I) is not None
        if (
            value
            and not is_name
            and "/" not in value
            and first_of(value) not in ("it", "that", "this")
        ):
            yield Statement("prefers", value)


def goals(clause: str) -> Found:
    for match in _GOAL.finditer(clause):
        value = value_of(
            clause[match.end() :],
            9,
            "to for with in on at from by and the next my like this every more",
        )
        if value and first_of(value) not in _NO_GOALS:
            before = match["doing"] or match["learn"] or ""
            yield Statement("goals", f"{before} {value}".strip())
