"""Finds what a message asks to have pinned: "save this: the gate code is 4711". Pure."""

import re
from functools import cache

from foremind.text.languages.language_files import LANGUAGES, Language, any_of, phrase_pattern
from foremind.text.sentences import QUESTION_MARKS

_CLAUSE_FOLLOWS = " …"
_WORD = re.compile(r"[^\W_]+")


def _asked(language: Language, *, before_clause: bool) -> str:
    """Return a pattern of how a language asks to have something saved, which stands after it."""
    phrases = (
        phrase_pattern(pin.removesuffix(_CLAUSE_FOLLOWS))
        for pin in language.pins
        if pin.endswith(_CLAUSE_FOLLOWS) == before_clause
    )
    fillers = any_of(language.fillers)
    asked = (
        rf"(?:(?:{fillers})[\s,，、]*){{0,3}}(?:[^\W_]+[,，]\s*)?(?:{'|'.join(phrases) or '(?!)'})"
    )
    if before_clause:
        return asked
    ending = any_of({*language.fillers, *language.pin_endings})
    return rf"{asked}(?:[\s,，、]*(?:{ending})(?!\w))*"


def _all(*, before_clause: bool) -> str:
    return "|".join(
        _asked(language, before_clause=before_clause) for language in LANGUAGES.values()
    )


_WHAT = r"\s*(?P<what>\S.*)"
# What a clause begins with: "note that my", "remember that Ines"; not "save that seat".
_CLAUSE_STARTS = frozenset[str]().union(
    *(language.stop_words | language.first_person for language in LANGUAGES.values())
)


@cache  # takes a fifth of a second
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what asks for the words after a mark, and for the clause that follows."""
    before_mark, before_clause = _all(before_clause=False), _all(before_clause=True)
    flags = re.IGNORECASE | re.DOTALL
    return (
        re.compile(rf"\s*(?:{before_mark})\s*(?P<mark>[:：,，、—–-]){_WHAT}", flags),
        re.compile(rf"\s*(?:{before_clause})(?=\w){_WHAT}", flags),
    )


def text_to_pin(text: str) -> str | None:
    """Return what a message asks to have pinned, None where it asks for nothing of the kind."""
    marked, clause = (pattern.match(text) for pattern in _patterns())
    if marked and (not clause or marked.start("what") >= clause.start("what")):
        what = marked["what"].strip()
        is_said = marked["mark"] in ":：" or not what.endswith(QUESTION_MARKS)
    elif clause:
        what = clause["what"].strip()
        first = _WORD.match(what)
        is_start = first and (first[0][0].isupper() or first[0].lower() in _CLAUSE_STARTS)
        is_said = bool(is_start) and not what.endswith(QUESTION_MARKS)
    else:
        return None
    return what if is_said else None
