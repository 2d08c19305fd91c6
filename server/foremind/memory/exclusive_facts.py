"""Facts that have one value at a time: where somebody lives, what their cat is called. Pure.

They are the statements that `text/statements` extracts, with stemmed values, so that different
wordings compare as equal. Of two memories with different values of a fact, the older is superseded.
"""

from collections.abc import Iterator

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
    """Return what the beginning of `text` states about its speaker, or says is no longer so."""
    facts = (fact for statement in statements_in(text, fallback) for fact in _facts_of(statement))
    return list(dict.fromkeys(facts))


def _facts_of(statement: Statement) -> Iterator[Fact]:
    """Yield the value that a slot has, and of each value whether it holds: "home porto": "yes".

    So "I left Porto" contradicts "I live in Porto" and nothing else, and "I quit my job" any job.
    """
    value = " ".join(terms_of(statement.value))
    if len(value.split()) > _MAX_VALUE_TERMS:
        return
    if statement.slot in ("likes", "dislikes"):
        likes = "yes" if statement.slot == "likes" else "no"
        yield Fact(f"likes {value}", likes if statement.holds else f"not {likes}")
        return
    if statement.slot in _SINGLE_VALUED and (statement.holds or not value):
        yield Fact(statement.title, value or "none")
    if value and statement.about and statement.slot in ("family", "pets") and statement.holds:
        yield Fact(f"name of {statement.about}", value)
    for part in filter(None, (" ".join(terms_of(statement.about)), value)):
        if statement.slot != "favourites" or part == value:
            yield Fact(f"{statement.title} {part}", "yes" if statement.holds else "no")
