"""Finds what a message asks to have pinned: "save this: the gate code is 4711". Pure."""

import re

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
_BEFORE_MARK = re.compile(
    rf"\s*(?:{_all(before_clause=False)})\s*(?P<mark>[:：,，、—–-]){_WHAT}",
    re.IGNORECASE | re.DOTALL,
)
_BEFORE_CLAUSE = re.compile(
    rf"\s*(?:{_all(before_clause=True)})(?=\w){_WHAT}", re.IGNORECASE | re.DOTALL
)
# What a clause begins with: "note that my", "remember that Ines"; not "save that seat".
_CLAUSE_STARTS = frozenset[str]().union(
    *(language.stop_words | language.first_person for language in LANGUAGES.values())
)


def text_to_pin(text: str) -> str | None:
    """Return what a message asks to have pinned, None where it asks for nothing of the kind."""
    marked, clause = _BEFORE_MARK.match(text), _BEFORE_CLAUSE.match(text)
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
