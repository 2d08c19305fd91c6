"""The profile: what is known of a user by slots, each entry a clean value. Pure but for writing."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import Utterance
from foremind.domain.companion import SLOT_ALIASES, ProfileSlot, rank_of
from foremind.domain.errors import Conflict
from foremind.domain.record import (
    Details,
    MadeBy,
    NewRecord,
    Record,
    RecordLayer,
    by_hand,
)
from foremind.storage.record_changes import RecordChanges
from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_of

_OPPOSITE = {"likes": "dislikes", "dislikes": "likes"}
_PROFILE: tuple[RecordLayer, ...] = ("profile",)
# What somebody writes of a user, as the user would say it: "Lives in Braga".
_AS_SAID = {
    "lives": "live", "works": "work", "is": "am", "has": "have", "speaks": "speak",
    "studies": "study", "likes": "like", "loves": "love", "hates": "hate", "prefers": "prefer",
}  # fmt: skip
_OF_ANOTHER = re.compile(rf"^(?:[\w'-]+ ){{0,3}}?({'|'.join(_AS_SAID)})\b", re.IGNORECASE)

Slots = Mapping[str, ProfileSlot]


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A value that somebody stated for a slot, or, where it does not hold, took back."""

    slot: str
    title: str
    content: str
    turns: tuple[int, ...]
    made_by: MadeBy = "rules"
    holds: bool = True

    @property
    def upto(self) -> int:
        """The last turn that it was made of."""
        return max(self.turns, default=0)


@dataclass(slots=True)
class _StoredEntry:
    """An entry of the profile while news are taken in; `record` is what is stored of it."""

    slot: str
    title: str
    content: str
    made_by: MadeBy
    details: Details
    record: Record | None = None
    turns: tuple[int, ...] = ()
    gone: bool = False

    @property
    def fixed(self) -> bool:
        """Whether somebody wrote it, and no background work changes it."""
        return by_hand(self.made_by)

    @property
    def value(self) -> str:
        """What tells values apart: its words, stemmed."""
        return _value(self.content)


@dataclass(slots=True)
class ProfileChange:
    """What is to be written: entries that are new, those that changed, those stated again."""

    added: list[NewRecord] = field(default_factory=list)
    changed: list[tuple[Record, NewRecord]] = field(default_factory=list)
    again: list[tuple[Record, Details, tuple[int, ...]]] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)


def stated_in(said: Iterable[Utterance]) -> list[ProfileEntry]:
    """Return what rules read of what a user says, in the order in which it was said."""
    return [
        ProfileEntry(each.slot, each.title, each.content, (utterance.turn_id,), holds=each.holds)
        for utterance in said
        if utterance.by_user
        for each in statements_in(utterance.text)
    ]


def news_of(
    present: Sequence[Record],
    entries: Sequence[ProfileEntry],
    slots: Slots,
    dismissed: Callable[[str], bool],
) -> ProfileChange:
    """Decide what becomes of a profile when something is stated, the oldest first.

    What somebody wrote by hand stays, and no second value of a slot stands beside it. A newer value
    of a slot that has one takes the place of the older; of others, those go that were stated least
    often and longest ago where there are too many.

    Args:
        dismissed: tells whether a user had an entry removed, by its key.
    """
    held = _all_held(present, slots)
    for entry in entries:
        if entry.slot in slots and not dismissed(key_of(entry.title, entry.content)):
            _take_in(held, entry, slots)
    for name, slot in slots.items():
        _keep_within(held, name, slot)
    return _news(held, slots)


def giving_way(present: Sequence[Record], written: NewRecord, slots: Slots) -> list[int]:
    """Return the entries that go when somebody writes into their slot, which has one value."""
    name = _slot_of(written, slots)
    if name not in slots or slots[name].many:
        return []
    held = _all_held(present, slots)
    return [each.record.id for each in held if each.record and each.slot == name and not each.fixed]


def key_of(title: str, content: str) -> str:
    """Return what tells entries apart, so that one that was removed is not made again."""
    return f"{title}: {_value(content)}"


def removal_key(record: Record) -> str:
    """Return the key of a record of the profile; what was inferred is known by its title."""
    return record.title if record.kind == "inferred" else key_of(record.title, record.content)


async def write_profile(
    work: CurationContext, changes: RecordChanges, entries: Sequence[ProfileEntry]
) -> None:
    """Write into the profile what was stated.

    Raises:
        Conflict: the profile changed since the records of `work` were read.
    """
    if not entries:
        return
    present = work.of("profile")
    if await changes.of_layers(_PROFILE) != {each.id for each in present}:
        raise Conflict("The profile was changed meanwhile.")
    slots = work.policy.slots
    news = news_of(present, entries, slots, lambda key: work.dismissed("profile", key))
    for record in news.added:
        await changes.add(record)
    for before, record in news.changed:
        await changes.change(before.id, record, before.revision)
    for before, details, turns in news.again:
        await changes.touch(before.id, details)
        await changes.add_sources(before.id, turns, ())
    if news.removed:
        await changes.remove(news.removed)


def _value(content: str) -> str:
    return " ".join(sorted(set(terms_of(content)))) or content.casefold().strip()


def _all_held(present: Sequence[Record], slots: Slots) -> list[_StoredEntry]:
    return [_as_held(each, slots) for each in present if each.kind != "inferred"]


def _as_held(record: Record, slots: Slots) -> _StoredEntry:
    slot = record.details.slot or _slot_of(record, slots)
    held = _StoredEntry(slot, record.title, record.content, record.made_by, record.details, record)
    if not record.details.slot and record.made_by == "rules":
        _make_clean(held)
    return held


def _slot_of(record: Record | NewRecord, slots: Slots) -> str:
    """Return the slot that a record fills, by its title or, where that says nothing, its text."""
    title = " ".join(record.title.casefold().replace("favorite", "favourite").split())
    title = SLOT_ALIASES.get(title, title)
    if title in slots:
        return title
    if title.startswith("favourite "):
        return "favourites"
    if title.startswith("name of "):
        return "names"
    told = record.content[:300]
    as_said = _OF_ANOTHER.sub(lambda found: f"I {_AS_SAID[found[1].lower()]}", told, count=1)
    return next((each.slot for text in (told, as_said) for each in statements_in(text)), "")


def _make_clean(held: _StoredEntry) -> None:
    """Bring an entry into the form of values that was written as a whole sentence."""
    found: Sequence[Statement] = [each for each in statements_in(held.content) if each.holds]
    if found:
        held.slot, held.title, held.content = found[0].slot, found[0].title, found[0].content
    else:
        held.gone = True


def _take_in(held: list[_StoredEntry], entry: ProfileEntry, slots: Slots) -> None:
    slot = slots[entry.slot]
    there = [each for each in held if each.slot == entry.slot and not each.gone]
    if not entry.holds:
        for each in there:
            each.gone |= not each.fixed and _takes_back(entry, each)
        return
    if not slot.many and any(each.fixed for each in there):
        return
    same = next((each for each in there if _same(each, entry, slot)), None)
    contrary = _contrary(held, entry)
    if same is None and contrary is not None:
        _turn_round(contrary, entry)
    elif same is None:
        details = Details(slot=entry.slot, times=1, turn=entry.upto)
        held.append(_StoredEntry(entry.slot, entry.title, entry.content, entry.made_by, details))
        held[-1].turns = entry.turns
    elif not same.fixed:
        _state_again(same, entry, slot)


def _contrary(held: Sequence[_StoredEntry], entry: ProfileEntry) -> _StoredEntry | None:
    """Return what says that somebody likes what it is now said not to like, or the reverse."""
    opposite = _OPPOSITE.get(entry.slot)
    there = (each for each in held if each.slot == opposite and not (each.gone or each.fixed))
    return next((each for each in there if each.value == _value(entry.content)), None)


def _turn_round(held: _StoredEntry, entry: ProfileEntry) -> None:
    """Let the newer hold; the entry goes on to be made of both, so that either can be forgotten."""
    if entry.upto < held.details.turn:
        return
    held.slot, held.title, held.content = entry.slot, entry.title, entry.content
    held.made_by, held.details = entry.made_by, Details(slot=entry.slot, times=1, turn=entry.upto)
    held.turns = tuple({*held.turns, *entry.turns})


def _takes_back(entry: ProfileEntry, held: _StoredEntry) -> bool:
    gone, there = set(terms_of(entry.content)), set(terms_of(held.content))
    return not gone or gone <= there


def _same(held: _StoredEntry, entry: ProfileEntry, slot: ProfileSlot) -> bool:
    """Tell whether an entry says something about what is held already."""
    if not slot.many:
        return True
    if held.title == entry.title and held.title != entry.slot:  # "favourite colour"
        return True
    if slot.kind == "people":  # "dog" and "dog Scout"
        one, other = set(terms_of(held.content)), set(terms_of(entry.content))
        return bool(one) and (one <= other or other <= one)
    return held.value == _value(entry.content)


def _state_again(held: _StoredEntry, entry: ProfileEntry, slot: ProfileSlot) -> None:
    is_new = entry.upto > held.details.turn
    details = held.details
    if held.value != _value(entry.content):
        shorter = slot.kind == "people" and len(entry.content) < len(held.content)
        if not shorter and (is_new or slot.kind == "people"):
            held.content, held.title, held.made_by = entry.content, entry.title, entry.made_by
    held.details = msgspec.structs.replace(
        details,
        slot=entry.slot,
        times=details.times + is_new,
        turn=max(details.turn, entry.upto),
    )
    held.turns = tuple({*held.turns, *entry.turns})


def _keep_within(held: Sequence[_StoredEntry], name: str, slot: ProfileSlot) -> None:
    made = [each for each in held if each.slot == name and not each.gone and not each.fixed]
    made.sort(key=lambda each: (each.details.times, each.details.turn))
    written = any(each.slot == name and each.fixed for each in held)
    most = 0 if written and not slot.many else slot.most
    for each in made[: max(0, len(made) - most)]:
        each.gone = True


def _news(held: Sequence[_StoredEntry], slots: Slots) -> ProfileChange:
    news = ProfileChange()
    for each in held:
        before = each.record
        if each.gone:
            news.removed += [before.id] if before is not None else []
            continue
        if each.fixed:
            continue
        rank = rank_of(each.slot, slots)
        details = msgspec.structs.replace(each.details, slot=each.slot, rank=rank)
        record = NewRecord(
            layer="profile",
            kind="stated",
            title=each.title,
            content=each.content,
            made_by=each.made_by,
            details=details,
            turns=each.turns,
        )
        if before is None:
            news.added.append(record)
        elif (before.title, before.content) != (each.title, each.content):
            news.changed.append((before, record))
        elif each.turns:
            news.again.append((before, details, each.turns))
    return news
