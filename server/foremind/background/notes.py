"""The scratchpad: what is worth knowing of a user in later conversations, kept after each turn."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import Utterance, chars_of, sentences_of
from foremind.background.prompts import NoteOperation, NotesAnswer, for_notes
from foremind.domain.companion import PROFILE_SLOTS, SignificanceRules
from foremind.domain.errors import UnusableAnswer
from foremind.domain.record import NewRecord, Record, RecordLayer, by_hand
from foremind.domain.relationship import ChangeSet, TranscriptTurn
from foremind.llm.prompt.layout import Message
from foremind.memory.exclusive_facts import facts_in
from foremind.memory.minimum_scores import floors_in
from foremind.memory.scoring import judge
from foremind.runtime.offload import aside
from foremind.storage.record_changes import RecordChanges
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_of

_MOST_ENTRIES = 500  # of which what matters least, and of that the oldest, makes room
_SHOWN_NEWEST, _SHOWN_NEAREST = 30, 30  # entries that a model is shown with what was said
_LET_BE_FOUND = 20  # entries at once that an earlier version left without a vector
_MOST_TURNS = 40  # that are read at once
_MOST_ASKED = 10  # of these that a model is shown: what is worth noting of them fits its answer
_MAX_TOKENS = 800
_LINE_TOKENS = 16  # around what was said: the name, quotation marks, perhaps the day
_ENTRIES: tuple[RecordLayer, ...] = ("scratchpad",)
# Which kind of entry a statement makes, by the kind of its slot in a profile.
_KIND_OF = {
    "identity": "identity", "need": "preference", "taste": "preference", "people": "relationship",
}  # fmt: skip
_EVENT = 0.5  # significance from which something dated is an event worth noting
_KIN = frozenset(
    terms_of(
        "mother father mum mom dad sister brother wife husband partner son daughter friend "
        "girlfriend boyfriend grandmother grandfather grandma grandpa uncle aunt cousin dog cat "
        "boss colleague neighbour neighbor"
    )
)

_log = structlog.get_logger("foremind.background")


async def keep_notes(work: CurationContext, turns: Sequence[TranscriptTurn]) -> int | None:
    """Bring the scratchpad up to date with some of the turns that it does not hold yet.

    Return the last turn that it holds now, None where there was nothing to do.
    """
    new = _portion(work, turns)
    if not new:
        return None
    notes, whole = await _operations(work, work.utterances(new))
    # Where the answer had no room for all, what is missing is likely to be of the later turns.
    upto = new[-1].id if whole else new[(len(new) - 1) // 2].id
    found = await _to_be_found(work)
    async with work.changing() as changes:
        await _write_notes(work, changes, notes)
        for entry_id, vector in found.items():
            await changes.let_be_found(entry_id, vector)
        await changes.advance("noted", upto, work.bond.noted_turn_id)
    await work.refresh()
    return upto


def _portion(work: CurationContext, turns: Sequence[TranscriptTurn]) -> list[TranscriptTurn]:
    """Return the oldest turns that can be noted together: a model has only so much room."""
    if work.server is None or not turns:
        return list(turns[:_MOST_TURNS])
    shown = work.of("scratchpad")[-_SHOWN_NEWEST - _SHOWN_NEAREST :]
    room = work.room(_asked_for(work, shown, ()), _MAX_TOKENS)
    within = 0
    for turn in turns[:_MOST_ASKED]:
        room -= work.count(turn.content) + _LINE_TOKENS
        if room < 0:
            break
        within += 1
    return list(turns[: max(1, within)])


def _asked_for(
    work: CurationContext, entries_shown: Sequence[Record], said: Sequence[Utterance]
) -> list[Message]:
    """Return what a model is asked; the newest entries take at most a quarter of its context."""
    entries = [(each.id, each.kind, each.content) for each in entries_shown]
    left = work.policy.context_tokens // 4
    shown = []
    for entry in reversed(entries):
        left -= work.count(entry[2]) + _LINE_TOKENS
        if left < 0:
            break
        shown.append(entry)
    return for_notes(work.policy.scratchpad, shown[::-1], said)


async def note_again(
    work: CurationContext, portion: ChangeSet, turns: Sequence[TranscriptTurn]
) -> None:
    """Make the notes of turns again that were removed with what else they were made of."""
    notes, _ = await _operations(work, work.utterances(turns))
    async with work.changing() as changes:
        await _write_notes(work, changes, notes)
        await changes.noted_again(portion)
    await work.refresh()


async def _write_notes(
    work: CurationContext, changes: RecordChanges, notes: Sequence["NotesUpdate"]
) -> None:
    """Apply operations, each to what is there by then: one of an entry that is gone is dropped."""
    there = await changes.of_layers(_ENTRIES)
    present = {each.id: each for each in work.of("scratchpad") if each.id in there}
    for note in notes:
        await _apply(work, changes, note, present)
    await _make_room(work, changes, sum(note.operation.op == "ADD" for note in notes))


@dataclass(frozen=True, slots=True)
class NotesUpdate:
    """A change to the scratchpad, and the turns and entries that it is made of."""

    operation: NoteOperation
    turns: tuple[int, ...]
    entries: tuple[int, ...] = ()
    vector: npt.NDArray[np.float32] | None = None


async def _operations(
    work: CurationContext, said: Sequence[Utterance]
) -> tuple[list[NotesUpdate], bool]:
    """Return the changes that turns make to the scratchpad, and whether these are all."""
    work.stood_in = False
    if not work.policy.on("scratchpad") or not any(each.by_user for each in said):
        return [], True
    entries = work.of("scratchpad")
    if work.server is None:
        work.by_rules("notes")
        return await _ruled(work, said, entries), True
    shown = entries
    if len(entries) > _SHOWN_NEWEST + _SHOWN_NEAREST:
        told = " ".join(each.text for each in said if each.by_user)
        shown = to_be_shown(entries, await work.vector(told))
    try:
        answer = await work.answer("notes", _asked_for(work, shown, said), NotesAnswer, _MAX_TOKENS)
    except UnusableAnswer as error:
        work.stand_in("notes", error)
        return await _ruled(work, said, entries), True
    operations = answer.value.operations
    known = {each.id for each in shown}
    kept = checked(operations, work.policy.kinds, known)
    rejected = len(operations) - len(kept)
    if rejected:
        work.metrics.dropped.labels("invalid_operation").inc(rejected)
        _log.info("notes.rejected", relationship_id=work.bond.id, operations=rejected)
    turns = tuple(each.turn_id for each in said)
    # Where it was not shown all, each entry stands for no more than it says.
    made_of = shown_lately(entries) if shown is entries else tuple(known)
    there = {entry.content.casefold() for entry in entries}
    new = [each for each in kept if each.op != "ADD" or (each.entry or "").casefold() not in there]
    whole = not answer.cut_off and not answer.mended["too_many"]
    return [await _findable(work, NotesUpdate(each, turns, made_of)) for each in new], whole


async def _ruled(
    work: CurationContext, said: Sequence[Utterance], entries: Sequence[Record]
) -> list[NotesUpdate]:
    """Return what rules note of what was said."""
    chars = chars_of(said) + sum(len(entry.content) for entry in entries)
    ruled = await aside(chars, lambda: by_rules(said, entries))
    return [await _findable(work, each) for each in ruled]


async def _findable(work: CurationContext, note: NotesUpdate) -> NotesUpdate:
    """Return a note with the vector that its entry is found by."""
    entry = note.operation.entry
    return note if entry is None else replace(note, vector=await work.vector(entry))


async def _to_be_found(work: CurationContext) -> dict[int, npt.NDArray[np.float32]]:
    """Return the vectors of some entries that have none yet."""
    blind = [each for each in work.of("scratchpad") if each.vector is None][:_LET_BE_FOUND]
    return {each.id: await work.vector(each.content) for each in blind}


def to_be_shown(entries: Sequence[Record], said: npt.NDArray[np.float32]) -> list[Record]:
    """Return the newest entries, and of the others those nearest to what was said."""
    by_age = sorted(entries, key=lambda each: each.updated_at, reverse=True)
    newest, others = by_age[:_SHOWN_NEWEST], by_age[_SHOWN_NEWEST:]

    def nearness(entry: Record) -> float:
        return -1.0 if entry.vector is None else float(np.dot(entry.vector, said))

    chosen = {each.id for each in (*newest, *sorted(others, key=nearness)[-_SHOWN_NEAREST:])}
    return [each for each in entries if each.id in chosen]


def shown_lately(entries: Sequence[Record]) -> tuple[int, ...]:
    """Return entries that, with what they were made of, stand for all that a model was shown.

    The model was shown every entry there was whenever it wrote one: what it wrote last was made of
    all before that, and only what was changed since stands for itself.
    """
    written = [entry.updated_at for entry in entries if entry.made_by == "model"]
    last = max(written, default=None)
    return tuple(entry.id for entry in entries if last is None or entry.updated_at >= last)


def checked(
    raw: Sequence[NoteOperation], kinds: Collection[str], known: set[int]
) -> list[NoteOperation]:
    """Return the operations that can be done; each is judged by itself."""
    named = {name.casefold(): name for name in kinds}
    kept = []
    for each in raw:
        kind = each.kind and named.get(each.kind.casefold(), named.get("other"))
        fits = {
            "ADD": each.entry is not None and kind is not None,
            "UPDATE": each.entry is not None and each.id in known and (kind or not each.kind),
            "DELETE": each.id in known,
        }[each.op]
        if fits:
            kept.append(msgspec.structs.replace(each, kind=kind))
    return kept


def by_rules(said: Sequence[Utterance], entries: Sequence[Record]) -> list[NotesUpdate]:
    """Return operations without a language model: what the user says of itself, by its kind.

    A statement about a slot that an entry fills already (home, work, a taste) updates that entry.
    """
    notes: list[NotesUpdate] = []
    slots = {fact.slot: entry.id for entry in entries for fact in facts_in(entry.content)}
    known = {entry.content: entry.id for entry in entries}
    fresh: dict[str, int] = {}
    for utterance in said:
        for text in sentences_of(utterance.text) if utterance.by_user else ():
            kind = kind_of(text)
            if kind is None:
                continue
            if text in fresh:
                place = fresh[text]
                notes[place] = replace(notes[place], turns=(*notes[place].turns, utterance.turn_id))
                continue
            if text in known:  # from now on made of this turn as well
                again = NoteOperation("UPDATE", known[text], kind, text)
                notes.append(NotesUpdate(again, (utterance.turn_id,)))
                continue
            fresh[text] = len(notes)
            same = next((slots[fact.slot] for fact in facts_in(text) if fact.slot in slots), None)
            operation = NoteOperation("ADD" if same is None else "UPDATE", same, kind, text)
            notes.append(NotesUpdate(operation, (utterance.turn_id,)))
    return notes


def kind_of(text: str) -> str | None:
    """Return the kind of entry that a sentence of the user makes, None where it makes none."""
    if text.endswith("?"):
        return None
    floors = {floor.name for floor in floors_in(text)}
    for name, kind in (("identity", "identity"), ("goal", "goal"), ("constraint", "preference"),
                       ("preference", "preference")):  # fmt: skip
        if name in floors:
            return kind
    stated = next((each for each in statements_in(text) if each.holds), None)
    if stated is not None:
        return _KIND_OF.get(PROFILE_SLOTS[stated.slot].kind, "other")
    if set(terms_of(text)) & _KIN and " my " in f" {text.lower()} ":
        return "relationship"
    matters = judge(text, None, SignificanceRules()).score
    return "event" if matters >= _EVENT else None


async def _apply(
    work: CurationContext, changes: RecordChanges, note: NotesUpdate, present: dict[int, Record]
) -> None:
    """Apply an operation to the entries that are `present`, and take from them what it removes."""
    operation = note.operation
    entry = NewRecord(
        layer="scratchpad",
        kind=operation.kind or "other",
        content=operation.entry or "",
        made_by=work.maker,
        vector=note.vector,
        turns=note.turns,
        sources=tuple(each for each in note.entries if each in present and each != operation.id),
    )
    if entry.content and work.dismissed("scratchpad", entry.content):
        return
    if operation.op == "ADD":
        await changes.add(entry)
        return
    before = None if operation.id is None else present.get(operation.id)
    # What somebody wrote may be said anew, which its history tells; only they take it away.
    if before is None or (operation.op == "DELETE" and by_hand(before.made_by)):
        work.metrics.dropped.labels("invalid_operation").inc()
    elif operation.op == "DELETE":
        await changes.remove([before.id])
        del present[before.id]
    elif before.content != entry.content:
        await changes.change(before.id, replace(entry, kind=operation.kind or before.kind))
    elif not by_hand(before.made_by):  # from now on made of these turns as well
        await changes.add_sources(before.id, entry.turns, entry.sources)


async def _make_room(work: CurationContext, changes: RecordChanges, added: int) -> None:
    """Remove entries beyond the most there may be; none that somebody wrote by hand."""
    entries = work.of("scratchpad")
    chars = sum(len(entry.content) for entry in entries)
    gone = await aside(chars, lambda: without_room(entries, added))
    if gone:
        work.metrics.dropped.labels("note").inc(await changes.remove(gone))
        _log.info("notes.made_room", relationship_id=work.bond.id, entries=gone)


def without_room(entries: Sequence[Record], added: int) -> list[int]:
    """Return the entries that make room for others: what matters least, of that the oldest."""
    over = len(entries) + added - _MOST_ENTRIES
    if over <= 0:
        return []
    made = [entry for entry in entries if not by_hand(entry.made_by)]
    rules = SignificanceRules()
    made.sort(key=lambda each: (judge(each.content, None, rules).score, each.updated_at))
    return [each.id for each in made[:over]]
