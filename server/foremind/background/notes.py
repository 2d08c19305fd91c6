"""The notes: what is worth knowing of a user in later conversations (wire layer `scratchpad`)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.background.curation_context import Answered, CurationContext, Write
from foremind.background.extractive_summary import Utterance, chars_of
from foremind.background.note_rules import NotesUpdate, note_rank, updates_by_rules
from foremind.background.prompts import NoteOperation, NotesAnswer, notes_prompt
from foremind.background.step_definitions import Outcome
from foremind.domain.companion import SignificanceRules
from foremind.domain.record import Details, NewRecord, Record, RecordLayer, is_manual
from foremind.domain.relationship import TranscriptTurn
from foremind.llm.answer_gate import AnswerGate
from foremind.llm.prompt.layout import Message
from foremind.memory.scoring import score_significance
from foremind.runtime.offload import run_or_offload
from foremind.storage.record_changes import RecordChanges
from foremind.text.tokenization import words_of

_MAX_ENTRIES = 500  # beyond it the least significant, and of those the oldest, are evicted
_SHOWN_NEWEST, _SHOWN_NEAREST = 30, 30  # entries that a model is shown with a batch of turns
_MAX_TURNS = 40  # per batch
_MAX_TURNS_FOR_MODEL = 10  # per batch: what is worth noting of them fits into the answer
_MAX_TOKENS = 800
_LINE_TOKENS = 16  # overhead of a line: the name, quotation marks, perhaps the day
_LAYERS: tuple[RecordLayer, ...] = ("scratchpad",)

_log = structlog.get_logger("foremind.background")


async def update_notes(context: CurationContext) -> Outcome:
    """Update the notes with a batch of new turns."""
    return await context.read_turns(
        "noted",
        partial(_next_batch, context),
        partial(_read, context),
        context.relationship.change_sets_for("scratchpad"),
    )


async def _read(context: CurationContext, turns: Sequence[TranscriptTurn]) -> tuple[Write, int]:
    """Return how to write what follows from turns, and the id of the last turn covered."""
    relationship, answered = context.relationship, list[TranscriptTurn]()
    if (
        context.server is not None
        and turns
        and turns[0].speaker == "companion"
        and turns[0].id > relationship.noted_turn_id
    ):  # a reply made anew stands after what was noted of its message, and is read with it
        answered = await context.curation.answered_by(relationship.id, turns[0].id)
    updates, complete = await _updates(context, context.utterances([*answered, *turns]))

    async def write(changes: RecordChanges) -> None:
        if not updates:
            return
        current = await changes.records_in_layers(_LAYERS)
        notes = context.records_of("scratchpad")
        present = {entry.id: entry for entry in notes if entry.id in current}
        for update in updates:  # those of an entry removed meanwhile are dropped
            await _apply(context, changes, update, present)
        await _evict(context, changes, sum(update.operation.op == "ADD" for update in updates))

    # Where the answer was cut off, what is missing most likely concerns the later turns.
    last = len(turns) - 1 if complete else (len(turns) - 1) // 2
    return write, turns[last].id if turns else 0


def _next_batch(context: CurationContext, turns: Sequence[TranscriptTurn]) -> list[TranscriptTurn]:
    """Return the oldest turns that fit into one batch, and into the model's context."""
    if context.server is None or not turns:
        return list(turns[:_MAX_TURNS])
    shown = context.records_of("scratchpad")[-_SHOWN_NEWEST - _SHOWN_NEAREST :]
    room = context.remaining_tokens(_prompt(context, shown, ()), _MAX_TOKENS)
    size = 0
    for turn in turns[:_MAX_TURNS_FOR_MODEL]:
        room -= context.count_tokens(turn.content) + _LINE_TOKENS
        if room < 0:
            break
        size += 1
    return list(turns[: max(1, size)])


def _prompt(
    context: CurationContext, shown: Sequence[Record], utterances: Sequence[Utterance]
) -> list[Message]:
    """Return the prompt, with the newest entries in at most a quarter of the model's context."""
    entries = [(entry.id, entry.kind, entry.content) for entry in shown]
    room = context.policy.context_tokens // 4
    kept = []
    for entry in reversed(entries):
        room -= context.count_tokens(entry[2]) + _LINE_TOKENS
        if room < 0:
            break
        kept.append(entry)
    return notes_prompt(context.policy.scratchpad, kept[::-1], utterances)


async def _updates(
    context: CurationContext, utterances: Sequence[Utterance]
) -> tuple[list[NotesUpdate], bool]:
    """Return the updates that follow from utterances, and whether they are complete."""
    if not context.policy.on("scratchpad") or not any(
        utterance.by_user for utterance in utterances
    ):
        return [], True
    entries = context.records_of("scratchpad")
    shown = entries
    if context.server is not None and len(entries) > _SHOWN_NEWEST + _SHOWN_NEAREST:
        query = " ".join(utterance.text for utterance in utterances if utterance.by_user)
        shown = entries_for_prompt(entries, await context.embed(query))
    answer = await context.ask(
        "notes",
        lambda: _prompt(context, shown, utterances),
        [utterance.text for utterance in utterances],
        NotesAnswer,
        _MAX_TOKENS,
        whole=False,
    )
    operations: list[NoteOperation] = []
    if answer is not None:
        operations = await run_or_offload(
            chars_of(utterances),
            partial(_accepted, context, answer, shown),
        )
        if answer.value.operations and not operations:
            context.refuse("notes")
            answer = None
    if answer is None:
        return await _updates_by_rules(context, utterances, entries), True
    turns = tuple(utterance.turn_id for utterance in utterances)
    # Where the model was shown a selection, its sources are exactly the entries in it.
    sources = recent_sources(entries) if shown is entries else tuple({entry.id for entry in shown})
    present = {entry.content.casefold() for entry in entries}
    new = [
        operation
        for operation in operations
        if operation.op != "ADD" or (operation.entry or "").casefold() not in present
    ]
    updates = [NotesUpdate(operation, turns, sources) for operation in new]
    return await _with_vectors_and_ranks(context, updates), answer.complete


def _accepted(
    context: CurationContext, answer: Answered[NotesAnswer], shown: Sequence[Record]
) -> list[NoteOperation]:
    """Return the operations of an answer that are valid and grounded; count and log the others."""
    known = {entry.id: entry.content for entry in shown}
    operations = answer.value.operations
    valid = valid_operations(operations, context.policy.kinds, set(known))
    accepted = grounded_operations(valid, known, answer.gate)
    rejected = len(operations) - len(accepted)
    if rejected:
        context.metrics.dropped.labels("invalid_operation").inc(rejected)
        _log.info("notes.rejected", relationship_id=context.relationship.id, operations=rejected)
    return accepted


async def _updates_by_rules(
    context: CurationContext, utterances: Sequence[Utterance], entries: Sequence[Record]
) -> list[NotesUpdate]:
    updates = await asyncio.to_thread(updates_by_rules, utterances, entries)
    return await _with_vectors_and_ranks(context, updates)


async def _with_vectors_and_ranks(
    context: CurationContext, updates: Sequence[NotesUpdate]
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
    context: CurationContext,
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


async def _evict(context: CurationContext, changes: RecordChanges, added: int) -> None:
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
    rules = SignificanceRules()
    generated.sort(
        key=lambda entry: (score_significance(entry.content, None, rules).score, entry.updated_at)
    )
    return [entry.id for entry in generated[:excess]]
