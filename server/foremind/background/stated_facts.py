"""Saves what users state about themselves or ask to have pinned: by rules, after each turn."""

from collections.abc import Sequence

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import Utterance, chars_of
from foremind.background.profile import ProfileEntry, stated_in, write_profile
from foremind.background.profile_extraction import uses_model
from foremind.domain.record import NewRecord
from foremind.domain.relationship import ChangeSet, TranscriptTurn
from foremind.runtime.offload import run_or_offload
from foremind.storage.record_changes import RecordChanges
from foremind.text.pin_requests import text_to_pin

_MAX_TURNS = 40  # per batch


async def save_stated_facts(
    context: CurationContext, turns: Sequence[TranscriptTurn]
) -> int | None:
    """Save the stated facts and pinned texts of a batch of turns; uses no model.

    Return the id of the last turn covered, None where there were no turns.
    """
    batch = list(turns[:_MAX_TURNS])
    if not batch:
        return None
    utterances = context.utterances(batch)
    pinned = await _pinned_records(context, utterances) if context.policy.on("vault") else []
    entries = await _stated(context, utterances)

    async def write(changes: RecordChanges) -> None:
        await write_profile(context, changes, entries)
        for record in pinned:
            await changes.add(record)
        changes.advance("stated", batch[-1].id, context.relationship.stated_turn_id)
        if not uses_model(context):
            changes.advance("profiled", batch[-1].id)

    context.plan(write)
    return batch[-1].id


async def resave_stated_facts(
    context: CurationContext, change_set: ChangeSet, turns: Sequence[TranscriptTurn]
) -> None:
    """Save the facts of turns again that were removed because another source was erased."""
    entries = await _stated(context, context.utterances(turns))

    async def write(changes: RecordChanges) -> None:
        await write_profile(context, changes, entries)
        if not uses_model(context):  # otherwise it reads these turns again as well
            await changes.remove_change_set(change_set)

    context.plan(write)


async def _stated(
    context: CurationContext, utterances: Sequence[Utterance]
) -> Sequence[ProfileEntry]:
    """Return what rules find in the user's utterances for the profile, if there is one."""
    if not context.policy.on("profile"):
        return []
    return await run_or_offload(chars_of(utterances), lambda: stated_in(utterances))


async def _pinned_records(
    context: CurationContext, utterances: Sequence[Utterance]
) -> list[NewRecord]:
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
