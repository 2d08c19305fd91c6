"""Statements about occupation: job, employer, studies. Pure."""

from foremind.text.statements import vocabulary
from foremind.text.statements.clauses import (
    AM,
    NOT,
    NOW,
    WE,
    Statement,
    Statements,
    begins_with,
    compiled,
    first_word,
    value_of,
    without_article,
)

_WORKS_AS = compiled(rf"{WE} {NOW}(?:work|working|employed) as (?:an? |the )?")
_NEW_JOB = compiled(
    r"\b(?:i|i've) (?:just )?(?:got|found|have|took|started) (?:a |my )?(?:new )?job as (?:an? )?|"
    r"\bi(?:'ve)? (?:just )?(?:became|become) (?:an? )"
)
_IS_A = compiled(rf"{AM} {NOW}(?:working as )?an? ")
_BY_TRADE = compiled(r"\bi (?P<does>[\w' ]{3,40}?) for a living\b")
_IN_FIELD = compiled(rf"{WE} {NOW}(?:work|working) in ")
_STANDING = compiled(rf"{AM} {NOW}(?P<is>{'|'.join(sorted(vocabulary.STANDING))})\b")
_EMPLOYED = compiled(
    rf"(?P<negated>\bi(?:'m)? (?:{NOT}|no longer|not) {NOW}work(?:ing)? (?:for|at) )|"
    rf"(?:{WE} {NOW}(?:work|working)|\bi(?:'ve| have)? {NOW}(?:started|began) (?:working|work)) "
    r"(?:for|at) "
)
_NO_EMPLOYER_ENDS = (" good", " cause", " pace", " speed", " rate")
_STUDIES = compiled(
    rf"\b(?:i|i'm|i am) {NOW}(?:study|studying|majoring in|(?:doing|taking|doing my) an? "
    r"(?:degree|master|masters|master's|phd|bachelor|course) in) "
)
_NO_STUDIES = frozenset(
    """for tonight hard people maps to at in a lot together every all more today until right my
    your this that the it too very now with there here late alone well on so best better""".split()  # noqa: SIM905
)


def _trade(value: str) -> str:
    """Return a value if it ends with a trade, as "freelance illustrator" does; else nothing."""
    lower = value.lower()
    if first_word(lower) in vocabulary.PRAISE:  # "a terrible cook" is none by trade
        return ""
    is_trade = any(lower == trade or lower.endswith(f" {trade}") for trade in vocabulary.TRADES)
    return value if is_trade else ""


def jobs(clause: str) -> Statements:
    """Extract what the speaker does for a living."""
    for match in _WORKS_AS.finditer(clause):
        value = value_of(clause[match.end() :], 4)
        if value and first_word(value) not in ("much", "hard", "i", "fast", "usual"):
            yield Statement("job", without_article(value))
    for match in _NEW_JOB.finditer(clause):
        is_job = "job" in match[0].lower()
        value = value_of(clause[match.end() :], 4)
        if value and (is_job or _trade(value)):
            yield Statement("job", without_article(value))
    for match in _IS_A.finditer(clause):
        value = _trade(value_of(clause[match.end() :], 4))
        if value:
            yield Statement("job", value)
    for match in _BY_TRADE.finditer(clause):
        if first_word(match["does"]) not in ("don't", "do", "never", "work"):
            yield Statement("job", match["does"].strip())
    for match in _STANDING.finditer(clause):
        yield Statement("job", without_article(match["is"]))
    for match in _IN_FIELD.finditer(clause):
        value = value_of(clause[match.end() :], 3)
        if value.lower() in vocabulary.FIELDS:
            yield Statement("job", value)


def employers(clause: str) -> Statements:
    """Extract for whom the speaker works, or no longer works."""
    for match in _EMPLOYED.finditer(clause):
        value = value_of(clause[match.end() :], 6, through="in of and")
        employer = without_article(value)
        refused = begins_with(employer, vocabulary.NO_EMPLOYERS) or employer.lower().endswith(
            _NO_EMPLOYER_ENDS
        )
        if employer and not refused and not employer[0].isdigit():
            yield Statement("employer", employer, holds=match["negated"] is None)


def studies(clause: str) -> Statements:
    """Extract what the speaker studies."""
    for match in _STUDIES.finditer(clause):
        value = value_of(clause[match.end() :], 3)
        is_language = value.lower() in vocabulary.LANGUAGES
        if value and first_word(value) not in _NO_STUDIES and not is_language:
            yield Statement("studies", value)
