"""Facts that have one value at a time: where somebody lives, what their cat is called. Pure.

They are the statements that `text/statements` extracts, with stemmed values, so that different
wordings compare as equal.
"""

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
    """Return the single-valued facts that the beginning of `text` states about its speaker."""
    facts = (fact_of(statement) for statement in statements_in(text, fallback) if statement.holds)
    return list(dict.fromkeys(fact for fact in facts if fact is not None))


def fact_of(statement: Statement) -> Fact | None:
    """Return a statement as a fact; None if several values may be true at once."""
    value = " ".join(terms_of(statement.value))
    if not value or len(value.split()) > _MAX_VALUE_TERMS:
        return None
    if statement.slot in _SINGLE_VALUED:
        return Fact(statement.title, value)
    if statement.slot in ("family", "pets") and statement.about:
        return Fact(f"name of {statement.about}", value)
    if statement.slot in ("likes", "dislikes"):
        return Fact(f"likes {value}", "yes" if statement.slot == "likes" else "no")
    return None
