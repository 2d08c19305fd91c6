"""What somebody does: job, employer, studies. Pure."""

from foremind.text.statements import vocabulary as known
from foremind.text.statements.clauses import (
    AM,
    NOT,
    NOW,
    WE,
    Found,
    Statement,
    bare,
    begins,
    compiled,
    first_of,
    value_of,
)

_WORKS_AS = compiled(rf"{WE} {NOW}(?:work|working|employed) as (?:an? |the )?")
_NEW_JOB = compiled(
    r"\b(?:i|i've) (?:just )?(?:got|found|have|took|started) (?:a |my )?(?:new )?job as (?:an? )?|"
    r"\bi(?:'ve)? (?:just )?(?:became|become) (?:an? )"
)
_IS_A = compiled(rf"{AM} {NOW}(?:working as )?an? ")
_BY_TRADE = compiled(r"\bi (?P<does>[\w' ]{3,40}?) for a living\b")
_IN_FIELD = compiled(rf"{WE} {NOW}(?:work|working) in ")
_STANDING = compiled(rf"{AM} {NOW}(?P<is>{'|'.join(sorted(known.STANDING))})\b")
_EMPLOYED = compiled(
    rf"(?P<gone>\bi(?:'m)? (?:{NOT}|no longer|not) {NOW}work(?:ing)? (?:for|at) )|"
    rf"(?:{WE} {NOW}(?:work|working)|\bi(?:'ve| have)? {NOW}(?:started|began) (?:working|work)) "
    r"(?:for|at) "
)
_STUDIES = compiled(
    rf"\b(?:i|i'm|i am) {NOW}(?:study|studying|majoring in|(?:doing|taking|doing my) an? "
    r"(?:degree|master|masters|master's|phd|bachelor|course) in) "
)
_NO_STUDIES = frozenset(
    """for tonight hard to at in a lot together every all more today until right my your this that
    the it too very now with there here late alone well on so best better""".split()  # noqa: SIM905
)


def _trade(value: str) -> str:
    """Return a value that ends as a trade does: "freelance illustrator"."""
    lower = value.lower()
    is_trade = any(lower == each or lower.endswith(f" {each}") for each in known.TRADES)
    return value if is_trade else ""


def jobs(clause: str) -> Found:
    for match in _WORKS_AS.finditer(clause):
        value = value_of(clause[match.end() :], 4)
        if value and first_of(value) not in ("much", "hard", "i", "fast", "usual"):
            yield Statement("job", bare(value))
    for match in _NEW_JOB.finditer(clause):
        is_job = "job" in match[0].lower()
        value = value_of(clause[match.end() :], 4)
        if value and (is_job or _trade(value)):
            yield Statement("job", bare(value))
    for match in _IS_A.finditer(clause):
        value = _trade(value_of(clause[match.end() :], 4))
        if value:
            yield Statement("job", value)
    for match in _BY_TRADE.finditer(clause):
        if first_of(match["does"]) not in ("don't", "do", "never", "work"):
            yield Statement("job", match["does"].strip())
    for match in _STANDING.finditer(clause):
        yield Statement("job", bare(match["is"]))
    for match in _IN_FIELD.finditer(clause):
        value = value_of(clause[match.end() :], 3)
        if value.lower() in known.FIELDS:
            yield Statement("job", value)


def employers(clause: str) -> Found:
    for match in _EMPLOYED.finditer(clause):
        value = value_of(clause[match.end() :], 6, through="in of and")
        plain = bare(value)
        if plain and not begins(known.NO_EMPLOYERS, plain) and not plain[0].isdigit():
            yield Statement("employer", plain, holds=match["gone"] is None)


def studies(clause: str) -> Found:
    for match in _STUDIES.finditer(clause):
        value = value_of(clause[match.end() :], 3)
        if value and first_of(value) not in _NO_STUDIES and value.lower() not in known.LANGUAGES:
            yield Statement("studies", value)
