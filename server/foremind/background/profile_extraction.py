"""The profile as a language model reads it out of what was said, some turns at a time."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import structlog

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import Utterance
from foremind.background.profile import ProfileEntry, write_profile
from foremind.background.prompts import ProfileAnswer, SlottedValue, for_profile
from foremind.domain.companion import SLOT_ALIASES, ProfileSlot
from foremind.domain.errors import UnusableAnswer
from foremind.domain.relationship import ChangeSet, TranscriptTurn

_MOST_TURNS = 24  # that are read at once
_ENOUGH = 6  # turns of the user for which a session that goes on is read
_MAX_TOKENS = 600
_MOST_WORDS = 16  # of a value; more is a story

_log = structlog.get_logger("foremind.background")


def asks_model(work: CurationContext) -> bool:
    """Tell whether a model reads for the profile; rules have read everything by then."""
    return work.server is not None and work.policy.on("profile")


def to_profile(turns: Sequence[TranscriptTurn], going_on: Collection[UUID]) -> list[TranscriptTurn]:
    """Return the turns that are read next: of sessions that are over, or once they are enough."""
    over = [place for place, turn in enumerate(turns, 1) if turn.session_id not in going_on]
    if over:
        return list(turns[: min(over[-1], _MOST_TURNS)])
    enough = sum(turn.speaker == "user" for turn in turns) >= _ENOUGH
    return list(turns[:_MOST_TURNS]) if enough else []


async def keep_profile(
    work: CurationContext, turns: Sequence[TranscriptTurn], again: ChangeSet | None = None
) -> None:
    """Take into the profile what a model reads in turns.

    Args:
        again: where the entries made of them were removed with what else they were made of.
    """
    entries = await _entries(work, work.utterances(turns))
    await work.refresh()  # rules may have written while the model did
    async with work.changing() as changes:
        await write_profile(work, changes, entries)
        if again is None:
            await changes.advance("profiled", turns[-1].id, work.bond.profiled_turn_id)
        else:
            await changes.noted_again(again)
    await work.refresh()


async def _entries(work: CurationContext, said: Sequence[Utterance]) -> list[ProfileEntry]:
    if not any(each.by_user for each in said):
        return []
    asked = for_profile(work.policy.profile, said)
    try:
        answer = await work.ask("profile", asked, ProfileAnswer, _MAX_TOKENS)
    except UnusableAnswer as error:
        work.stand_in("profile", error)
        return []  # rules have read it by then
    turns = tuple(each.turn_id for each in said)
    kept = entries_of(answer.entries, work.policy.slots, turns)
    rejected = len(answer.entries) - len(kept)
    if rejected:
        work.metrics.dropped.labels("invalid_entry").inc(rejected)
        _log.info("profile.rejected", relationship_id=work.bond.id, entries=rejected)
    return kept


def entries_of(
    answered: Sequence[Any], slots: Mapping[str, ProfileSlot], turns: tuple[int, ...]
) -> list[ProfileEntry]:
    """Return the entries of an answer that can be kept; each is judged by itself."""
    found = (_entry(each, slots, turns) for each in answered)
    return [each for each in found if each is not None]


def _entry(
    answered: Any, slots: Mapping[str, ProfileSlot], turns: tuple[int, ...]
) -> ProfileEntry | None:
    try:
        told = msgspec.convert(answered, SlottedValue, from_attributes=True)
    except msgspec.ValidationError:
        return None
    name = " ".join(told.slot.casefold().split())
    name = next((slot for slot in slots if slot.casefold() == name), SLOT_ALIASES.get(name, name))
    value = " ".join(told.value.split()).rstrip(".")
    if name not in slots or not value or len(value.split()) > _MOST_WORDS:
        return None
    title = name
    about, colon, rest = value.partition(": ")
    if name == "favourites" and colon and rest:
        title, value = f"favourite {about.casefold()}", rest
    return ProfileEntry(name, title, value, turns, "model", told.holds)
