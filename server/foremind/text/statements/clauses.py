"""What the readers of statements share: finding where one begins, and reading it to its end."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

WE = r"\b(?:i|we)(?:'m| am|'re| are|'ve been| have been)?"
HAVE = r"\b(?:i|we)(?:'ve| have)?(?: got)?"
AM = r"\bi(?:'m| am)"
NOW = r"(?:(?:now|currently|still|just|recently|finally|actually|also|only|already|mostly) )*"
VERY = r"(?:(?:really|absolutely|just|actually|do|also|still|quite|so|truly|totally) )*"
NOT = r"(?:don'?t|do not|didn't)"


@dataclass(frozen=True, slots=True)
class Statement:
    """A slot of a profile and its value as it was said.

    `about` is what a slot of many kinds is about: the colour of a favourite, the dog that has a
    name. What no longer `holds` is taken back; without a value, whatever it was.
    """

    slot: str
    value: str
    about: str = ""
    holds: bool = True

    @property
    def title(self) -> str:
        """What the value is called: "favourite colour", "home"."""
        if self.slot == "favourites":
            return f"favourite {self.about}" if self.about else "favourites"
        return f"name of {self.about}" if self.slot == "names" else self.slot

    @property
    def content(self) -> str:
        """The value, with what it is about where the title does not say so: "dog Scout"."""
        if self.slot in ("family", "pets") and self.about:
            return f"{self.about} {self.value}".strip()
        return self.value


_ENDS = frozenset(
    """and but with since because now for near so these when while than although though until
    till after before again too by lately anyway please right actually last next this every
    yesterday today tomorrow tonight itself it its him them those his their or as at in from on to
    who that here there more better very always any anymore sometimes if like we i he she they
    you my your is are was has have also ever ago still soon alone together probably haha lol
    btw""".split()  # noqa: SIM905
)
_NEW_SUBJECT = frozenset(
    """i i'm i've i'd i'll my we we're you he she they it it's that's this that the there so but
    don't please not then your our his her their""".split()  # noqa: SIM905
)
_TOKEN = re.compile(r"[\w'&%/+]+(?:[.-][\w'&%/+]+)*|[^\w\s]")
_MOST_CHARS = 80  # of a value
# No value ends with one of these.
_OPEN = frozenset(
    "and or of the a an to in for with at from by on my like about".split()  # noqa: SIM905
)
_AT_PRESENT = re.compile(r" (?:at the moment|in general|at all|for now|to be honest)$", re.I)
_ARTICLES = ("a ", "an ", "the ", "some ")


def value_of(rest: str, most: int, through: str = "") -> str:
    """Return the words of `rest` up to where the clause ends.

    Nothing where there are more than `most`: a longer value is a story.

    Args:
        through: words that end no value here, though they usually do.
    """
    return read_value(rest, most, through)[0]


def read_value(rest: str, most: int, through: str = "", ends: str = "") -> tuple[str, str]:
    """Return the same with the word, or sign, that ended it.

    Args:
        ends: words that end a value here, though they usually do not.
    """
    passing, ending = frozenset(through.split()), frozenset(ends.split())
    taken: list[str] = []
    ended = ""
    tokens = _TOKEN.findall(rest[:300])
    for place, token in enumerate(tokens):
        word = token.lower()
        ended = word
        if not token[0].isalnum():
            break
        following = tokens[place + 1].lower() if place + 1 < len(tokens) else ""
        own = word == "my" and not taken  # "I like my steak rare"
        ends_here = word in ending or (word in _ENDS and word not in passing and not own)
        if ends_here or (word in ("and", "or", "but") and following in _NEW_SUBJECT):
            break
        ended = ""
        taken.append(token)
        if len(taken) > most:
            return "", word
    while taken and taken[-1].lower() in _OPEN:
        taken.pop()
    value = _AT_PRESENT.sub("", " ".join(taken))
    return (value if len(value) <= _MOST_CHARS else ""), ended


def bare(value: str) -> str:
    for article in _ARTICLES:
        if value.lower().startswith(article):
            return value[len(article) :]
    return value


def first_of(value: str) -> str:
    return value.split(maxsplit=1)[0].lower() if value else ""


def begins(words: frozenset[str], value: str) -> bool:
    """Tell whether a value begins with one of some words, or as one that is made of two."""
    return first_of(value) in words or " ".join(value.lower().split()[:2]) in words


def either(words: frozenset[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


Found = Iterator[Statement]
Reader = Callable[[str], Found]


def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
