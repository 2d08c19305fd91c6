"""The clauses that are understood, as a table: their words, and the shape of their value. Pure.

A clause is understood if one row matches all of it, what `tail` allows after it included, and its
value has the shape that the row demands. The rows are lines of `english.txt`, see `_construction`,
and are tried in their order on clauses without adverbs and negation.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

from foremind.text.statements import shapes, vocabulary
from foremind.text.statements.clauses import Polarity, Statement, canonical
from foremind.text.statements.vocabulary import compiled, filled_in, pattern

Statements = Iterable[Statement]
Shape = Callable[[str], str]
Match = re.Match[str]
Maker = Callable[[Match, Polarity], Statements]

_SEVERAL = frozenset("languages family pets health diet likes dislikes goals".split())  # noqa: SIM905
_TASTES = frozenset(("likes", "dislikes", "prefers", "goals"))
# Slots of which people joke: with a laugh, nothing is read.
_JESTED = _TASTES | {"home", "origin", "job", "favourites"}
_PEOPLE = vocabulary.KIN | vocabulary.KIN_MANY | {"friend"}
_ANIMALS = vocabulary.ANIMALS | vocabulary.ANIMALS_MANY
_NOT_OWNED = vocabulary.NOT_REAL | vocabulary.PREPOSITIONS | {"and"}
_MANY = vocabulary.KIN_MANY | vocabulary.ANIMALS_MANY


@dataclass(frozen=True, slots=True)
class ClauseReading:
    """What a clause states, and its words before the value, with which another value may follow."""

    statements: tuple[Statement, ...]
    frame: str = ""
    value: str = ""
    polarity: Polarity = "yes"

    @property
    def is_taste(self) -> bool:
        """Whether it says what somebody likes, dislikes or wants."""
        return any(statement.slot in _TASTES for statement in self.statements)

    @property
    def shares_frame(self) -> bool:
        """Whether "and ..." may add to it: "I am 31 and a nurse", "I like tea and cake"."""
        several = bool(self.statements) and self.statements[0].slot in _SEVERAL
        whole = vocabulary.PREPOSITIONS.isdisjoint(self.value.lower().split())
        return whole and (several or self.frame.endswith((" am ", " have ")))


@dataclass(frozen=True, slots=True)
class Construction:
    """A row of the table; `make` returns nothing where the clause is not understood after all.

    `words` is its pattern without the tail.
    """

    words: re.Pattern[str]
    make: Maker
    required: frozenset[Polarity]

    def read(self, clause: str, polarity: Polarity) -> ClauseReading | None:
        """Return what a canonical clause states if this row matches all of it."""
        match = self.words.match(clause) and _with_tail(self.words).fullmatch(clause)
        if match is None:
            return None
        tail = match["tail"]
        if pattern("of_a_day").search(tail) and not pattern("event").match(clause):
            return None
        ends = pattern("anymore").search(tail) is not None
        said: Polarity = "ended" if ends else polarity
        if (ends and polarity == "yes") or said not in self.required:
            return None
        statements = tuple(self.make(match, said))
        slot = statements[0].slot if statements else ""
        of_moment = slot in _TASTES and pattern("moment").search(tail)
        if not slot or of_moment or (slot in _JESTED and pattern("laughs").search(tail)):
            return None
        value = match.groupdict().get("value") or ""
        frame = re.sub(r"\b(?:an?|the) $", "", clause[: match.start("value")]) if value else ""
        beside = tuple(_named_beside(tail)) if polarity == "yes" else ()
        reworded = (other for statement in statements for other in _reworded(statement))
        return ClauseReading((*statements, *reworded, *beside), frame, value, polarity)


def slot_of(noun: str) -> str:
    """Return the slot of what somebody has: a relative, an animal, or another thing."""
    words = noun.lower().split()
    if words[-1] in _PEOPLE:
        return "family"
    return "pets" if _ANIMALS & {words[-1], " ".join(words[-2:])} else "names"


def _reworded(statement: Statement) -> Iterator[Statement]:
    """Yield an allergy that has ended by its other name: "nuts allergy", "allergic to nut"."""
    allergy = re.fullmatch(r"allergic to (.+)|allergy to (.+)|(.+) allergy", statement.value, re.I)
    if statement.slot == "health" and allergy and not statement.holds:
        to, *of = allergy.groups()
        other = f"{to} allergy" if to else f"allergic to {of[0] or of[1]}"
        yield replace(statement, value=other)


def _has(match: Match, polarity: Polarity) -> Statements:
    """Read "a dog", "two brothers", "a cat called Biscuit"."""
    owned = pattern("owned").fullmatch(match["value"])
    if owned is None or _NOT_OWNED.intersection(owned["kind"].lower().split()):
        return
    count = (owned["count"] or "").lower()
    name = (owned["name"] or owned["beside"] or "").strip('"')
    if (name and not shapes.names(name)) or not (count or owned["noun"].lower() in _MANY):
        return
    prefix = "" if count in ("", "a", "an", "one", "any", "no", "some") else f"{count} "
    noun = f"{owned['kind']}{owned['noun']}".lower()
    if shapes.phrase(noun):
        holds = polarity == "yes" and count != "no"
        yield Statement(slot_of(noun), name, prefix + noun, holds=holds)


def _called(match: Match, polarity: Polarity) -> Statements:
    noun, name = match["noun"].lower(), shapes.names(match["value"])
    if name and not vocabulary.NOT_REAL.intersection(noun.split()):
        yield Statement(slot_of(noun), name, noun, holds=polarity == "yes")


def _possessed(match: Match, polarity: Polarity) -> Statements:
    """Read "my wife Anneke is a doctor", whatever else it says; not "my wife is Irish"."""
    return () if pattern("tainted").search(match[0]) else _called(match, polarity)


def _named_beside(tail: str) -> Iterator[Statement]:
    """Return whom a tail names: "with my husband Jens and our dog Sixten"."""
    for match in pattern("named_noun").finditer(tail):
        yield Statement(slot_of(match["noun"]), match["name"], match["noun"].lower())


def _gone(match: Match, _: Polarity) -> Statements:
    said = match.groupdict()  # only who has been a partner ends without saying what they are
    noun, name, status = (said.get("noun") or "").lower(), match["value"] or "", said.get("status")
    yield Statement(slot_of(noun) if noun else "family", name, noun, holds=False)
    if not noun or noun in vocabulary.SPOUSES:
        yield Statement("status", status or "", holds=bool(status))


def _mistaken(match: Match, _: Polarity) -> Statements:
    """Read "it's Rob, not Bob", whoever that is."""
    if shapes.capitalised(match["value"]):
        for slot in ("name", "family", "pets"):
            yield Statement(slot, match["wrong"], holds=False, instead=match["value"])


def _job(match: Match, polarity: Polarity) -> Statements:
    job, where, origin = shapes.trade(match["value"]), match["where"] or "", match["from"] or ""
    works_at = match["at"] in ("at", "for") and shapes.employer(where)
    is_place = not (" " in where or where.isupper()) and shapes.place(where)
    is_kind = where.lower() in vocabulary.FIELDS or shapes.employer(where.lower())
    known = works_at or is_place or is_kind or not where
    if not job or not known or (origin and not shapes.place(origin)):
        return
    holds = polarity == "yes"
    yield Statement("job", job, holds=holds)
    if works_at and shapes.capitalised(works_at) and not job.endswith("student"):
        yield Statement("employer", works_at, holds=holds)
    if origin:
        yield Statement("origin", shapes.place(origin))


def _employed(match: Match, polarity: Polarity) -> Statements:
    employer, job = shapes.employer(match["value"]), shapes.trade(match["as"] or "")
    if employer and (job or not match["as"]):
        yield Statement("employer", employer, holds=polarity == "yes")
        if job:
            yield Statement("job", job, holds=polarity == "yes")


def _moved(match: Match, _: Polarity) -> Statements:
    source = match["from"] or match["out"] or ""
    to, left = shapes.place(match["value"]), shapes.place(source)
    if to and (left or not source):
        if left:
            yield Statement("home", left, holds=False)
        yield Statement("home", to)


def _likes(match: Match, polarity: Polarity) -> Statements:
    # A capital letter tells nothing at the start, and who has fans is no friend.
    free = match.start("value") == 0 or " fan of " in match[0]
    value = re.sub(r"^to (?=\w+$|go \w+ing\b)", "", match["value"])
    ironic = polarity == "yes" and value.lower().split()[0] in vocabulary.IRONIC
    if not ironic and shapes.taste(value.lower() if free else value):
        value = shapes.without_article(value)
        slot = "dislikes" if polarity in ("no", "ended") else "likes"
        yield Statement(slot, value, holds=polarity != "past")


def _favourite(match: Match, polarity: Polarity) -> Statements:
    about, value = match["about"].lower().replace("color", "colour"), match["value"]
    active = about.startswith(("sport", "game", "holiday"))
    happens = not active and value.islower() and pattern("state").match(value)
    value = "" if happens else shapes.favourite(value)
    if value and about.split()[-1] not in value.lower().split():
        yield Statement("favourites", value, about, holds=polarity == "yes")


def _one_of(words: frozenset[str]) -> Shape:
    return lambda value: value if value.lower() in words else ""


def _prefixed(prefix: str, shape: Shape) -> Shape:
    """Return a shape that says what is so of a value: "no meat"."""
    return lambda value: f"{prefix} {shapes.without_article(value)}" if shape(value) else ""


_SHAPES: dict[str, Shape] = {
    "named": shapes.named, "name_alone": shapes.name_alone, "years": shapes.years,
    "place": shapes.place, "employer": shapes.employer, "subject": shapes.subject_of_study,
    "compared": lambda value: value if shapes.phrase(value, 8, "over than") else "",
    "goal": lambda value: shapes.phrase(value, 8, "my our own more how better"),
    "as_said": str, "lower": str.lower,
    "taste": lambda value: shapes.without_article(value) if shapes.taste(value) else "",
    "bare": shapes.without_article, "phrase": lambda value: shapes.phrase(value, 6),
    "capital": lambda value: shapes.place(value) if shapes.capitalised(value) else "",
    "nationality": _one_of(vocabulary.NATIONALITIES | vocabulary.LANGUAGES),
    "field": _one_of(vocabulary.FIELDS), "language": _one_of(vocabulary.LANGUAGES),
    "learning": _prefixed("learning", _one_of(vocabulary.LANGUAGES)),
    "no_food": _prefixed("no", _one_of(vocabulary.FOODS)),
    "allergic": _prefixed("allergic to", shapes.allergen),
}  # fmt: skip
_MAKERS: dict[str, Maker] = {
    "job": _job, "employed": _employed, "moved": _moved, "has": _has,
    "called": _called, "possessed": _possessed, "gone": _gone, "favourite": _favourite,
    "likes": _likes, "mistaken": _mistaken,
}  # fmt: skip
_EVERY = frozenset(get_args(Polarity))
_POLARITIES: dict[str, frozenset[Polarity]] = {
    "+": frozenset(("yes",)), "-": frozenset(("no", "ended")), "~": frozenset(("yes", "past")),
}  # fmt: skip


def _construction(line: str) -> Construction:
    """Return a row: "slots shape: pattern", or "@maker: pattern".

    Before the colon may stand "+" or "-", where the clause must be affirmed or negated and its
    value is true as it stands, or "~", where it takes its value back. The shape "none" stands for
    any value, "=..." is the value itself.
    """
    head, words = line.split(": ", 1)
    slots, _, shape = head.rstrip("+-~ ").partition(" ")
    required = _POLARITIES.get(head[-1], _EVERY)
    maker = _MAKERS[slots[1:]] if slots[0] == "@" else _maker(slots.split(","), shape, head[-1])
    return Construction(compiled(f"(?:{words})"), maker, required)


@cache  # the tail is long: with it, the rows take twenty times as long to compile
def _with_tail(words: re.Pattern[str]) -> re.Pattern[str]:
    return compiled(f"{words.pattern}<tail>[ ,]*")


def _maker(slots: Sequence[str], shape: str, mark: str) -> Maker:
    def make(match: Match, polarity: Polarity) -> Statements:
        fixed = shape[1:] if shape.startswith("=") else ""
        value = fixed or ("" if shape == "none" else _SHAPES[shape](match["value"]))
        holds = mark in "+-" or (mark != "~" and polarity == "yes")
        if value or shape == "none":
            yield from (Statement(slot, value, holds=holds) for slot in slots)

    return make


_TABLE = tuple(map(_construction, vocabulary.CLAUSES))
# Rows that can match a clause about the speaker, and about anything else.
_OF_SPEAKER = tuple(row for row in _TABLE if row.words.pattern.startswith(("(?:i ", "(?:(?:")))
_OF_OTHERS = tuple(row for row in _TABLE if not row.words.pattern.startswith("(?:i "))


def prepare() -> None:
    """Compile every row, so that none is compiled when a message is read; takes a second."""
    for row in _TABLE:
        _with_tail(row.words)


def read_clause(clause: str, shared: Polarity = "yes") -> ClauseReading | None:
    """Return what a clause states; nothing unless one row of the table matches all of it.

    Args:
        shared: the polarity of the words that it shares with the clause before.
    """
    text, polarity = canonical(clause)
    polarity = shared if polarity == "yes" else polarity
    rows = _OF_SPEAKER if text.startswith("i ") else _OF_OTHERS
    reading = next(filter(None, (row.read(text, polarity) for row in rows)), None)
    if reading is not None or not clause.islower():
        return reading
    named = pattern("in_small_letters").sub(_capitalised, text)
    reading = None if named == text else read_clause(named, polarity)
    if reading is None:
        return None
    written = (replace(stated, value=stated.value.lower()) for stated in reading.statements)
    return replace(reading, statements=tuple(written))


def _capitalised(match: Match) -> str:
    """Return a word that may be a place or an employer as a name, unless it is another word."""
    word = match["name"]
    return match["before"] + (word if word in shapes.NO_PLACES else word.title())


# ---- how the companion is to speak -------------------------------------------------------------

_REQUEST = compiled(filled_in("<request>") % filled_in(f"(?:{'|'.join(vocabulary.REQUESTS)})"))


def read_request(clause: str) -> ClauseReading | None:
    """Return what a clause asks of the companion's manner, and a name that it does not want."""
    match = _REQUEST.fullmatch(clause)
    if match is None:
        return None
    value = re.sub(r"^i (?:would )?prefer ", "", match["value"], flags=re.IGNORECASE)
    value = re.sub(r"\bdo not\b", "don't", value, flags=re.IGNORECASE)
    statement = Statement("manner", value[:1].lower() + value[1:])
    called = None if value.lower().startswith("always") else pattern("call_me").search(value)
    unwanted = () if called is None else (Statement("name", called["name"], holds=False),)
    return ClauseReading((statement, *unwanted))
