"""What users state of themselves, and what they ask to be saved: kept by rules after each turn."""

import re
from collections.abc import Sequence

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import Utterance, chars_of
from foremind.background.profile import stated_in, write_profile
from foremind.background.profile_extraction import asks_model
from foremind.domain.record import NewRecord
from foremind.domain.relationship import ChangeSet, TranscriptTurn
from foremind.runtime.offload import aside
from foremind.storage.record_changes import RecordChanges

_MOST_TURNS = 40  # that are read at once

_SAVE = re.compile(
    r"\s*(?:please |can you |could you )?(?:save|store|keep|write down|note) (?:this|that|it)"
    r"(?: for (?:me|us|later))?(?: please)?\s*[:,-]\s*(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)


async def keep_stated(work: CurationContext, turns: Sequence[TranscriptTurn]) -> int | None:
    """Keep what is stated, or asked to be saved, in some of the turns; no model is asked.

    Return the last of these turns, None where there was nothing to do.
    """
    new = list(turns[:_MOST_TURNS])
    if not new:
        return None
    said = work.utterances(new)
    to_save = await _saved(work, said) if work.policy.on("vault") else []
    async with work.changing() as changes:
        if work.policy.on("profile"):
            await _write_stated(work, changes, said)
        for saved in to_save:
            await changes.add(saved)
        await changes.advance("stated", new[-1].id, work.bond.stated_turn_id)
        if not asks_model(work):
            await changes.advance("profiled", new[-1].id)
    await work.refresh()
    return new[-1].id


async def state_again(
    work: CurationContext, portion: ChangeSet, turns: Sequence[TranscriptTurn]
) -> None:
    """Keep again what is stated in turns, where it was removed with what else it was made of."""
    said = work.utterances(turns)
    async with work.changing() as changes:
        if work.policy.on("profile"):
            await _write_stated(work, changes, said)
        if not asks_model(work):  # else the turns are read again by it as well
            await changes.noted_again(portion)
    await work.refresh()


async def _write_stated(
    work: CurationContext, changes: RecordChanges, said: Sequence[Utterance]
) -> None:
    """Write into the profile what rules read of what the user says."""
    entries = await aside(chars_of(said), lambda: stated_in(said))
    await write_profile(work, changes, entries)


async def _saved(work: CurationContext, said: Sequence[Utterance]) -> list[NewRecord]:
    """Return what the user asks to be kept word for word: "save this: the gate code is 4711"."""
    return [
        NewRecord(
            layer="vault",
            content=what,
            made_by="user",
            vector=await work.vector(what),
            turns=(each.turn_id,),
        )
        for each in said
        if each.by_user and (what := asked_to_save(each.text)) is not None
    ]


def asked_to_save(text: str) -> str | None:
    """Return what a text asks to be kept, None where it asks for nothing of the kind."""
    match = _SAVE.match(text)
    return None if match is None else match["what"].strip()
