"""Notes without a language model: what users say about themselves, by rules. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from foremind.background.extractive_summary import Utterance, sentences_of
from foremind.background.prompts import NoteOperation
from foremind.domain.companion import PROFILE_SLOTS, SignificanceRules
from foremind.domain.record import Record
from foremind.memory.exclusive_facts import facts_in
from foremind.memory.minimum_scores import minimum_scores_in
from foremind.memory.scoring import score_significance
from foremind.text.questions import is_pure_question
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_of

# The kind of entry that a statement becomes, by the kind of its profile slot.
_KIND_OF = {
    "identity": "identity", "need": "preference", "taste": "preference", "people": "relationship",
}  # fmt: skip
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


def updates_by_rules(
    utterances: Sequence[Utterance], entries: Sequence[Record]
) -> list[NotesUpdate]:
    """Return updates without a language model, from what users say about themselves.

    A statement on a slot that an entry already fills (home, work, a taste) updates that entry.
    """
    updates: list[NotesUpdate] = []
    slots = {fact.slot: entry.id for entry in entries for fact in facts_in(entry.content)}
    known = {entry.content: entry.id for entry in entries}
    new: dict[str, int] = {}
    for utterance in utterances:
        for text in sentences_of(utterance.text) if utterance.by_user else ():
            kind = entry_kind(text)
            if kind is None:
                continue
            if text in new:
                index = new[text]
                turns = (*updates[index].turns, utterance.turn_id)
                updates[index] = replace(updates[index], turns=turns)
                continue
            if text in known:  # only adds this turn to the entry's sources
                repeated = NoteOperation("UPDATE", known[text], kind, text)
                updates.append(NotesUpdate(repeated, (utterance.turn_id,)))
                continue
            new[text] = len(updates)
            same = next((slots[fact.slot] for fact in facts_in(text) if fact.slot in slots), None)
            operation = NoteOperation("ADD" if same is None else "UPDATE", same, kind, text)
            updates.append(NotesUpdate(operation, (utterance.turn_id,)))
    return updates


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
