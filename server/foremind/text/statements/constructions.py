"""The clauses that are understood, as a table: their words, and the shape of their value. Pure.

A clause is understood if one row matches all of it, what `clauses.TAIL` allows after it included,
and its value has the shape that the row demands. The rows are lines of `english.txt`, see
`_construction`, and are tried in their order on clauses without adverbs and negation.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

from foremind.text.statements import shapes, vocabulary
from foremind.text.statements.clauses import Polarity, Statement, canonical
from foremind.text.statements.vocabulary import compiled, pattern  # fmt: skip

Statements = Iterable[Statement]
Shape = Callable[[str], str]
Match = re.Match[str]
Maker = Callable[[Match, Polarity], Statements]

_ANYMORE, _MOMENT, _TODAY, _DATED, _EVENT, _TAINTED, _NAMED_NOUN, _EATEN, _PERSON = (
    compiled(rf"\b(?:<{name}>)\b") if name in ("anymore", "moment", "today") else pattern(name)
    for name in ("anymore", "moment", "today", "dated", "event", "tainted", "named_noun", "eaten",
                 "person")
)  # fmt: skip
_OWNED, _LAUGHS, _WORKPLACE = pattern("owned"), pattern("laughs"), pattern("workplace")


@dataclass(frozen=True, slots=True)
class ClauseReading:
    """What a clause states, and its words before the value, with which another value may follow."""

    statements: tuple[Statement, ...]
    frame: str = ""
    value: str = ""
    several: bool = False  # whether values of its slot are true side by side
    polarity: Polarity = "yes"

    @property
    def shares_frame(self) -> bool:
        """Whether "and ..." may add to it: "I am 31 and a nurse", "I like tea and cake"."""
        whole = vocabulary.PREPOSITIONS.isdisjoint(self.value.lower().split())
        return whole and (self.several or self.frame.lower().endswith((" am ", " have ")))


@dataclass(frozen=True, slots=True)
class Construction:
    """A row of the table; `make` returns nothing where the clause is not understood after all."""

    pattern: re.Pattern[str]
    make: Maker
    required: frozenset[Polarity]

    def read(self, clause: str, polarity: Polarity) -> ClauseReading | None:
        """Return what a canonical clause states if this row matches all of it."""
        match = self.pattern.fullmatch(clause)
        if match is None:
            return None
        if _DATED.search(match["tail"]) and not _EVENT.match(clause):
            return None
        if _TODAY.search(match["tail"]) and not _EVENT.match(clause):
            return None
        ends = _ANYMORE.search(match["tail"]) is not None
        if ends and polarity == "yes":
            return None
        said: Polarity = "ended" if ends else polarity
        statements = tuple(self.make(match, said)) if said in self.required else ()
        if not statements:
            return None
        value, slot = match.groupdict().get("value") or "", statements[0].slot
        frame = re.sub(r"\b(?:an?|the) $", "", clause[: match.start("value")]) if value else ""
        beside = tuple(_named_beside(match["tail"])) if polarity == "yes" else ()
        return ClauseReading((*statements, *beside), frame, value, slot in _SEVERAL, polarity)


_SEVERAL = frozenset("languages family pets health diet likes dislikes goals".split())  # noqa: SIM905


# ---- people, animals, things -------------------------------------------------------------------


def slot_of(noun: str) -> str:
    """Return the slot of what somebody has: a relative, an animal, or another thing."""
    last = noun.lower().rsplit(maxsplit=1)[-1]
    if last in vocabulary.KIN | vocabulary.KIN_MANY or noun.lower().endswith("best friend"):
        return "family"
    ends = noun.lower().split()[-2:]
    animals = vocabulary.ANIMALS | vocabulary.ANIMALS_MANY
    if last in ("boy", "girl"):
        return "family"
    return "pets" if last in animals or " ".join(ends) in animals else "names"


def _owned(value: str, *, holds: bool) -> Statements:
    match = _OWNED.fullmatch(value)
    if match is None or vocabulary.PREPOSITIONS.intersection(match["kind"].lower().split()):
        return
    count = (match["count"] or "").lower()
    name = (match["name"] or match["beside"] or "").strip('"')
    if name and not shapes.names(name):
        return
    if not count and match["noun"].lower() not in vocabulary.KIN_MANY | vocabulary.ANIMALS_MANY:
        return
    kinds = set(match["kind"].lower().split())
    if (
        "and" in kinds
        or kinds & vocabulary.NOT_REAL
        or not shapes.phrase(f"{match['kind']}{match['noun']}", 4)
    ):
        return
    prefix = "" if count in ("", "a", "an", "one", "any", "no", "some") else f"{count} "
    noun = f"{prefix}{match['kind']}{match['noun']}".lower()
    yield Statement(slot_of(noun), name, noun, holds=holds and count != "no")


def _has(match: Match, polarity: Polarity) -> Statements:
    if _EATEN.match(match[0]):
        return ()
    return _owned(match["value"], holds=polarity == "yes")


def _called(match: Match, polarity: Polarity) -> Statements:
    noun, name = match["noun"].lower(), shapes.names(match["value"])
    odd = (vocabulary.NOT_NAMED | vocabulary.NOT_REAL) & set(noun.split()) and not noun.endswith(
        "best friend"
    )
    if name and shapes.phrase(noun, 3) and not odd:
        yield Statement(slot_of(noun), name, noun, holds=polarity == "yes")


def _called_simply(match: Match, polarity: Polarity) -> Statements:
    """Read "my wife is Anna", not "my wife is Irish"."""
    breed = re.search(r"[A-Z]\S* [A-Z]", match["value"])
    plain = not breed and shapes.name_alone(match["value"].split()[0])
    return _called(match, polarity) if plain else ()


def _possessed(match: Match, _: Polarity) -> Statements:
    """Read "my wife Anneke is a doctor", whatever else it says."""
    odd = vocabulary.NOT_REAL.intersection(match["noun"].lower().split())
    if not odd and not _TAINTED.search(match[0]) and shapes.named(match["value"]):
        yield Statement(slot_of(match["noun"]), match["value"], match["noun"].lower())


def _named_beside(tail: str) -> Iterator[Statement]:
    """Return whom a tail names: "with my husband Jens and our dog Sixten"."""
    for match in _NAMED_NOUN.finditer(tail):
        yield Statement(slot_of(match["noun"]), match["name"], match["noun"].lower())


def _ended_kin(match: Match, _: Polarity) -> Statements:
    noun, name = match["noun"].lower(), match["value"] or ""
    yield Statement(slot_of(noun), name, noun, holds=False)
    if noun in vocabulary.SPOUSES:
        yield Statement("status", "", holds=False)


def _forgotten(match: Match, _: Polarity) -> Statements:
    if match["slot"]:
        yield Statement(match["slot"], "", holds=False)
    else:
        yield Statement(
            slot_of(match["noun"]), match["value"] or "", match["noun"].lower(), holds=False
        )


def _buried(match: Match, _: Polarity) -> Statements:
    if shapes.named(match["value"]) and match["value"][0].isupper():
        yield Statement("pets", match["value"], holds=False)
        yield Statement("family", match["value"], holds=False)


# ---- work, home --------------------------------------------------------------------------------


def _job(shape: Shape) -> Maker:
    def make(match: Match, polarity: Polarity) -> Statements:
        holds = polarity == "yes"
        job, where, origin = shape(match["value"]), match["where"], match["from"]
        if not job or (where and not shapes.phrase(where, 6, "my our her")):
            return
        if (origin and not shapes.place(origin)) or re.search(r"\d", job):
            return
        if where and vocabulary.FICTION & set(where.lower().split()):
            return
        if where and not _WORKPLACE.match(f"{match['at'].lower()} {where}"):
            return
        yield Statement("job", job, holds=holds)
        works = not job.lower().endswith(("student", "pupil"))
        if where and works and where[0].isupper() and match["at"].lower() in ("at", "for"):
            yield Statement("employer", shapes.without_article(where), holds=holds)
        if origin:
            yield Statement("origin", shapes.place(origin))

    return make


_WHERE = r"(?: (?P<at>at|for|in|with|on|by) (?P<where>.+?))?(?: from (?P<from>.+?))?"


def _employed(match: Match, polarity: Polarity) -> Statements:
    employer, job = shapes.employer(match["value"]), shapes.any_job(match["as"] or "")
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


def _left(match: Match, _: Polarity) -> Statements:
    where = match["value"]
    capital = where[0].isupper() or match[0].lower().startswith("i left ")
    if capital and shapes.place(where) and where == shapes.without_article(where):
        yield Statement("home", where, holds=False)
        yield Statement("employer", where, holds=False)


def _retired(match: Match, _: Polarity) -> Statements:
    yield Statement("employer", "", holds=False)
    yield Statement("job", "retired")


# ---- names, ages, tastes -----------------------------------------------------------------------


def _one_word(value: str) -> str:
    odd = vocabulary.KIN | vocabulary.FICTIONAL | vocabulary.STANDING
    return "" if " " in value or value.lower() in odd else shapes.named(value)


def _am_name(match: Match, _: Polarity) -> Statements:
    """Read "I'm Ana", "hi im ana", "I'm Ana from Porto"."""
    greeted, value, origin = bool(match["hi"]), match["value"], match["from"]
    name = shapes.name_alone(value) or (greeted and _one_word(value))
    if not name or (origin and not shapes.place(origin)):
        return
    yield Statement("name", str(name))
    if origin:
        yield Statement("origin", shapes.place(origin))


def _age_from(match: Match, _: Polarity) -> Statements:
    age, origin = shapes.years_old(match["value"]), match["from"]
    if age and (not origin or shapes.place(origin)):
        yield Statement("age", age)
        if origin:
            yield Statement("origin", shapes.place(origin))


def _likes(match: Match, polarity: Polarity) -> Statements:
    value = shapes.taste(match["value"])
    if polarity == "yes" and vocabulary.IRONIC & set(value.lower().split()):
        return
    if value and not _MOMENT.search(match["tail"]):
        slot = "dislikes" if polarity in ("no", "ended") else "likes"
        yield Statement(slot, value, holds=polarity != "past")


def _favourite(match: Match, polarity: Polarity) -> Statements:
    about, value = match["about"].lower(), shapes.favourite(match["value"])
    active = re.match(r"[a-z]+ing\b", value) and about.split()[-1] not in vocabulary.ACTIVITIES
    odd = {"part", "thing", "bit", "moment", "way", "one", "person", "scene"}
    odd = (odd | vocabulary.KIN | vocabulary.ANIMALS) & set(about.split())
    about = about.replace("color", "colour")
    if re.match(r"(?:my|our)\b", value, re.I):
        return
    jests = about.split()[-1] in value.lower().split() or _LAUGHS.search(match["tail"])
    if value and shapes.phrase(about, 3) and not (odd or active or jests):
        yield Statement("favourites", value, about, holds=polarity == "yes")


def _spoken(match: Match, polarity: Polarity) -> Statements:
    learns = re.search("learn|study|teaching", match[0]) is not None
    value = re.sub(
        r"^(?:some|a bit of|a little(?: bit of)?|fluent|basic|good|bad) ", "", match["value"]
    )
    if value.lower() in vocabulary.LANGUAGES:
        value = f"learning {value}" if learns else value
        yield Statement("languages", value, holds=polarity == "yes")


def _bond(match: Match, polarity: Polarity) -> Statements:
    """Read a status; one is married to a person, or it is no marriage."""
    value, whom = match["value"].lower(), match["whom"]
    if whom and not _PERSON.fullmatch(whom):
        return
    value = "widowed" if value.startswith("widow") else value
    yield Statement("status", value, holds=polarity == "yes")
    yield from _named_beside(whom or "")


def _phrase(most: int, allowed: str = "") -> Shape:
    return lambda value: shapes.phrase(value, most, allowed)


def _prefixed(prefix: str, shape: Shape) -> Shape:
    """Return a shape that says what is so of a value: "no meat"."""
    return lambda value: f"{prefix} {shapes.without_article(value)}" if shape(value) else ""


def _after(words: str, shape: Shape) -> Shape:
    """Return a shape of a value that begins with some words."""
    return lambda value: value if shape(re.sub(rf"^(?:{words}) ", "", value)) else ""


_SHAPES: dict[str, Shape] = {
    "named": shapes.named, "name_alone": shapes.name_alone, "years": shapes.years,
    "years_old": shapes.years_old, "place": shapes.place, "place_on": shapes.place_on,
    "nationality": shapes.nationality, "field": shapes.field, "employer": shapes.employer,
    "capital_employer": lambda value: shapes.employer(value) if value[0].isupper() else "",
    "subject": shapes.subject_of_study, "taste": shapes.taste, "preference": shapes.preference,
    "goal": shapes.goal, "as_said": str, "lower": str.lower, "bare": shapes.without_article,
    "near_place": _after("near|outside of|outside|close to|by", shapes.place),
    "to_be_trade": _after("to (?:be|become)", shapes.trade),
    "allergic": _prefixed("allergic to", shapes.allergen), "no_food": _prefixed("no", shapes.food),
    "no_known_food": _prefixed("no", shapes.known_food), "phrase1": _phrase(1),
    "phrase3": _phrase(3), "phrase4": _phrase(4), "phrase5": _phrase(5), "phrase6": _phrase(6),
    "about_phrase": _phrase(6, "not talk my about"),
}  # fmt: skip
_MAKERS: dict[str, Maker] = {
    "job": _job(shapes.any_job), "trade": _job(shapes.trade), "employed": _employed,
    "am_name": _am_name, "age_from": _age_from, "moved": _moved, "left": _left, "bond": _bond,
    "retired": _retired, "spoken": _spoken, "has": _has, "called": _called,
    "called_simply": _called_simply, "possessed": _possessed, "ended_kin": _ended_kin,
    "forgotten": _forgotten, "buried": _buried, "favourite": _favourite, "likes": _likes,
}  # fmt: skip
_POLARITIES: dict[str, frozenset[Polarity]] = {
    "+": frozenset(("yes",)), "-": frozenset(("no", "ended")),
}  # fmt: skip


def _construction(line: str) -> Construction:
    """Return a row: "slot shape: pattern", or "@maker: pattern".

    Before the colon may stand "+" or "-", where the clause must be affirmed or negated, and is
    true as it stands; "!" where it is not of the moment. The shape "end" retracts the slots, "=..."
    is the value itself.
    """
    head, pattern = line.split(": ", 1)
    required = _POLARITIES.get(head[-1], frozenset(get_args(Polarity)))
    head = head.removesuffix(" +").removesuffix(" -")
    lasting = head.endswith("!")
    slots, _, shape = head.removesuffix("!").partition(" ")
    if slots.startswith("@"):
        maker = _MAKERS[slots[1:]]
    else:
        maker = _maker(slots, shape, lasting=lasting, as_is=len(required) < 3)
    return Construction(compiled(f"(?:{pattern})<tail>[ ,]*"), maker, required)


def _maker(slots: str, shape: str, *, lasting: bool, as_is: bool) -> Maker:
    def make(match: Match, polarity: Polarity) -> Statements:
        if shape == "end":
            yield from (Statement(slot, "", holds=False) for slot in slots.split(","))
            return
        value = shape[1:] if shape.startswith("=") else _SHAPES[shape](match["value"])
        if value and not (lasting and _MOMENT.search(match["tail"])):
            yield Statement(slots, value, holds=as_is or polarity == "yes")

    return make


_TABLE = tuple(_construction(line) for line in vocabulary.CLAUSES)


def read_clause(clause: str, shared: Polarity = "yes") -> ClauseReading | None:
    """Return what a clause states; nothing unless one row of the table matches all of it.

    Args:
        shared: the polarity of the words that it shares with the clause before.
    """
    text, polarity = canonical(clause)
    polarity = shared if polarity == "yes" else polarity
    text = re.sub(
        r"^(i (?:can|will|must) )not (?=eat|drink|have|tolerate|digest|touch|stomach|do)",
        r"i not ",
        text,
    )
    if text.startswith("i not "):
        text, polarity = f"i {text[6:]}", "no"
    return next(filter(None, (row.read(text, polarity) for row in _TABLE)), None)
