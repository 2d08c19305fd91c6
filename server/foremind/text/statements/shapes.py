"""What values may look like: places, names, jobs, things liked. Pure.

Each function returns a value without its article, or nothing unless its shape shows what it is. A
place has a capital letter, or is said to be a town: "I live in hope" and "I live in porto" are
alike, and neither is read. Where people write no capitals, `constructions` tells them apart.
"""

import re

from foremind.text.languages.language_files import ENGLISH, LANGUAGES
from foremind.text.statements import vocabulary
from foremind.text.statements.vocabulary import pattern
from foremind.text.tokenization import EVERYDAY_NAMES

_WORD = r"[\w'&%/+]+(?:[.-][\w'&%/+]+)*"
_VALUE = re.compile(rf"{_WORD}(?: {_WORD})*")
_ARTICLE = re.compile(r"^(?:an?|the|some) (?=\S)", re.IGNORECASE)
_TITLE = re.compile(r'"([^"]+)"')
_MAX_CHARS = 80
_SMALL = frozenset("one two three four five six seven eight nine hundred".split())  # noqa: SIM905
_UNFINISHED = vocabulary.PREPOSITIONS | {"and", "or", "a", "an", "the", "my", "our"}
_PARTICLES = {"a", "an", "and", "any", "the", "some", "up", "out", "off", "down", "before", "well"}
_REFUSED = (  # pronouns, verbs and what else needs a context
    vocabulary.NEVER_IN_VALUES
    | LANGUAGES[ENGLISH].stop_words - vocabulary.PREPOSITIONS - _PARTICLES
)
#: What people who write no capitals live in, come from or work at that is no name.
NO_PLACES = _REFUSED.union(*vocabulary.WORDS.values())
_ALLERGENS = vocabulary.ALLERGENS | vocabulary.FOODS | vocabulary.ANIMALS | vocabulary.ANIMALS_MANY


def words_in(value: str) -> list[str]:
    """Return the words of a value in lower case; none if it has other marks, or is too long."""
    return value.lower().split() if _VALUE.fullmatch(value) and len(value) <= _MAX_CHARS else []


def phrase(value: str, most: int = 4, allowed: str = "") -> str:
    """Return a noun phrase of some words: no pronoun, no verb, nothing that needs a context."""
    words = words_in(value)
    if not words or len(words) > most or words[-1] in _UNFINISHED:
        return ""
    plain = {word.removesuffix("'s") for word in words}
    refused = plain & _REFUSED - set(allowed.split())
    return "" if refused or words[0] in ("and", "of") else without_article(value)


def without_article(value: str) -> str:
    """Return a value without its article."""
    return _ARTICLE.sub("", value)


def capitalised(value: str, links: frozenset[str] = vocabulary.LINKS) -> bool:
    """Return whether all words of a value begin with a capital letter, other than links."""
    words = [word for word in value.split() if word.lower() not in links] or value.split()
    return bool(words) and all(word[0].isupper() for word in words)


def named(value: str) -> str:
    """Return a name: capitalised words, or a single word that is no other."""
    title = _TITLE.fullmatch(value)
    value = title[1] if title else value
    words = words_in(value)
    if not words or len(words) > 4 or re.search(r"[\d/]", value):
        return ""
    first = words[1] if words[0] == "the" and len(words) > 1 else words[0]
    common = first in _REFUSED | vocabulary.COMMON
    if common and not (first in EVERYDAY_NAMES and value[0].isupper()):
        return ""
    if title or capitalised(value):
        return value
    return value if len(words) == 1 < len(value) and not pattern("adjective").match(value) else ""


def names(value: str) -> str:
    """Return one name, or several: "Mia and Zoe"."""
    return value if all(map(named, re.split(r", and |, | and ", value))) else ""


def name_alone(value: str) -> str:
    """Return the name in "hi, I'm Ana": one or two capitalised words that are no others."""
    words = words_in(value)
    if not words or len(words) > 2 or value.isupper() or not capitalised(value):
        return ""
    nation = words[0] in vocabulary.NATIONALITIES | vocabulary.LANGUAGES
    other = nation or trade(value) or pattern("season").fullmatch(words[0])
    return "" if other and words[0] not in EVERYDAY_NAMES else named(value)


def place(value: str) -> str:
    """Return a place: a name, or "a small town near Minsk"."""
    words, bare = words_in(value), without_article(value)
    if not words or len(words) > 7 or _REFUSED & set(words):
        return ""
    if capitalised(bare, vocabulary.LINKS | vocabulary.PLACE_LINKS):
        first = words_in(bare)[0]
        no_name = vocabulary.COMMON | vocabulary.SOFTWARE
        odd = (first in no_name and len(words) == 1) or pattern("season").fullmatch(first)
        return "" if odd else bare
    is_kind = vocabulary.PLACES & set(words) or re.search(r" (?:in|near|outside) [A-Z]", bare)
    return bare if bare != value and is_kind and words[-1] not in _UNFINISHED else ""


def trade(value: str) -> str:
    """Return a value that ends with a trade, as "freelance illustrator" does."""
    bare = phrase(value, 4)
    words = bare.lower().split()
    if (
        not words
        or (len(words) > 1 and pattern("praising").match(words[0]))
        or re.search(r"\d", bare)
    ):
        return ""
    if _UNFINISHED & set(words):
        return ""
    ends = {" ".join(words[start:]) for start in range(len(words))} | {words[-1].split("-")[-1]}
    return bare if vocabulary.TRADES & ends or pattern("trade_ends").search(words[-1]) else ""


def employer(value: str) -> str:
    """Return an employer: a name, or a kind of company or place."""
    bare = phrase(value, 6, "my our")
    words = words_in(bare)
    if not words or pattern("season").fullmatch(words[0]) or not words[0][0].isalpha():
        return ""
    is_kind = (bare != value or words[0] in ("my", "our")) and words[-1] in vocabulary.WORKPLACES
    return bare if is_kind or capitalised(bare.split()[0]) else ""


def subject_of_study(value: str) -> str:
    """Return what somebody studies."""
    odd = _UNFINISHED & set(words_in(value)) or value.lower() in vocabulary.LANGUAGES
    fits = pattern("study").search(value.lower()) and value == without_article(value)
    return phrase(value, 3) if fits and not odd else ""


def allergen(value: str) -> str:
    """Return what people are allergic to; "mornings" are a joke."""
    ends = [part.split()[-1:] for part in re.split(r"(?:, and|,| and| or) ", value.lower())]
    return phrase(value, 6, "all") if all(_ALLERGENS.intersection(end) for end in ends) else ""


def favourite(value: str) -> str:
    """Return what may be somebody's favourite."""
    title = _TITLE.fullmatch(value)
    if title:
        return title[1]
    bare = without_article(value)
    words = words_in(bare)
    if not words or words[0] in vocabulary.COMMON | _UNFINISHED or words[-1].endswith("'s"):
        return ""
    if capitalised(bare) and len(words) < 7:
        return bare
    odd = words[-1] in vocabulary.NO_TASTES or (
        len(words) > 1 and pattern("adjective").match(words[0])
    )
    return "" if odd or words[0] in vocabulary.NUMBERS else phrase(bare, 2)


def taste(value: str) -> str:
    """Return what may be liked in general, not here and now: a kind, an activity, a full name.

    A single name is that of anybody: "I love Sarah".
    """
    words = words_in(value)
    if words[:1] == ["the"] and words[1:2] and not words[2:]:
        return words[1] if words[1] in vocabulary.THE_ONLY else ""
    active = words[:1] == ["go"] or (words or [""])[0].endswith("ing")
    if not words or words[0] in vocabulary.PREPOSITIONS | {"to"}:
        return ""
    if vocabulary.NO_TASTES & {words[0], words[-1] if not active else ""}:
        return ""
    whose = (
        len(words) == 1
        and not value.islower()
        and not pattern("season").fullmatch(words[0].rstrip("s"))
    )
    if whose or value != without_article(value) or not words[0][0].isalpha():
        return ""
    if "and" in words and not vocabulary.PREPOSITIONS & set(words[: words.index("and")]):
        return ""  # "tea and cake" are two
    return phrase(value, 6, "being")


def years(value: str) -> str:
    """Return an age in years."""
    if value.isdigit():
        return value if value[0] != "0" and 4 <= int(value) <= 115 else ""
    words = value.lower().replace("-", " ").split()
    return value if vocabulary.NUMBERS.issuperset(words) and words[0] not in _SMALL else ""
