"""Notes without a language model: what users say about themselves, by rules. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.background.extractive_summary import (
    MAX_SENTENCE_CHARS,
    Utterance,
    sentences_of,
)
from foremind.background.prompts import NoteOperation
from foremind.domain.companion_rules import PROFILE_SLOTS
from foremind.domain.record import NO_DETAILS, Details, Record
from foremind.llm.prompt.sections import in_first_person
from foremind.memory.profile import values_of
from foremind.memory.scoring import minimum_scores_in, significance_by_words
from foremind.text.languages.utterances import is_pure_question
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.statements.chat_text import own_words, without_assent
from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_key, terms_of

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

    statements: Sequence[Statement]
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
    said = [
        (text, statements_in(text), (utterance.turn_id,))
        for utterance in utterances
        if utterance.by_user
        for text in _noted_texts(utterance.text)
    ]
    notes: dict[str, _KnownNote] = {}
    # Only what is stated now can change what was noted before: entries are not read for chat.
    changing = any(statements for _, statements, _ in said)
    for entry in entries:
        noted = statements_in(entry.content) if changing else []
        notes[entry.content] = _KnownNote(noted, _changing_facts(noted), entry.id)
    for text, statements, turns in said:
        for content, ended in [*notes.items()]:
            if _ends(statements, ended.statements):
                del notes[content]
                if ended.update is not None:
                    updates[ended.update] = None
                if ended.entry_id is not None:
                    updates.append(NotesUpdate(NoteOperation("DELETE", ended.entry_id), turns))
        kind = entry_kind(text, statements)
        if kind is None:
            continue
        facts = _changing_facts(statements)
        replaced = text if text in notes else _replaced_by(facts, notes)
        known = _KnownNote((), {}, None) if replaced is None else notes.pop(replaced)
        if known.update is not None:
            update = updates[known.update]
            assert update is not None  # what has ended is no note
            operation = msgspec.structs.replace(update.operation, kind=kind, entry=text)
            updates[known.update] = replace(
                update, operation=operation, turns=(*update.turns, *turns)
            )
            notes[text] = replace(known, statements=statements, facts=facts)
            continue
        op: Literal["ADD", "UPDATE"] = "ADD" if known.entry_id is None else "UPDATE"
        operation = NoteOperation(op, known.entry_id, kind, text)
        notes[text] = _KnownNote(statements, facts, known.entry_id, len(updates))
        updates.append(NotesUpdate(operation, turns))
    return [update for update in updates if update is not None]


def _noted_texts(text: str) -> list[str]:
    """Return an author's own sentences; all as one where a later one corrects what one states."""
    text = own_words(text)
    sentences = sentences_of(text)
    if len(sentences) < 2:
        return sentences
    alone = {fact for sentence in sentences for fact in _stated(sentence)}
    return sentences if alone <= _stated(text) else [text[:MAX_SENTENCE_CHARS]]


def _stated(text: str) -> set[tuple[str, str]]:
    return {(fact.slot, fact.value) for fact in statements_in(text) if fact.holds}


def _ends(statements: Sequence[Statement], noted: Sequence[Statement]) -> bool:
    """Return whether statements take back all that a note states."""
    ended = {
        (statement.slot, terms_key(statement.value))
        for statement in statements
        if not statement.holds
    }
    if not ended:
        return False
    stated = [statement for statement in noted if statement.holds]
    return bool(stated) and all(
        not ended.isdisjoint({(fact.slot, terms_key(fact.value)), (fact.slot, "")})
        for fact in stated
    )


def _changing_facts(statements: Sequence[Statement]) -> dict[str, str]:
    """Return the facts of statements that have one value at a time, other than names of others.

    There may be several sisters, and what is said of one tells more than her name.
    """
    facts = values_of(statements)
    if any(fact.slot.startswith("name of ") for fact in facts):
        return {}
    return {fact.slot: fact.value for fact in facts}


def _replaced_by(facts: Mapping[str, str], notes: Mapping[str, _KnownNote]) -> str | None:
    """Return the first note of which new facts leave nothing, and change some."""
    return next(
        (
            content
            for content, note in notes.items()
            if note.facts
            and note.facts.keys() <= facts.keys()
            and note.facts.items() != facts.items()
        ),
        None,
    )


def entry_kind(text: str, statements: Sequence[Statement]) -> str | None:
    """Return the kind of entry that a user's sentence becomes, None where it becomes none.

    Args:
        statements: what the sentence states.
    """
    text = without_assent(text)
    if text.endswith((*QUESTION_MARKS, ":")) or is_pure_question(text):
        return None
    signals = {floor.name for floor in minimum_scores_in(text)}
    for name, kind in (("identity", "identity"), ("goal", "goal"), ("constraint", "preference"),
                       ("preference", "preference")):  # fmt: skip
        if name in signals:
            return kind
    stated = next((statement for statement in statements if statement.holds), None)
    if stated is not None:
        return _KIND_OF.get(PROFILE_SLOTS[stated.slot].kind, "other")
    if set(terms_of(text)) & _KIN and " my " in f" {text.lower()} ":
        return "relationship"
    score = significance_by_words(text)
    return "event" if score >= _MIN_EVENT_SCORE else None


def note_rank(kind: str, text: str, user_name: str) -> int:
    """Return the position of a note among all of a user: needs, then by kind and significance.

    Needs are what a profile has as such: an allergy, a diet, how to be spoken to. They are told by
    what the note says, by a user or of one; kinds of a companion's own come after identity.
    """
    said = in_first_person(text, user_name)  # nothing for the user's own words
    wordings = (text, f"I'm {text[:1].lower()}{text[1:]}", *said) if said else (text,)
    if any(
        statement.holds and PROFILE_SLOTS[statement.slot].kind == "need"
        for wording in wordings
        for statement in statements_in(wording)
    ):
        return 1
    significance = significance_by_words(text)
    place = _KIND_ORDER.index(kind) if kind in _KIND_ORDER else 0.5
    return 2 + round(1000 * (place + 1 - significance))
