"""Facts that have one value at a time: where somebody lives, what their cat is called. Pure.

They are the statements that `text/statements` extracts, with stemmed values, so that different
wordings compare as equal. Of two memories with different values of a fact, the older is superseded.
"""

from collections.abc import Callable, Iterable, Iterator

from foremind.domain.memory import Fact
from foremind.text.languages.language_files import ENGLISH
from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_of

_SINGLE_VALUED = frozenset(
    {
        "name",
        "pronouns",
        "age",
        "birthday",
        "home",
        "job",
        "employer",
        "status",
        "favourites",
        "names",
    }
)
_MAX_VALUE_TERMS = 4  # a longer value is a story, not a fact


def facts_in(text: str, fallback: str = ENGLISH) -> list[Fact]:
    """Return what the beginning of `text` states about its speaker, or says is no longer so.

    That is the value that a slot has, and of each value whether it holds ("home porto": "yes"). So
    "I left Porto" contradicts "I live in Porto" and nothing else, and "I quit my job" any job.
    """
    return _facts(
        statements_in(text, fallback),
        lambda statement: (*_values(statement), *_presence(statement)),
    )


def values_of(statements: Iterable[Statement]) -> list[Fact]:
    """Return the values alone that statements give slots."""
    return _facts(statements, _values)


def _facts(
    statements: Iterable[Statement], of: Callable[[Statement], Iterable[Fact]]
) -> list[Fact]:
    short = (
        statement for statement in statements if len(terms_of(statement.value)) <= _MAX_VALUE_TERMS
    )
    return list(dict.fromkeys(fact for statement in short for fact in of(statement)))


def _values(statement: Statement) -> Iterator[Fact]:
    value = " ".join(terms_of(statement.value))
    if statement.slot in ("likes", "dislikes"):
        likes = "yes" if statement.slot == "likes" else "no"
        yield Fact(f"likes {value}", likes if statement.holds else f"not {likes}")
    elif statement.slot in _SINGLE_VALUED and (statement.holds or not value):
        yield Fact(statement.title, value or "none")
    elif value and statement.about and statement.holds:
        yield Fact(f"name of {statement.about}", value)


def _presence(statement: Statement) -> Iterator[Fact]:
    if statement.slot in ("likes", "dislikes"):
        return
    about = "" if statement.slot == "favourites" else statement.about
    for part in (about, statement.value):
        if words := " ".join(terms_of(part)):
            yield Fact(f"{statement.title} {words}", "yes" if statement.holds else "no")
