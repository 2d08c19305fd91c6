"""Extracts profile entries with a language model, some turns at a time."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import structlog

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import Utterance
from foremind.background.profile import ProfileEntry, write_profile
from foremind.background.prompts import ProfileAnswer, SlottedValue, profile_prompt
from foremind.domain.companion import SLOT_ALIASES, ProfileSlot
from foremind.domain.errors import UnusableAnswer
from foremind.domain.relationship import ChangeSet, TranscriptTurn
from foremind.storage.record_changes import RecordChanges
from foremind.text.sentences import QUESTION_MARKS

_MAX_TURNS = 24  # per request
_MIN_USER_TURNS = 12  # before a session that is still active is read: what rules find is known
_MAX_TOKENS = 600
_MAX_VALUE_WORDS = 16  # more words are a story, not a value

_log = structlog.get_logger("foremind.background")


def uses_model(context: CurationContext) -> bool:
    """Return whether a model reads for the profile; rules have read every turn before it."""
    return context.model.server is not None and context.policy.on("profile")


def turns_to_read(
    turns: Sequence[TranscriptTurn], active: Collection[UUID]
) -> list[TranscriptTurn]:
    """Return the next turns to read: of sessions that are over, or enough of an active one.

    Args:
        active: ids of the sessions that are not over.
    """
    over = [count for count, turn in enumerate(turns, 1) if turn.session_id not in active]
    if over:
        return list(turns[: min(over[-1], _MAX_TURNS)])
    enough = sum(turn.speaker == "user" for turn in turns) >= _MIN_USER_TURNS
    return list(turns[:_MAX_TURNS]) if enough else []


async def update_profile(
    context: CurationContext,
    turns: Sequence[TranscriptTurn],
    change_set: ChangeSet | None = None,
) -> None:
    """Update the profile with what a model finds in turns.

    Args:
        change_set: the request to read them again after an erasure, if there is one.
    """
    entries = await _extract(context, context.utterances(turns))
    await context.reload()  # rules may have written while the model did

    async def write(changes: RecordChanges) -> None:
        await write_profile(context, changes, entries)
        if change_set is None:
            changes.advance("profiled", turns[-1].id, context.relationship.profiled_turn_id)
        else:
            await changes.remove_change_set(change_set)

    context.plan(write)


async def _extract(context: CurationContext, utterances: Sequence[Utterance]) -> list[ProfileEntry]:
    if not any(utterance.by_user for utterance in utterances):
        return []
    prompt = profile_prompt(context.policy.profile, utterances)
    try:
        answer = (
            await context.model.ask_in_detail("profile", prompt, ProfileAnswer, _MAX_TOKENS)
        ).value
    except UnusableAnswer as error:
        context.fall_back("profile", error)
        return []  # rules have already read these turns
    turns = tuple(utterance.turn_id for utterance in utterances)
    gate = context.gate(prompt, _stated(utterances))
    valid = [
        entry
        for entry in valid_entries(answer.entries, context.policy.slots, turns)
        if gate.admits_value(entry.content)
    ]
    rejected = len(answer.entries) - len(valid)
    if rejected:
        context.metrics.dropped.labels("invalid_entry").inc(rejected)
        _log.info("profile.rejected", relationship_id=context.relationship.id, entries=rejected)
    return valid


def _stated(utterances: Sequence[Utterance]) -> list[str]:
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
