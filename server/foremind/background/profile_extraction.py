"""Makes the profile: by rules, of what a language model finds, and weekly of how a user talks."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import msgspec
import structlog

from foremind.background.due_work import usage_patterns_due
from foremind.background.extractive_summary import Utterance, chars_of
from foremind.background.prompts import SlottedValue
from foremind.background.step_context import Answered, StepContext, Write
from foremind.background.step_definitions import Outcome
from foremind.domain.companion_rules import SLOT_ALIASES, ProfileSlot
from foremind.domain.errors import Conflict
from foremind.domain.record import NewRecord, RecordLayer
from foremind.domain.relationship import SessionUsage, TranscriptTurn
from foremind.memory.profile import ProfileEntry, profile_change
from foremind.runtime.supervision import run_or_offload
from foremind.storage.record_store import RecordChanges
from foremind.text.languages.prompt_words import record_words
from foremind.text.pin_requests import text_to_pin
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.statements.extraction import statements_in

_MAX_STATED_TURNS = 40  # that rules read at once
_MAX_VALUE_WORDS = 16  # more words are a story, not a value

_MIN_SESSIONS = 10
# Of a user's messages, in UTF-8, whose characters take more bytes where a word has fewer of them.
_SHORT_BYTES, _LONG_BYTES = 30, 250
_PROFILE: tuple[RecordLayer, ...] = ("profile",)

_log = structlog.get_logger("foremind.background")


def uses_model(context: StepContext) -> bool:
    """Return whether a model reads for the profile; rules have read every turn before it."""
    return context.server is not None and context.policy.on("profile")


async def save_stated_facts(context: StepContext) -> Outcome:
    """Save what users state about themselves or ask to have pinned: by rules, at once."""
    relationship = context.relationship

    async def read(
        turns: Sequence[TranscriptTurn], _: Collection[RecordLayer]
    ) -> tuple[Write, int]:
        utterances, last = context.utterances(turns), turns[-1].id if turns else 0
        is_new = last > relationship.stated_turn_id
        pinned, entries = list[NewRecord](), list[ProfileEntry]()
        if is_new and context.policy.on("vault"):
            pinned = await _pinned_records(context, utterances)
        if context.policy.on("profile"):
            entries = await run_or_offload(chars_of(utterances), lambda: stated_in(utterances))

        async def write(changes: RecordChanges) -> None:
            await write_profile(context, changes, entries)
            for record in pinned:
                await changes.add(record)

        return write, last

    return await context.read_turns(
        "stated",
        lambda turns: turns[:_MAX_STATED_TURNS],
        read,
        relationship.facts_to_redo,
        ends_redo=not uses_model(context),  # otherwise it reads these turns again as well
    )


async def _pinned_records(context: StepContext, utterances: Sequence[Utterance]) -> list[NewRecord]:
    """Return what the user asks to have pinned: "save this: the gate code is 4711"."""
    return [
        NewRecord(
            layer="vault",
            content=text,
            made_by="user",
            vector=await context.embed(text),
            turns=(utterance.turn_id,),
        )
        for utterance in utterances
        if utterance.by_user and (text := text_to_pin(utterance.text)) is not None
    ]


def accepted_facts(
    context: StepContext, answer: Answered[Any], utterances: Sequence[Utterance]
) -> list[ProfileEntry]:
    """Return the entries of an answer that are valid and were said; count and log the others."""
    turns = tuple(utterance.turn_id for utterance in utterances)
    valid = [
        entry
        for entry in valid_entries(answer.value.entries, context.policy.slots, turns)
        if answer.gate.admits_value(entry.content)
    ]
    rejected = len(answer.value.entries) - len(valid)
    if rejected:
        context.metrics.dropped.labels("invalid_entry").inc(rejected)
        _log.info("profile.rejected", relationship_id=context.relationship.id, entries=rejected)
    return valid


async def write_profile(
    context: StepContext,
    changes: RecordChanges,
    entries: Sequence[ProfileEntry],
    sources: Sequence[int] = (),
) -> None:
    """Apply statements to the profile.

    Args:
        sources: the records that a model was shown when it found these.

    Raises:
        Conflict: the profile changed since the records of `context` were loaded.
    """
    if not entries:
        return
    present = context.records_of("profile")
    if await changes.records_in_layers(_PROFILE) != {record.id for record in present}:
        raise Conflict("The profile was changed concurrently.")
    slots = context.policy.slots
    change = await asyncio.to_thread(
        profile_change, present, entries, slots, lambda key: context.dismissed("profile", key)
    )
    for record in change.added:
        await changes.add(replace(record, sources=tuple(sources)))
    for before, record in change.changed:
        await changes.change(before.id, replace(record, sources=tuple(sources)), before.revision)
    for before, details, turns in change.restated:
        await changes.update_details(before.id, details)
        await changes.add_sources(before.id, turns, sources)
    if change.removed:
        await changes.remove(change.removed)


def stated_in(utterances: Iterable[Utterance]) -> list[ProfileEntry]:
    """Return the entries that rules find in a user's utterances, in the order of speaking."""
    return [
        ProfileEntry(
            statement.slot,
            statement.title,
            statement.content,
            (utterance.turn_id,),
            holds=statement.holds,
            instead=statement.instead,
        )
        for utterance in utterances
        if utterance.by_user
        for statement in statements_in(utterance.text)
    ]


def stated(utterances: Sequence[Utterance]) -> list[str]:
    """Return what states something of the user: their words, and what they were asked."""
    return [
        utterance.text
        for utterance in utterances
        if utterance.by_user or utterance.text.rstrip().endswith(QUESTION_MARKS)
    ]


def valid_entries(
    values: Sequence[Any], slots: Mapping[str, ProfileSlot], turns: tuple[int, ...]
) -> list[ProfileEntry]:
    """Return the valid entries of an answer; each is validated by itself."""
    entries = (_entry(value, slots, turns) for value in values)
    return [entry for entry in entries if entry is not None]


def _entry(
    value: Any, slots: Mapping[str, ProfileSlot], turns: tuple[int, ...]
) -> ProfileEntry | None:
    try:
        slotted = msgspec.convert(value, SlottedValue, from_attributes=True)
    except msgspec.ValidationError:
        return None
    name = " ".join(slotted.slot.casefold().split())
    name = next((slot for slot in slots if slot.casefold() == name), SLOT_ALIASES.get(name, name))
    content = " ".join(slotted.value.split()).rstrip(".")
    if name not in slots or not content or len(content.split()) > _MAX_VALUE_WORDS:
        return None
    title = name
    subject, colon, favourite = content.partition(": ")
    if name == "favourites" and colon and favourite:
        title, content = f"favourite {subject.casefold()}", favourite
    return ProfileEntry(name, title, content, turns, "model", slotted.holds)


async def update_usage_patterns(context: StepContext) -> Outcome:
    """Rewrite the inferred part of the profile, once a week or after an erasure."""
    relationship = context.relationship
    change_set = relationship.inferences_to_redo
    if change_set is None and not usage_patterns_due(relationship.habits_at, context.now):
        return Outcome()
    if change_set is not None and relationship.change_sets_for("episodes"):
        return Outcome()  # scheduled again once these are rewritten
    await context.load()
    sessions = await context.background.session_usage(relationship.id)
    patterns = usage_patterns_of(sessions, await context.language())
    known = {
        entry.title: entry for entry in context.records_of("profile") if entry.kind == "inferred"
    }

    async def write(changes: RecordChanges) -> None:
        for title, text in patterns.items() if context.policy.on("profile") else ():
            if context.dismissed("profile", title):
                continue
            record = NewRecord("profile", text, "rules", title=title, kind="inferred")
            if title not in known:
                await changes.add(record)
            elif known[title].content != text and known[title].made_by == "rules":
                await changes.change(known[title].id, record)
        await changes.remove(
            [
                entry.id
                for title, entry in known.items()
                if title not in patterns and entry.made_by == "rules"
            ]
        )
        await changes.connection.execute("record_usage_patterns_at", relationship.id, context.now)
        if change_set is not None:
            await changes.remove_change_set(change_set)

    context.plan(write)
    context.count_by_rules("habits")
    return Outcome(produced=True)


def usage_patterns_of(sessions: Sequence[SessionUsage], language: str) -> dict[str, str]:
    """Return usage patterns by title, as instructions; none for fewer than ten sessions. Pure.

    The titles are labels, which prompts show in the player's language.
    """
    if len(sessions) < _MIN_SESSIONS:
        return {}
    words = record_words(language)
    length = median(session.bytes / session.said for session in sessions)
    if _SHORT_BYTES < length < _LONG_BYTES:
        return {}
    return {"answers": words.short_answers if length <= _SHORT_BYTES else words.long_answers}
