"""Statements about likes, preferences and goals. Pure."""

import re

from foremind.text.statements import vocabulary
from foremind.text.statements.clauses import (
    AM,
    NOT,
    VERY,
    Statement,
    Statements,
    compiled,
    first_word,
    read_value,
    value_of,
    without_article,
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
_NO_FAVOURITE_VALUES = vocabulary.NO_TASTES | {"not", "just"}
_NO_FAVOURITE_NAMES = vocabulary.NO_TASTES | vocabulary.NO_NAMES
_FAN_OF = r"(?:(?:an? |much of an? |(?=fan))(?:\w+ )?fan of|into|fond of|keen on)"
_SINCE_EVER = r"(?:'ve| have)? always "
_MUCH = r"(?:(?:really|actually|much|even|particularly|quite|ever|that) )*"
_CAN_NOT_STAND = (
    r"can(?:'?t|not) (?:stand(?! (?:up|still|down|back|straight|near|next|on|in|at|by|around|out|"
    r"alone)\b)|bear|abide)"
)
_LIKES = compiled(
    rf"(?P<not>\bi (?:really |honestly |actually |also )?(?:{NOT}|no longer) {_MUCH}"
    r"(?:like|love|enjoy|care (?:much )?for|fancy) |"
    r"\bi(?:'ve| have)? (?:stopped|quit) (?:liking|loving|enjoying) |\bi(?:'ve| have) gone off )|"
    rf"(?P<never>\bi(?:'ve| have)? (?:honestly |just )?never {_MUCH}(?:like|love|enjoy|liked|loved|"
    r"enjoyed|care (?:much )?for|cared (?:much )?for|fancied|took to) |"
    rf"\bi(?:(?:'ve| have) never been| was never|'m no| am no) {_MUCH}{_FAN_OF} )|"
    rf"(?P<hates>\bi (?:simply |just |honestly )?{VERY}(?:hate|dislike|detest|loathe|despise|"
    rf"{_CAN_NOT_STAND}) |"
    rf"\bi{_SINCE_EVER}(?:hate|hated|dislike|disliked|detested|loathed|despised) |"
    rf"{AM} {VERY}not {_MUCH}{_FAN_OF} )|"
    rf"\bi {VERY}(?:love|like|adore|enjoy) |"
    rf"\bi{_SINCE_EVER}(?:love|loved|like|liked|adored|enjoyed) |"
    rf"\bi {VERY}(?:basically |practically )?live for |"
    rf"{AM} {VERY}(?:very |big |really |totally )?(?:into|fond of|obsessed with|keen on|"
    rf"crazy about|"
    r"mad about|an? (?:\w+ )?fan of) "
)
_MY_THING = compiled(
    r"(?:^|[,;:] |\b(?:and|but) )(?P<value>[\w'-]+(?: [\w'-]+){0,2}?)(?:"
    rf"(?P<not>(?: is| are|'s)(?:n't| not) {VERY}(?:my (?:kind of )?thing|my cup of tea|for me))|"
    rf"(?: is| are|'s) {VERY}my (?:kind of )?thing)(?=$|[ .,;!])"
)
# What was never so until, or never so much as now, says the opposite.
_COMPARED = frozenset(("so", "as", "more", "than", "until", "till", "before"))
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
_CONJUNCTION = re.compile(r",? (?:and|or) ", re.IGNORECASE)
_TASTE_THROUGH = "and or in on at to from with for the when like by my about"
_NO_TASTES_OF_MINE = frozenset(("chances", "odds"))
_MAX_TASTE_WORDS = 7
_MAX_ITEM_WORDS = 2  # of each item of a list
# A value that one of these ends is no taste in general: "the friends I have".
_RELATIVE_ENDS = frozenset(
    """i we you he she they it this that these those them him her his its their your there itself
    …""".split()  # noqa: SIM905
)


def favourites(clause: str) -> Statements:
    """Extract favourites, with what they are the favourite of."""
    for match in _FAVOURITE.finditer(clause):
        value = value_of(clause[match.end() :], 5, through="and in at on by to from like the with")
        about = match["about"].lower()
        is_about_something = about.split()[0] not in _NO_FAVOURITES
        if value and is_about_something and first_word(value) not in _NO_FAVOURITE_VALUES:
            yield Statement("favourites", without_article(value), about)
    for match in _IS_FAVOURITE.finditer(clause):
        value, about = match["value"], match["about"].lower().split()[0]
        if about not in _NO_FAVOURITES and first_word(value) not in _NO_FAVOURITE_NAMES:
            yield Statement("favourites", value, about)


def tastes(clause: str) -> Statements:
    """Extract what the speaker likes and dislikes in general."""
    for match in _MY_THING.finditer(clause):
        if _is_taste(match["value"]):
            yield Statement("dislikes" if match["not"] else "likes", match["value"])
    for match in _LIKES.finditer(clause):
        negative = match["not"] or match["never"] or match["hates"]
        slot = "dislikes" if negative else "likes"
        text, terminator = read_value(
            clause[match.end() :], _MAX_TASTE_WORDS, _TASTE_THROUGH, "when because more than"
        )
        if terminator in _RELATIVE_ENDS or (match["never"] and terminator in _COMPARED):
            continue
        for value in _items(text):
            if _is_taste(value):
                yield Statement(slot, value.removeprefix("to "))


def _items(text: str) -> list[str]:
    """Split "chocolate and old films", but not "books on growth and psychology"."""
    parts = [part.strip() for part in _CONJUNCTION.split(text) if part.strip()]
    all_short = all(len(words_of(without_article(part))) <= _MAX_ITEM_WORDS for part in parts)
    return parts if all_short and len(parts) <= 3 else [text]


def _is_taste(value: str) -> bool:
    words = words_of(value)
    if words[:1] == ["to"]:
        return len(words) > 1 and words[1] not in vocabulary.NO_INFINITIVES
    if not words or words[0] in vocabulary.NO_TASTES or not terms_of(value):
        return False
    if words[0] == "the" and value[0].islower():
        return _is_generic(words[1:])
    of_kin = words[0] == "my" and set(words[1:2]) & (
        vocabulary.KIN | vocabulary.KIN_MANY | _NO_TASTES_OF_MINE
    )
    if words[0].isdigit() or words[0] in vocabulary.NUMBERS:  # "I live for ten years in Rome"
        return False
    return not of_kin and not (len(words) == 1 and words[0] in vocabulary.NEEDS_AN_OBJECT)


def _is_generic(words: list[str]) -> bool:
    """Distinguish "the ocean" and "the smell of bread" from "the energy", which needs context."""
    if not words:
        return False
    of_senses = len(words) > 2 and words[0] in vocabulary.SENSES and words[1] == "of"
    return of_senses or words[-1] in vocabulary.THE_ONLY


def preferences(clause: str) -> Statements:
    """Extract what the speaker prefers."""
    for match in (*_PREFERS.finditer(clause), *_RATHER_NOT.finditer(clause)):
        value = value_of(
            clause[match.end() :],
            9,
            through="to over in for with and or at on by my that not than from",
        )
        is_name = re.match(r"(?:to be|being) called\b", value, re.I) is not None
        is_pronoun = "/" in value or first_word(value) in ("it", "that", "this")
        if value and not is_name and not is_pronoun:
            yield Statement("prefers", value)


def _of_the_moment(clause: str) -> bool:
    return re.search(r"\b(?:right now|tonight|this instant)\b", clause, re.I) is not None


def goals(clause: str) -> Statements:
    """Extract what the speaker wants to achieve."""
    for match in _GOAL.finditer(clause):
        value = value_of(
            clause[match.end() :],
            9,
            "to for with in on at from by and the next my like this every more",
        )
        if value and first_word(value) not in _NO_GOALS and not _of_the_moment(clause):
            verb = match["doing"] or match["learn"] or ""
            yield Statement("goals", f"{verb} {value}".strip())
