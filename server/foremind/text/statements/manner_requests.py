"""Requests about how the companion is to speak: "keep answers short". Pure."""

import re

from foremind.text.statements.clauses import Statement
from foremind.text.statements.vocabulary import REQUESTS, compiled, filled_in, pattern

_REQUEST = compiled(filled_in("<request>") % filled_in(f"(?:{'|'.join(REQUESTS)})"))
# "Be honest, ..." asks for an answer rather than for a manner.
_MOMENTARY, _CALL_ME = pattern("momentary"), pattern("call_me")
_MAX_WORDS = 12


def requests_in(clause: str) -> tuple[Statement, ...]:
    """Return what a clause asks of the companion's manner, and a name that it does not want."""
    match = _REQUEST.fullmatch(clause)
    if match is None or len(match["value"].split()) > _MAX_WORDS or _MOMENTARY.fullmatch(clause):
        return ()
    value = re.sub(r"^i (?:would )?prefer ", "", match["value"], flags=re.IGNORECASE)
    value = re.sub(r"\bdo not\b", "don't", value, flags=re.IGNORECASE)
    statement = Statement("manner", value[:1].lower() + value[1:])
    called = _CALL_ME.search(value)
    if called is None or value.lower().startswith("always"):
        return (statement,)
    return (statement, Statement("name", called["name"], holds=False))
