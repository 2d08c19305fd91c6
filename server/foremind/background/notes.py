"""The notes: what is worth knowing of a user in later conversations (wire layer `scratchpad`).

A model reads each turn once: it is asked for notes and for the profile together.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.background.extractive_summary import Utterance, chars_of
from foremind.background.note_rules import NotesUpdate, note_rank, updates_by_rules
from foremind.background.profile_extraction import (
    accepted_facts,
    stated,
    uses_model,
    write_profile,
)
from foremind.background.prompts import (
    NoteOperation,
    NotesAndProfileAnswer,
    NotesAnswer,
    ProfileAnswer,
    notes_prompt,
)
from foremind.background.step_context import Answered, StepContext, Write
from foremind.background.step_definitions import Outcome
from foremind.domain.background_step import MAX_GATHERED_MESSAGES
from foremind.domain.record import Details, NewRecord, Record, RecordLayer, is_manual
from foremind.domain.relationship import TranscriptTurn
from foremind.llm.background_answer_gate import AnswerGate
from foremind.llm.prompt.layout import Message
from foremind.memory.profile import ProfileEntry
from foremind.memory.scoring import significance_by_words
from foremind.runtime.supervision import run_or_offload
from foremind.storage.record_store import RecordChanges
from foremind.text.tokenization import words_of

_MAX_ENTRIES = 500  # beyond it the least significant, and of those the oldest, are evicted
_SHOWN_NEWEST, _SHOWN_NEAREST = 30, 30  # entries that a model is shown with a batch of turns
_MAX_TURNS = 40  # per batch
#: Per batch: what is gathered, with the replies; what is worth noting of them fits into the answer.
_MAX_TURNS_FOR_MODEL = 2 * MAX_GATHERED_MESSAGES
_MAX_TOKENS = 1400  # of an answer, in at most a quarter of the model's context
_LINE_TOKENS = 16  # overhead of a line: the name, quotation marks, perhaps the day
_LAYERS: tuple[RecordLayer, ...] = ("scratchpad",)
#: What is asked for, of what is on; and the form of the answer.
_READ: tuple[RecordLayer, ...] = ("scratchpad", "profile")
_SHAPES: Mapping[tuple[RecordLayer, ...], type[msgspec.Struct]] = {
    ("scratchpad",): NotesAnswer, ("profile",): ProfileAnswer, _READ: NotesAndProfileAnswer,
}  # fmt: skip

_log = structlog.get_logger("foremind.background")


async def update_notes(context: StepContext) -> Outcome:
    """Update the notes with a batch of new turns, and the profile with what a model finds there."""
    relationship = context.relationship
    facts = relationship.facts_to_redo if uses_model(context) else ()
    return await context.read_turns(
        "noted",
        partial(_next_batch, context),
        partial(_read, context),
        [*relationship.change_sets_for("scratchpad"), *facts],
    )


async def _read(
    context: StepContext, turns: Sequence[TranscriptTurn], layers: Collection[RecordLayer]
) -> tuple[Write, int]:
    """Return how to write what follows from turns, and the id of the last turn covered."""
    relationship, answered = context.relationship, list[TranscriptTurn]()
    if (
        context.server is not None
        and turns
        and turns[0].speaker == "companion"
        and turns[0].id > relationship.noted_turn_id
    ):  # a reply made anew stands after what was noted of its message, and is read with it
        answered = await context.background.answered_by(relationship.id, turns[0].id)
    utterances = context.utterances([*answered, *turns])
    updates, facts = list[NotesUpdate](), list[ProfileEntry]()
    sources, complete = tuple[int, ...](), True
    asked = _asked(context, layers)
    if asked and any(utterance.by_user for utterance in utterances):
        entries = context.records_of("scratchpad") if "scratchpad" in asked else []
        shown = await _shown(context, entries, utterances)
        # Where the model was shown a selection, its sources are exactly the entries in it.
        sources = recent_sources(entries) if shown is entries else tuple(note.id for note in shown)
        answer = await context.ask(
            "notes",
            lambda: _prompt(context, asked, shown, utterances),
            stated(utterances),
            _SHAPES[tuple(asked)],
            _answer_tokens(context),
            whole=False,
        )
        if "profile" in asked and answer is not None:  # rules have read these turns before
            facts = accepted_facts(context, answer, utterances)
        if "scratchpad" in asked:
            updates = await _updates(context, answer, utterances, shown, sources)
        complete = answer is None or context.fell_back or answer.complete
    if facts:
        await context.reload()  # rules may have written while the model did

    async def write(changes: RecordChanges) -> None:
        if not (updates or facts):
            return
        current = await changes.records_in_layers(_LAYERS)
        notes = context.records_of("scratchpad")
        present = {entry.id: entry for entry in notes if entry.id in current}
        await write_profile(context, changes, facts, [id_ for id_ in sources if id_ in current])
        for update in updates:  # those of an entry removed meanwhile are dropped
            await _apply(context, changes, update, present)
        await _evict(context, changes, sum(update.operation.op == "ADD" for update in updates))

    # Where the answer was cut off, what is missing most likely concerns the later turns.
    last = len(turns) - 1 if complete else (len(turns) - 1) // 2
    return write, turns[last].id if turns else 0


def _next_batch(context: StepContext, turns: Sequence[TranscriptTurn]) -> list[TranscriptTurn]:
    """Return the oldest turns that fit into one batch, and into the model's context."""
    if context.server is None or not turns:
        return list(turns[:_MAX_TURNS])
    asked = _asked(context, _READ)
    shown = context.records_of("scratchpad")[-_SHOWN_NEWEST - _SHOWN_NEAREST :]
    prompt = _prompt(context, asked, shown, ())
    room = context.remaining_tokens(prompt, _answer_tokens(context))
    size = 0
    for turn in turns[:_MAX_TURNS_FOR_MODEL]:
        room -= context.count_tokens(turn.content) + _LINE_TOKENS
        if room < 0:
            break
        size += 1
    return list(turns[: max(1, size)])


def _asked(context: StepContext, layers: Collection[RecordLayer]) -> list[RecordLayer]:
    """Return those of `layers` that are on and that this step reads for."""
    is_read = {"scratchpad": context.policy.on("scratchpad"), "profile": uses_model(context)}
    return [layer for layer in _READ if layer in layers and is_read[layer]]


def _answer_tokens(context: StepContext) -> int:
    return min(_MAX_TOKENS, context.policy.context_tokens // 4)


def _prompt(
    context: StepContext,
    asked: Collection[RecordLayer],
    shown: Sequence[Record],
    utterances: Sequence[Utterance],
) -> list[Message]:
    """Return the prompt, with the newest entries in at most a quarter of the model's context."""
    policy = context.policy
    entries = [(entry.id, entry.kind, entry.content) for entry in shown]
    room = policy.context_tokens // 4
    kept = []
    for entry in reversed(entries):
        room -= context.count_tokens(entry[2]) + _LINE_TOKENS
        if room < 0:
            break
        kept.append(entry)
    notes = policy.scratchpad if "scratchpad" in asked else None
    profile = policy.profile if "profile" in asked else None
    return notes_prompt(notes, kept[::-1], profile, utterances)


async def _shown(
    context: StepContext, entries: list[Record], utterances: Sequence[Utterance]
) -> list[Record]:
    """Return the entries that a model is shown: all, unless there are too many."""
    if context.server is None or len(entries) <= _SHOWN_NEWEST + _SHOWN_NEAREST:
        return entries
    query = " ".join(utterance.text for utterance in utterances if utterance.by_user)
    return entries_for_prompt(entries, await context.embed(query))


async def _updates(
    context: StepContext,
    answer: Answered[Any] | None,
    utterances: Sequence[Utterance],
    shown: Sequence[Record],
    sources: tuple[int, ...],
) -> list[NotesUpdate]:
    """Return the updates that follow from utterances."""
    entries = context.records_of("scratchpad")
    operations = None
    if answer is not None:
        size = chars_of(utterances)
        operations = await run_or_offload(
            size, lambda: _accepted(context, answer, utterances, shown)
        )
        if answer.value.operations and not operations:
            context.refuse("notes")
            operations = None
    if operations is None:
        updates = await asyncio.to_thread(updates_by_rules, utterances, entries)
    else:
        turns = tuple(utterance.turn_id for utterance in utterances)
        present = {entry.content.casefold() for entry in entries}
        updates = [
            NotesUpdate(operation, turns, sources)
            for operation in operations
            if operation.op != "ADD" or (operation.entry or "").casefold() not in present
        ]
    return await _with_vectors_and_ranks(context, updates)


def _accepted(
    context: StepContext,
    answer: Answered[Any],
    utterances: Sequence[Utterance],
    shown: Sequence[Record],
) -> list[NoteOperation]:
    """Return the operations of an answer that are valid and grounded; count and log the others."""
    known = {entry.id: entry.content for entry in shown}
    operations = answer.value.operations
    valid = valid_operations(operations, context.policy.kinds, set(known))
    gate = answer.gate.with_given(utterance.text for utterance in utterances)
    accepted = grounded_operations(valid, known, gate)
    rejected = len(operations) - len(accepted)
    if rejected:
        context.metrics.dropped.labels("invalid_operation").inc(rejected)
        _log.info("notes.rejected", relationship_id=context.relationship.id, operations=rejected)
    return accepted


async def _with_vectors_and_ranks(
    context: StepContext, updates: Sequence[NotesUpdate]
) -> list[NotesUpdate]:
    """Return updates with the vectors and ranks of their entries."""
    kinds = {note.id: note.kind for note in context.records_of("scratchpad")}

    def ranked(update: NotesUpdate) -> NotesUpdate:
        operation = update.operation
        if operation.entry is None:
            return update
        kind = operation.kind or kinds.get(operation.id or 0, "other")
        rank = note_rank(kind, operation.entry, context.relationship.user_name)
        return replace(update, details=Details(rank=rank))

    # Reading many short texts takes longer than reading one of their length.
    ranks = await asyncio.to_thread(lambda: [ranked(update) for update in updates])
    return [
        update
        if update.operation.entry is None
        else replace(update, vector=await context.embed(update.operation.entry))
        for update in ranks
    ]


def entries_for_prompt(entries: Sequence[Record], query: npt.NDArray[np.float32]) -> list[Record]:
    """Return the newest entries, and of the others those most similar to `query`.

    Args:
        query: unit vector of what the user said, float32 [dimension].
    """
    by_age = sorted(entries, key=lambda entry: entry.updated_at, reverse=True)
    newest, others = by_age[:_SHOWN_NEWEST], by_age[_SHOWN_NEWEST:]

    def similarity(entry: Record) -> float:
        return -1.0 if entry.vector is None else float(np.dot(entry.vector, query))

    nearest = sorted(others, key=similarity)[-_SHOWN_NEAREST:]
    chosen = {entry.id for entry in (*newest, *nearest)}
    return [entry for entry in entries if entry.id in chosen]


def recent_sources(entries: Sequence[Record]) -> tuple[int, ...]:
    """Return entries that, with their own sources, represent all that a model was shown.

    The model was shown every entry whenever it wrote one, so its last entry has all earlier ones
    among its sources; only entries changed since then must be listed themselves.
    """
    written = [entry.updated_at for entry in entries if entry.made_by == "model"]
    last = max(written, default=None)
    return tuple(entry.id for entry in entries if last is None or entry.updated_at >= last)


def valid_operations(
    operations: Sequence[NoteOperation], kinds: Collection[str], known: set[int]
) -> list[NoteOperation]:
    """Return the operations that can be applied; each is validated by itself.

    Args:
        known: ids of the entries that may be updated or deleted.
    """
    canonical = {name.casefold(): name for name in kinds}
    valid = []
    for operation in operations:
        kind = operation.kind and canonical.get(operation.kind.casefold(), canonical.get("other"))
        is_valid = {
            "ADD": operation.entry is not None and kind is not None,
            "UPDATE": operation.entry is not None
            and operation.id in known
            and (kind or not operation.kind),
            "DELETE": operation.id in known,
        }[operation.op]
        if is_valid:
            valid.append(msgspec.structs.replace(operation, kind=kind))
    return valid


def grounded_operations(
    operations: Sequence[NoteOperation], known: Mapping[int, str], gate: AnswerGate
) -> list[NoteOperation]:
    """Return the operations that what was said gives reason for, each once.

    What is said of something else than an entry cannot delete it, and is added instead of
    replacing it.

    Args:
        known: texts of the entries by id.
        gate: of what was said.
    """
    grounded: dict[tuple[str, str], NoteOperation] = {}
    for operation in operations:
        former = "" if operation.op == "ADD" else known.get(operation.id or 0, "")
        if operation.op == "DELETE":
            if gate.touches(former):
                grounded["DELETE", str(operation.id)] = operation
            continue
        entry = operation.entry or ""
        key = " ".join(words_of(entry))
        if not gate.touches(entry) or not gate.with_given([former]).admits(entry):
            continue
        if operation.op == "UPDATE" and not (gate.touches(former) or gate.shares(entry, former)):
            added = NoteOperation("ADD", None, operation.kind or "other", entry)
            grounded.setdefault(("", key), added)
        else:
            grounded.setdefault(("", key), operation)
    return list(grounded.values())


async def _apply(
    context: StepContext,
    changes: RecordChanges,
    update: NotesUpdate,
    present: dict[int, Record],
) -> None:
    """Apply an update to the entries in `present`, and delete from it what it removes."""
    operation = update.operation
    entry = NewRecord(
        layer="scratchpad",
        kind=operation.kind or "other",
        content=operation.entry or "",
        made_by=context.made_by,
        details=update.details,
        vector=update.vector,
        turns=update.turns,
        sources=tuple(
            entry_id
            for entry_id in update.entries
            if entry_id in present and entry_id != operation.id
        ),
    )
    if entry.content and context.dismissed("scratchpad", entry.content):
        return
    if operation.op == "ADD":
        await changes.add(entry)
        return
    before = None if operation.id is None else present.get(operation.id)
    # A model may rephrase a manual entry, which its history shows, but never delete it.
    if before is None or (operation.op == "DELETE" and is_manual(before.made_by)):
        context.metrics.dropped.labels("invalid_operation").inc()
    elif operation.op == "DELETE":
        await changes.remove([before.id])
        del present[before.id]
    elif before.content != entry.content:
        await changes.change(before.id, replace(entry, kind=operation.kind or before.kind))
    elif not is_manual(before.made_by):  # repeated: only its sources change
        await changes.add_sources(before.id, entry.turns, entry.sources)


async def _evict(context: StepContext, changes: RecordChanges, added: int) -> None:
    """Remove entries beyond the limit, never manual ones."""
    entries = context.records_of("scratchpad")
    chars = sum(len(entry.content) for entry in entries)
    evicted = await run_or_offload(chars, lambda: notes_to_evict(entries, added))
    if evicted:
        context.metrics.dropped.labels("note").inc(await changes.remove(evicted))
        _log.info("notes.made_room", relationship_id=context.relationship.id, entries=evicted)


def notes_to_evict(entries: Sequence[Record], added: int) -> list[int]:
    """Return the ids of entries beyond the limit: the least significant, of those the oldest."""
    generated = [entry for entry in entries if not is_manual(entry.made_by)]
    excess = len(generated) + added - _MAX_ENTRIES
    if excess <= 0:
        return []
    generated.sort(key=lambda entry: (significance_by_words(entry.content), entry.updated_at))
    return [entry.id for entry in generated[:excess]]
