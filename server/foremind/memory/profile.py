"""The profile: what is known of a user, by slot; each entry is one clean value. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from foremind.domain.companion_rules import SLOT_ALIASES, ProfileSlot, slot_rank
from foremind.domain.memory import Fact
from foremind.domain.record import (
    Details,
    MadeBy,
    NewRecord,
    Record,
    is_manual,
)
from foremind.text.languages.language_files import ENGLISH
from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_key, terms_of, words_of

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
    """Return what the beginning of `text` states about its speaker, or says is no longer so.

    That is the value that a slot has, and of each value whether it holds ("home porto": "yes"). So
    "I left Porto" contradicts "I live in Porto" and nothing else, and "I quit my job" any job.
    """
    return _facts(
        statements_in(text, fallback),
        lambda statement: (*_values(statement), *_presence(statement)),
    )


def values_of(statements: Iterable[Statement]) -> list[Fact]:
    """Return the values alone that statements give slots."""
    return _facts(statements, _values)


def _facts(
    statements: Iterable[Statement], of: Callable[[Statement], Iterable[Fact]]
) -> list[Fact]:
    short = (
        statement for statement in statements if len(terms_of(statement.value)) <= _MAX_VALUE_TERMS
    )
    return list(dict.fromkeys(fact for statement in short for fact in of(statement)))


def _values(statement: Statement) -> Iterator[Fact]:
    value = " ".join(terms_of(statement.value))
    if statement.slot in ("likes", "dislikes"):
        likes = "yes" if statement.slot == "likes" else "no"
        yield Fact(f"likes {value}", likes if statement.holds else f"not {likes}")
    elif statement.slot in _SINGLE_VALUED and (statement.holds or not value):
        yield Fact(statement.title, value or "none")
    elif value and statement.about and statement.holds:
        yield Fact(f"name of {statement.about}", value)


def _presence(statement: Statement) -> Iterator[Fact]:
    if statement.slot in ("likes", "dislikes"):
        return
    about = "" if statement.slot == "favourites" else statement.about
    for part in (about, statement.value):
        if words := " ".join(terms_of(part)):
            yield Fact(f"{statement.title} {words}", "yes" if statement.holds else "no")


_OPPOSITE = {"likes": "dislikes", "dislikes": "likes"}
# Turns what others write of a user ("Lives in Braga") into what the user would say.
_FIRST_PERSON = {
    "lives": "live", "works": "work", "is": "am", "has": "have", "speaks": "speak",
    "studies": "study", "likes": "like", "loves": "love", "hates": "hate", "prefers": "prefer",
}  # fmt: skip
_THIRD_PERSON = re.compile(rf"^(?:[\w'-]+ ){{0,3}}?({'|'.join(_FIRST_PERSON)})\b", re.IGNORECASE)

Slots = Mapping[str, ProfileSlot]


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A value stated for a slot or, if not `holds`, retracted, or corrected to another."""

    slot: str
    title: str
    content: str
    turns: tuple[int, ...]
    made_by: MadeBy = "rules"
    holds: bool = True
    instead: str = ""

    @property
    def last_turn(self) -> int:
        """The id of the last turn that it was made of."""
        return max(self.turns, default=0)


@dataclass(slots=True)
class _StoredEntry:
    """An entry of the profile while statements are applied; `record` is its stored form."""

    slot: str
    title: str
    content: str
    made_by: MadeBy
    details: Details
    record: Record | None = None
    turns: tuple[int, ...] = ()
    removed: bool = False

    @property
    def is_manual(self) -> bool:
        """Whether it is a manual edit, which background work never changes."""
        return is_manual(self.made_by)

    @property
    def value(self) -> str:
        """Its content in comparable form."""
        return terms_key(self.content)


@dataclass(slots=True)
class ProfileChange:
    """What to write: entries that are new, changed, stated once more, or removed."""

    added: list[NewRecord] = field(default_factory=list)
    changed: list[tuple[Record, NewRecord]] = field(default_factory=list)
    restated: list[tuple[Record, Details, tuple[int, ...]]] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)


def profile_change(
    present: Sequence[Record],
    entries: Sequence[ProfileEntry],
    slots: Slots,
    dismissed: Callable[[str], bool],
) -> ProfileChange:
    """Decide how statements, oldest first, change a profile.

    Manual edits are never changed, and block other values of a single-value slot. In such a slot
    the newer value replaces the older one; in other slots, the values stated least often and
    longest ago are removed beyond the limit.

    Args:
        dismissed: tells by its key whether the user had an entry removed.
    """
    stored = _stored_entries(present, slots)
    for entry in entries:
        if entry.slot in slots and not dismissed(entry_key(entry.title, entry.content)):
            _apply_statement(stored, entry, slots)
    for name, slot in slots.items():
        _enforce_limit(stored, name, slot)
    return _change_from(stored, slots)


def replaced_by_manual(present: Sequence[Record], written: NewRecord, slots: Slots) -> list[int]:
    """Return the ids of entries that a manual edit replaces in a single-value slot."""
    name = _slot_of(written, slots)
    if name not in slots or slots[name].many:
        return []
    return [
        entry.record.id
        for entry in _stored_entries(present, slots)
        if entry.record and entry.slot == name and not entry.is_manual
    ]


def entry_key(title: str, content: str) -> str:
    """Return the key of an entry, by which a removed entry is recognised and not made again."""
    return f"{title}: {terms_key(content)}"


def removal_key(record: Record) -> str:
    """Return the key of a profile record; inferred ones are recognised by their title."""
    return record.title if record.kind == "inferred" else entry_key(record.title, record.content)


def _stems(content: str) -> set[str]:
    """Return the stems of all words, of those that tell nothing apart as well: "brother Ben"."""
    return {stem for word in words_of(content) for stem in terms_of(word) or [word]}


def _stored_entries(present: Sequence[Record], slots: Slots) -> list[_StoredEntry]:
    return [_stored_entry(record, slots) for record in present if record.kind != "inferred"]


def _stored_entry(record: Record, slots: Slots) -> _StoredEntry:
    slot = record.details.slot or _slot_of(record, slots)
    return _StoredEntry(slot, record.title, record.content, record.made_by, record.details, record)


def _slot_of(record: Record | NewRecord, slots: Slots) -> str:
    """Return the slot of a record, by its title or, failing that, by its text."""
    title = " ".join(record.title.casefold().replace("favorite", "favourite").split())
    title = SLOT_ALIASES.get(title, title)
    if title in slots:
        return title
    if title.startswith("favourite "):
        return "favourites"
    if title.startswith("name of "):
        return "names"
    content = record.content[:300]
    first_person = _THIRD_PERSON.sub(
        lambda match: f"I {_FIRST_PERSON[match[1].lower()]}", content, count=1
    )
    return next(
        (statement.slot for text in (content, first_person) for statement in statements_in(text)),
        "",
    )


def _apply_statement(stored: list[_StoredEntry], entry: ProfileEntry, slots: Slots) -> None:
    slot = slots[entry.slot]
    present = [other for other in stored if other.slot == entry.slot and not other.removed]
    if not entry.holds:
        for other in present:
            newer = other.details.turn > entry.last_turn
            if other.is_manual or newer or not _retracts(entry, other):
                continue
            if entry.instead:
                wrong = re.compile(rf"\b{re.escape(entry.content)}\b", re.IGNORECASE)
                other.content = wrong.sub(lambda _: entry.instead, other.content)
                other.details = msgspec.structs.replace(other.details, turn=entry.last_turn)
                other.turns = tuple({*other.turns, *entry.turns})
            else:
                other.removed = True
        return
    if not slot.many and any(other.is_manual for other in present):
        return
    same = next((other for other in present if _is_same_fact(other, entry, slot)), None)
    opposite = _opposite_of(stored, entry)
    if same is None and opposite is not None:
        _reverse(opposite, entry)
    elif same is None:
        details = Details(slot=entry.slot, times=1, turn=entry.last_turn)
        stored.append(_StoredEntry(entry.slot, entry.title, entry.content, entry.made_by, details))
        stored[-1].turns = entry.turns
    elif not same.is_manual:
        _restate(same, entry, slot)


def _opposite_of(stored: Sequence[_StoredEntry], entry: ProfileEntry) -> _StoredEntry | None:
    """Return the entry that says the user likes what `entry` says they dislike, or vice versa."""
    opposite = _OPPOSITE.get(entry.slot)
    candidates = (
        other
        for other in stored
        if other.slot == opposite and not (other.removed or other.is_manual)
    )
    return next((other for other in candidates if other.value == terms_key(entry.content)), None)


def _reverse(stored: _StoredEntry, entry: ProfileEntry) -> None:
    """Let the newer statement win; both stay sources, so that either can be erased."""
    if entry.last_turn < stored.details.turn:
        return
    stored.slot, stored.title, stored.content = entry.slot, entry.title, entry.content
    stored.made_by = entry.made_by
    stored.details = Details(slot=entry.slot, times=1, turn=entry.last_turn)
    stored.turns = tuple({*stored.turns, *entry.turns})


def _retracts(entry: ProfileEntry, stored: _StoredEntry) -> bool:
    """Return whether a stored entry ends: "brother Tom" does with "Tom", and with "brother"."""
    retracted, present = _stems(entry.content), _stems(stored.content)
    if entry.title not in (entry.slot, stored.title):
        return False
    return not retracted or retracted <= present or (bool(present) and present <= retracted)


def _is_same_fact(stored: _StoredEntry, entry: ProfileEntry, slot: ProfileSlot) -> bool:
    """Return whether an entry is about the same fact as a stored one."""
    if not slot.many:
        return True
    if stored.title == entry.title and stored.title != entry.slot:  # "favourite colour"
        return True
    if slot.kind == "people":  # "dog" and "dog Scout"
        stored_terms, entry_terms = _stems(stored.content), _stems(entry.content)
        return bool(stored_terms) and (stored_terms <= entry_terms or entry_terms <= stored_terms)
    return stored.value == terms_key(entry.content)


def _restate(stored: _StoredEntry, entry: ProfileEntry, slot: ProfileSlot) -> None:
    """Count a statement of a stored fact, and take over its wording where that is better."""
    is_new = entry.last_turn > stored.details.turn
    details = stored.details
    if stored.value != terms_key(entry.content):
        shorter = slot.kind == "people" and len(entry.content) < len(stored.content)
        if not shorter and (is_new or slot.kind == "people"):
            stored.content, stored.title = entry.content, entry.title
            stored.made_by = entry.made_by
    stored.details = msgspec.structs.replace(
        details,
        slot=entry.slot,
        times=details.times + is_new,
        turn=max(details.turn, entry.last_turn),
    )
    stored.turns = tuple({*stored.turns, *entry.turns})


def _enforce_limit(stored: Sequence[_StoredEntry], name: str, slot: ProfileSlot) -> None:
    generated = [
        entry
        for entry in stored
        if entry.slot == name and not entry.removed and not entry.is_manual
    ]
    generated.sort(key=lambda entry: (entry.details.times, entry.details.turn))
    has_manual = any(entry.slot == name and entry.is_manual for entry in stored)
    limit = 0 if has_manual and not slot.many else slot.most
    for entry in generated[: max(0, len(generated) - limit)]:
        entry.removed = True


def _change_from(stored: Sequence[_StoredEntry], slots: Slots) -> ProfileChange:
    change = ProfileChange()
    for entry in stored:
        before = entry.record
        if entry.removed:
            change.removed += [before.id] if before is not None else []
            continue
        if entry.is_manual:
            continue
        rank = slot_rank(entry.slot, slots)
        details = msgspec.structs.replace(entry.details, slot=entry.slot, rank=rank)
        record = NewRecord(
            layer="profile",
            kind="stated",
            title=entry.title,
            content=entry.content,
            made_by=entry.made_by,
            details=details,
            turns=entry.turns,
        )
        if before is None:
            change.added.append(record)
        elif (before.title, before.content) != (entry.title, entry.content):
            change.changed.append((before, record))
        elif entry.turns:
            change.restated.append((before, details, entry.turns))
    return change
