"""Notes without a language model: what users say about themselves, by rules. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.background.extractive_summary import Utterance, sentences_of
from foremind.background.prompts import NoteOperation
from foremind.domain.companion import PROFILE_SLOTS, SignificanceRules
from foremind.domain.record import NO_DETAILS, Details, Record
from foremind.memory.exclusive_facts import values_in
from foremind.memory.minimum_scores import minimum_scores_in
from foremind.memory.scoring import score_significance
from foremind.text.questions import is_pure_question
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.statements.extraction import statements_in
from foremind.text.statements.wordings import in_first_person
from foremind.text.tokenization import terms_of

# The kind of entry that a statement becomes, by the kind of its profile slot.
_KIND_OF = {
    "identity": "identity", "need": "preference", "taste": "preference", "people": "relationship",
}  # fmt: skip
_KIND_ORDER = ("identity", "relationship", "goal", "preference", "event", "other")
_MIN_EVENT_SCORE = 0.5  # significance from which a sentence is an event worth noting
_KIN = frozenset(
    terms_of(
        "mother father mum mom dad sister brother wife husband partner son daughter friend "
        "girlfriend boyfriend grandmother grandfather grandma grandpa uncle aunt cousin dog cat "
        "boss colleague neighbour neighbor"
    )
)


@dataclass(frozen=True, slots=True)
class NotesUpdate:
    """An operation on the notes, and the turns and entries that it is made of."""

    operation: NoteOperation
    turns: tuple[int, ...]
    entries: tuple[int, ...] = ()
    vector: npt.NDArray[np.float32] | None = None
    details: Details = NO_DETAILS


@dataclass(frozen=True, slots=True)
class _KnownNote:
    """A note that is stored, or, of the given position, one of the updates so far."""

    facts: Mapping[str, str]
    entry_id: int | None
    update: int | None = None


def updates_by_rules(
    utterances: Sequence[Utterance], entries: Sequence[Record]
) -> list[NotesUpdate]:
    """Return updates without a language model, from what users say about themselves.

    A statement that gives all facts of an entry (home, work, a taste) other values updates that
    entry. One that says more of the same (what else the sister does) is an entry of its own. What
    has ended, or is taken back, is no entry any more.
    """
    updates: list[NotesUpdate | None] = []
    notes = {
        entry.content: _KnownNote(_changing_facts(entry.content), entry.id) for entry in entries
    }
    for utterance in utterances:
        for text in sentences_of(utterance.text) if utterance.by_user else ():
            turns = (utterance.turn_id,)
            for ended in [note for content, note in notes.items() if _ends(text, content)]:
                notes = {content: note for content, note in notes.items() if note is not ended}
                if ended.update is not None:
                    updates[ended.update] = None
                if ended.entry_id is not None:
                    updates.append(NotesUpdate(NoteOperation("DELETE", ended.entry_id), turns))
            kind = entry_kind(text)
            if kind is None:
                continue
            facts = _changing_facts(text)
            known = notes.pop(text, None)
            if known is None:
                known = next((note for note in notes.values() if _replaces(facts, note)), None)
                notes = {content: note for content, note in notes.items() if note is not known}
            if known is not None and known.update is not None:
                update = updates[known.update]
                assert update is not None  # what has ended is no note
                operation = msgspec.structs.replace(update.operation, kind=kind, entry=text)
                updates[known.update] = replace(
                    update, operation=operation, turns=(*update.turns, *turns)
                )
                notes[text] = replace(known, facts=facts)
                continue
            entry_id = None if known is None else known.entry_id
            operation = NoteOperation("ADD" if entry_id is None else "UPDATE", entry_id, kind, text)
            notes[text] = _KnownNote(facts, entry_id, len(updates))
            updates.append(NotesUpdate(operation, turns))
    return [update for update in updates if update is not None]


def _ends(text: str, content: str) -> bool:
    """Return whether a text takes back all that a note states."""
    ended = {
        (statement.slot, statement.value.casefold())
        for statement in statements_in(text)
        if not statement.holds
    }
    if not ended:
        return False
    stated = [statement for statement in statements_in(content) if statement.holds]
    return bool(stated) and all(
        not ended.isdisjoint({(fact.slot, fact.value.casefold()), (fact.slot, "")})
        for fact in stated
    )


def _changing_facts(text: str) -> dict[str, str]:
    """Return what a text states that has one value at a time, other than names of others.

    There may be several sisters, and what is said of one tells more than her name.
    """
    facts = values_in(text)
    if any(fact.slot.startswith("name of ") for fact in facts):
        return {}
    return {fact.slot: fact.value for fact in facts}


def _replaces(facts: Mapping[str, str], note: _KnownNote) -> bool:
    """Return whether new facts leave nothing of a note's, and change some."""
    return (
        bool(note.facts)
        and note.facts.keys() <= facts.keys()
        and note.facts.items() != facts.items()
    )


def entry_kind(text: str) -> str | None:
    """Return the kind of entry that a user's sentence becomes, None where it becomes none."""
    if text.endswith(QUESTION_MARKS) or is_pure_question(text):
        return None
    signals = {floor.name for floor in minimum_scores_in(text)}
    for name, kind in (("identity", "identity"), ("goal", "goal"), ("constraint", "preference"),
                       ("preference", "preference")):  # fmt: skip
        if name in signals:
            return kind
    stated = next((statement for statement in statements_in(text) if statement.holds), None)
    if stated is not None:
        return _KIND_OF.get(PROFILE_SLOTS[stated.slot].kind, "other")
    if set(terms_of(text)) & _KIN and " my " in f" {text.lower()} ":
        return "relationship"
    score = score_significance(text, None, SignificanceRules()).score
    return "event" if score >= _MIN_EVENT_SCORE else None


def note_rank(kind: str, text: str, user_name: str) -> int:
    """Return the position of a note among all of a user: needs, then by kind and significance.

    Needs are what a profile has as such: an allergy, a diet, how to be spoken to. They are told by
    what the note says, by a user or of one; kinds of a companion's own come after identity.
    """
    about = text[:1].lower() + text[1:]
    wordings = (text, f"I'm {about}", *in_first_person(text, user_name))
    if any(
        statement.holds and PROFILE_SLOTS[statement.slot].kind == "need"
        for wording in wordings
        for statement in statements_in(wording)
    ):
        return 1
    significance = score_significance(text, None, SignificanceRules()).score
    place = _KIND_ORDER.index(kind) if kind in _KIND_ORDER else 0.5
    return 2 + round(1000 * (place + 1 - significance))
