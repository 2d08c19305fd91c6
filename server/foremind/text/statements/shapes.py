"""What values may look like: places, names, jobs, things liked. Pure.

Each function returns a value without its article, or nothing for what cannot be one.
"""

import re

from foremind.text.proper_names import EVERYDAY_NAMES
from foremind.text.statements import vocabulary
from foremind.text.statements.vocabulary import pattern
from foremind.text.tokenization import terms_of

_WORD = r"[\w'&%/+]+(?:[.-][\w'&%/+]+)*"
_VALUE = re.compile(rf"{_WORD}(?: {_WORD})*")
_ARTICLE = re.compile(r"(?:an?|the|some) (?=\S)", re.IGNORECASE)
_TITLE = re.compile(r'"([^"]+)"')
_MAX_CHARS = 80
_ABSTRACT, _ADJECTIVE, _STUDY, _STREET, _TRADE_ENDS, _NATION = (
    pattern(name) for name in ("abstract", "adjective", "study", "street", "trade_ends", "nation")
)
_ARTICLES = frozenset(("a", "an", "the"))
_OURS = ("my", "our")


def words_in(value: str) -> list[str]:
    """Return the words of a value in lower case; none if it has other marks, or is too long."""
    return value.lower().split() if _VALUE.fullmatch(value) and len(value) <= _MAX_CHARS else []


def phrase(value: str, most: int = 4, allowed: str = "") -> str:
    """Return a noun phrase of some words: no pronoun, no verb, nothing that needs a context."""
    words = words_in(value)
    if not words or len(words) > most or words[-1] in vocabulary.NEVER_LAST:
        return ""
    plain = {word.removesuffix("'s") for word in words}
    refused = plain & vocabulary.NEVER_IN_VALUES - set(allowed.split())
    return "" if refused or words[0] in ("and", "of") else without_article(value)


def without_article(value: str) -> str:
    """Return a value without its article."""
    return _ARTICLE.sub("", value, count=1) if _ARTICLE.match(value) else value


def named(value: str) -> str:
    """Return a name: capitalised words, or a single word that is no other."""
    title = _TITLE.fullmatch(value)
    value = title[1] if title else value
    words = value.split()
    if not words_in(value) or len(words) > 4 or re.search(r"[\d/]", value):
        return ""
    first = words[1] if words[0].lower() == "the" and len(words) > 1 else words[0]
    everyday = first.lower() in EVERYDAY_NAMES and first[0].isupper()
    if first.lower() in vocabulary.NEVER_IN_VALUES | vocabulary.COMMON and not everyday:
        return ""
    if title or all(word[0].isupper() or word in vocabulary.NAME_LINKS for word in words):
        return value
    return value if len(words) == 1 < len(value) and not _ADJECTIVE.match(value) else ""


def names(value: str) -> str:
    """Return one name, or several: "Mia and Zoe"."""
    return value if all(map(named, re.split(r", and |, | and ", value))) else ""


def name_alone(value: str) -> str:
    """Return the name in "I'm Ana": a capitalised word that is no other."""
    first = value.split(maxsplit=1)[0].lower() if value else ""
    other = (
        vocabulary.MONTHS | vocabulary.DAYS | vocabulary.LANGUAGES
    ) - EVERYDAY_NAMES | vocabulary.FICTIONAL
    adjective = _ADJECTIVE.match(first) is not None and not first.endswith("ed")
    if first in other or first == "the" or adjective or (value.isupper() and len(value) < 6):
        return ""
    is_name = value[:1].isupper() and len(value) > 1 and value.count(" ") < 2 and named(value)
    return value if is_name and not nationality(value) and not trade(value) else ""


def place(value: str) -> str:
    """Return a place: a name, "a small town near Minsk", an address."""
    words, bare = words_in(value), without_article(value)
    refused = vocabulary.NEVER_IN_VALUES - set(_OURS)
    if (
        len(bare) < 2
        or not words
        or len(words) > 7
        or refused & set(words)
        or bare.lower() in vocabulary.FIELDS
    ):
        return ""
    if words[0][0].isdigit():
        is_address = _STREET.match(value) or re.fullmatch(r"\d+\w?(?: [A-Z]\S*){2,}", value)
        return value if is_address else ""
    links = vocabulary.PLACE_LINKS | (vocabulary.PARTS if words[0] in vocabulary.PARTS else set())
    proper = [word for word in bare.split() if word.lower() not in links]
    if proper and all(word[0].isupper() for word in proper):
        return "" if words_in(bare)[0] in vocabulary.COMMON | vocabulary.DAYS else bare
    if bare != value or words[0] in _OURS or len(words) > 3:
        is_described = vocabulary.PLACES & set(words) and words[-1] not in links
        return bare if is_described and not vocabulary.FICTION & set(words) else ""
    odd = (vocabulary.PREPOSITIONS | _ARTICLES) & set(words) - (links - _ARTICLES)
    if odd or (vocabulary.COMMON | vocabulary.NO_PLACE) & set(words) - vocabulary.PLACES:
        return ""
    return "" if any(map(_ABSTRACT.match, words)) else bare


def place_on(value: str) -> str:
    """Return a place that one lives on, or at: not "coffee"."""
    return place(value) if value != without_article(value) or not value.islower() else ""


def trade(value: str) -> str:
    """Return a value that ends with a trade, as "freelance illustrator" does."""
    bare = phrase(value, 5)
    words = bare.lower().split()
    if not words or words[0] in vocabulary.PRAISE or words[0].endswith("ing"):
        return ""
    if (_ARTICLES | vocabulary.PREPOSITIONS | {"and"}) & set(words):
        return ""
    ends = {" ".join(words[start:]) for start in range(len(words))} | {words[-1].split("-")[-1]}
    return bare if vocabulary.TRADES & ends or _TRADE_ENDS.search(words[-1]) else ""


def any_job(value: str) -> str:
    """Return what somebody says they work as."""
    bare = phrase(value, 5, "of")
    odd = (
        bare.lower() in vocabulary.COMMON
        or bare.endswith("player")
        or re.search(" (?:and|as) ", bare)
    )
    return "" if odd else bare


def field(value: str) -> str:
    """Return a field of work."""
    return value if value.lower() in vocabulary.FIELDS and value != "it" else ""


def employer(value: str) -> str:
    """Return an employer: a name, or a kind of company or place."""
    bare = phrase(value, 7, "my our")
    words = words_in(bare)
    if not words or words[0][0].isdigit() or words[0] in vocabulary.NUMBERS:
        return ""
    if _ADJECTIVE.fullmatch(bare) or (vocabulary.COMMON | vocabulary.NO_PLACE) & set(words) - {
        "hospital"
    }:
        return ""
    if words[0] in _OURS:
        return bare if re.search(r"'s? [\w ]+$", bare) else ""
    return bare if bare != value or not bare.islower() or len(words) < 3 else ""


def subject_of_study(value: str) -> str:
    """Return what somebody studies."""
    bare = phrase(value, 4)
    fits = _STUDY.search(value.lower()) or value[0].isupper()
    odd = vocabulary.PREPOSITIONS & set(words_in(value)) or bare.lower() in vocabulary.LANGUAGES
    return bare if fits and bare == value and not odd else ""


def allergen(value: str) -> str:
    """Return what people are allergic to; "mornings" are a joke."""
    known = vocabulary.ALLERGENS | vocabulary.NOT_TOLERATED | vocabulary.ANIMALS_MANY
    ends = [part.split()[-1:] for part in re.split(r"(?:, and|,| and| or) ", value.lower())]
    return phrase(value, 6, "all") if all(known.intersection(end) for end in ends) else ""


def food(value: str) -> str:
    """Return what is not eaten or drunk."""
    odd = (vocabulary.NO_MEALS | vocabulary.PREPOSITIONS) & set(words_in(value))
    return "" if odd else phrase(re.sub(r"^any ", "", value), 3)


def known_food(value: str) -> str:
    """Return a food that many avoid; other things are avoided as well."""
    words = words_in(re.sub(r"^any ", "", value))
    return " ".join(words) if words and words[-1] in vocabulary.NOT_TOLERATED else ""


def favourite(value: str) -> str:
    """Return what may be somebody's favourite."""
    title = _TITLE.fullmatch(value)
    bare = title[1] if title else without_article(value)
    words = words_in(bare)
    if title or not words:
        return bare if title else ""
    if (
        {"to", *_OURS} & set(words)
        or words[-1] in vocabulary.EMPTY
        or words[0] in vocabulary.PREPOSITIONS | vocabulary.EMPTY
    ):
        return ""
    if len(words) == 1 and (bare in vocabulary.COMMON or re.fullmatch(r"[a-z]{3,}ed", bare)):
        return ""
    counts = len(words) > 1 and words[0] in vocabulary.NUMBERS and bare.islower()
    if counts or words[-1] in vocabulary.IRONIC or words[-1].endswith("'s"):
        return ""
    allowed = "that so all no you i me we be" if bare[0].isupper() else ""
    return phrase(bare, 6, f"my {allowed}")


def taste(value: str) -> str:
    """Return what may be liked in general, not here and now."""
    verb = value.removeprefix("to ")
    words = words_in(verb)
    if not words or vocabulary.NO_TASTES & {words[0], words[-1]} or not terms_of(verb):
        return ""
    if verb != value:
        fine = words[0] not in vocabulary.NO_INFINITIVES and phrase(verb, 7, "my our have be")
        return verb if fine and words[0] != "be" else ""
    numbers = vocabulary.NUMBERS | {"first", "second", "third"}
    counted = any(word in numbers or word[0].isdigit() for word in words)
    if counted or not _is_general(words, lower=value.islower()):
        return ""
    joined = words.index("and") if "and" in words else 0
    if joined and not vocabulary.PREPOSITIONS & set(words[:joined]):
        return ""  # "tea and cake" are two
    return phrase(value, 7, "my our being")


def _is_general(words: list[str], *, lower: bool) -> bool:
    """Distinguish "the ocean" and "my garden" from "the energy" and "my sister"."""
    first, last = words[0], words[-1]
    if first == "the" and lower:
        return last in vocabulary.THE_ONLY or (words[1] in vocabulary.SENSES and "of" in words)
    if first == "my":
        people = vocabulary.KIN | vocabulary.KIN_MANY | vocabulary.ANIMALS | vocabulary.PERSONS
        return len(words) == 2 and not people & set(words)
    if first in ("a", "an"):
        return len(words) > 2 and words[1] in vocabulary.TASTE_ADJECTIVES
    unfinished = len(words) == 1 and first in vocabulary.NEEDS_AN_OBJECT
    return not unfinished and first not in vocabulary.NUMBERS | {"our"} and not first[0].isdigit()


def goal(value: str) -> str:
    """Return what somebody wants to reach."""
    value = value.removeprefix("to ").replace("learn how to ", "learn to ")
    words = words_in(value)
    if words[:1] == ["be"] and words[1:2] not in (["a"], ["an"], ["more"], ["better"]):
        return ""
    odd = (
        len(words) < 2
        or "out" in words
        or words[0] in vocabulary.NO_AIMS
        or vocabulary.FICTION & set(words)
    )
    return value if not odd and phrase(value, 9, "my our own more be have better") else ""


def preference(value: str) -> str:
    """Return what is preferred."""
    words = words_in(value)
    if (
        not words
        or words[0] in ("not", "to")
        or (len(words) == 1 and words[0] in vocabulary.NEEDS_AN_OBJECT)
        or (vocabulary.NO_PREFERENCES | vocabulary.DAYS) & set(words)
    ):
        return ""
    return value if "/" not in value and phrase(value, 9, "my our being over than") else ""


def nationality(value: str) -> str:
    """Return a nationality: "Colombian"."""
    guessed = _NATION.fullmatch(value) and value.lower() not in vocabulary.NO_NATIONALITIES
    return value if guessed or value.lower() in vocabulary.NATIONALITIES else ""


def years(value: str) -> str:
    """Return an age in years."""
    if value.isdigit():
        return value if 10 <= int(value) <= 115 else ""
    words = value.lower().replace("-", " ").split()
    is_number = vocabulary.NUMBERS.issuperset(words) and not vocabulary.SMALL & set(words[:1])
    return value if is_number and len(words) < 3 else ""


def years_old(value: str) -> str:
    """Return an age that was said to be one, which may be that of a child."""
    return value if value.isdigit() and 4 <= int(value) <= 115 else years(value)
