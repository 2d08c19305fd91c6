"""What the extractors of statements share: pattern parts, and reading a value to its end."""

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

    `about` says what a slot of many kinds refers to: "colour" for a favourite, "dog" for a pet. A
    statement that no longer `holds` retracts the value, or any value if it has none.
    """

    slot: str
    value: str
    about: str = ""
    holds: bool = True

    @property
    def title(self) -> str:
        """The title of the value: "favourite colour", "home"."""
        if self.slot == "favourites":
            return f"favourite {self.about}" if self.about else "favourites"
        return f"name of {self.about}" if self.slot == "names" else self.slot

    @property
    def content(self) -> str:
        """The value, and what it is about unless the title says so: "dog Scout"."""
        if self.slot in ("family", "pets") and self.about:
            return f"{self.about} {self.value}".strip()
        return self.value


_VALUE_ENDS = frozenset(
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
_MAX_VALUE_CHARS = 80
# Words that no value ends with.
_NEVER_LAST = frozenset(
    """and or of the a an to in for with at from by on my like about""".split()  # noqa: SIM905
)
_TRAILING_ADVERBIAL = re.compile(
    r" (?:at the moment|in general|at all|for now|to be honest)$", re.I
)
_ARTICLES = ("a ", "an ", "the ", "some ")


def value_of(text: str, max_words: int, through: str = "") -> str:
    """Return the words at the beginning of `text` up to where the clause ends.

    Empty if there are more than `max_words`: a longer value is a story.

    Args:
        through: words that do not end a value here, though they usually do.
    """
    return read_value(text, max_words, through)[0]


def read_value(text: str, max_words: int, through: str = "", ends: str = "") -> tuple[str, str]:
    """Return the same, and the word or punctuation mark that ended it.

    Args:
        ends: words that end a value here, though they usually do not.
    """
    passing, ending = frozenset(through.split()), frozenset(ends.split())
    value_tokens: list[str] = []
    terminator = ""
    tokens = _TOKEN.findall(text[:300])
    for position, token in enumerate(tokens):
        word = token.lower()
        terminator = word
        if not token[0].isalnum():
            break
        following = tokens[position + 1].lower() if position + 1 < len(tokens) else ""
        own = word == "my" and not value_tokens  # "I like my steak rare"
        ends_here = word in ending or (word in _VALUE_ENDS and word not in passing and not own)
        if ends_here or (word in ("and", "or", "but") and following in _NEW_SUBJECT):
            break
        terminator = ""
        value_tokens.append(token)
        if len(value_tokens) > max_words:
            return "", word
    while value_tokens and value_tokens[-1].lower() in _NEVER_LAST:
        value_tokens.pop()
    value = _TRAILING_ADVERBIAL.sub("", " ".join(value_tokens))
    return (value if len(value) <= _MAX_VALUE_CHARS else ""), terminator


def without_article(value: str) -> str:
    """Return a value without its article."""
    for article in _ARTICLES:
        if value.lower().startswith(article):
            return value[len(article) :]
    return value


def first_word(value: str) -> str:
    """Return the first word of a value in lower case."""
    return value.split(maxsplit=1)[0].lower() if value else ""


def begins_with(value: str, words: frozenset[str]) -> bool:
    """Return whether a value begins with one of some words, which may consist of two."""
    return first_word(value) in words or " ".join(value.lower().split()[:2]) in words


def either(words: frozenset[str]) -> str:
    """Return a pattern that matches any of some words."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


Statements = Iterator[Statement]
Reader = Callable[[str], Statements]


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that ignores case."""
    return re.compile(pattern, re.IGNORECASE)
