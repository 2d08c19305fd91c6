"""Statements that can be true only one way at a time: where one lives, what one's cat is called.

They are what `statements` finds, in stemmed words, so that two ways to say it are one. Pure.
"""

from foremind.domain.memory import Fact
from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_of

_ONE_VALUE = frozenset(
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
_MAX_WORDS = 4  # a longer value is a story


def facts_in(text: str) -> list[Fact]:
    """Return what `text` states of its speaker, near its beginning, that contradicts others."""
    facts = (fact_of(each) for each in statements_in(text) if each.holds)
    return list(dict.fromkeys(fact for fact in facts if fact is not None))


def fact_of(statement: Statement) -> Fact | None:
    """Return what a statement says as a fact, None where others may hold beside it."""
    value = " ".join(terms_of(statement.value))
    if not value or len(value.split()) > _MAX_WORDS:
        return None
    if statement.slot in _ONE_VALUE:
        return Fact(statement.title, value)
    if statement.slot in ("family", "pets") and statement.about:
        return Fact(f"name of {statement.about}", value)
    if statement.slot in ("likes", "dislikes"):
        return Fact(f"likes {value}", "yes" if statement.slot == "likes" else "no")
    return None
