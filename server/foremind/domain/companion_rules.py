"""Rules of companions: what is significant, notes, profiles, prompts and behaviours."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from foremind.domain.settings.setting_definitions import LayerName

SignalName = Literal["phrase", "emotion", "commitment", "question", "long"]
FloorName = Literal["identity", "goal", "constraint", "preference", "answer"]
Share = Annotated[float, Meta(ge=0, le=1)]
Phrase = Annotated[str, Meta(min_length=1, max_length=200)]
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Instructions = Annotated[str, Meta(max_length=4000)]


class SignificanceRules(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A companion's adjustments to significance scoring; scores are 0 to 1.

    `phrases` are minimum scores for turns that contain them; `signals` and `floors` override the
    published weights and minimum scores by name; `learned` enables the classifier, which is on by
    default; `model` lets the language model rate turns at or near the threshold afterwards, from 1
    to 10, which is off by default.
    """

    phrases: Annotated[dict[Phrase, Share], Meta(max_length=100)] | None = None
    signals: dict[SignalName, Share] | None = None
    floors: dict[FloorName, Share] | None = None
    learned: bool | None = None
    model: bool | None = None


#: The kinds of note, with what each is for; given to the language model.
KINDS = {
    "identity": "who the user is: name, age, home, work",
    "preference": "what the user likes, dislikes, wants done or not done",
    "goal": "what the user wants to reach",
    "event": "what happened or will happen to the user, with its date",
    "relationship": "people and animals in the user's life",
    "other": "anything else that is worth knowing in a month",
}


class ScratchpadExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An example of a message, and the note that it should become."""

    said: Instructions
    kind: Word
    entry: Instructions


class ScratchpadRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a companion takes notes: its own prompt, the kinds of note, and examples.

    `kinds` defaults to `KINDS`.
    """

    prompt: Instructions | None = None
    kinds: Annotated[dict[Word, Instructions], Meta(min_length=1, max_length=50)] | None = None
    examples: Annotated[tuple[ScratchpadExample, ...], Meta(max_length=50)] | None = None


SlotKind = Literal["identity", "need", "people", "other", "taste"]
_SLOT_KINDS: tuple[SlotKind, ...] = get_args(SlotKind)


class ProfileSlot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A slot of the user profile.

    `kind` determines the order of slots, and which are truncated last: identity, needs, people and
    animals, anything else, tastes. With `many`, a slot has several values, at most `most` of which
    were written in the background; otherwise the newest value replaces the others.
    """

    description: Annotated[str, Meta(min_length=1, max_length=300)]
    kind: SlotKind = "other"
    many: bool = False
    most: Annotated[int, Meta(ge=1, le=50)] = 12


#: The default slots of a profile, in order within each kind.
PROFILE_SLOTS = {
    "name": ProfileSlot("what the user wants to be called", "identity"),
    "pronouns": ProfileSlot("the user's pronouns", "identity"),
    "age": ProfileSlot("how old the user is", "identity"),
    "birthday": ProfileSlot("the day, month or year of birth", "identity"),
    "home": ProfileSlot("where the user lives now", "identity"),
    "origin": ProfileSlot("where the user comes from", "identity"),
    "job": ProfileSlot("what the user does for a living", "identity"),
    "employer": ProfileSlot("for whom the user works", "identity"),
    "studies": ProfileSlot("what the user studies", "identity"),
    "status": ProfileSlot("single, married, engaged, divorced, widowed", "identity"),
    "languages": ProfileSlot("languages the user speaks or learns", "identity", many=True),
    "manner": ProfileSlot("how the companion is to speak, as an instruction", "need", many=True),
    "health": ProfileSlot("allergies, illnesses and what else must be minded", "need", many=True),
    "diet": ProfileSlot("what the user does not eat or drink", "need", many=True),
    "family": ProfileSlot("relatives and partner: brother Tom", "people", many=True),
    "pets": ProfileSlot("animals: dog Scout", "people", many=True),
    "names": ProfileSlot("what other things of the user are called", "other", many=True),
    "goals": ProfileSlot("what the user wants to reach", "other", many=True),
    "prefers": ProfileSlot("what the user prefers: tea to coffee", "taste", many=True),
    "favourites": ProfileSlot("favourites: colour: green", "taste", many=True),
    "dislikes": ProfileSlot("what the user dislikes", "taste", many=True),
    "likes": ProfileSlot("what the user likes", "taste", many=True),
}
#: Other names that people use for slots when they edit a profile manually.
SLOT_ALIASES = {
    "nickname": "name", "first name": "name", "called": "name", "date of birth": "birthday",
    "born": "birthday", "city": "home", "town": "home", "residence": "home", "address": "home",
    "location": "home", "lives in": "home", "place": "home", "hometown": "origin", "from": "origin",
    "occupation": "job", "profession": "job", "work": "job", "works as": "job",
    "company": "employer", "works at": "employer", "works for": "employer",
    "relationship status": "status", "marital status": "status",
}  # fmt: skip


class ProfileExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An example of a message, and the value that it gives a slot."""

    said: Instructions
    slot: Word
    value: Instructions


class ProfileRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The slots of a companion's profile, in addition to the default ones or, with `only`, instead.

    `prompt` and `examples` are for the language model.
    """

    prompt: Instructions | None = None
    slots: Annotated[dict[Word, ProfileSlot], Meta(max_length=80)] | None = None
    only: bool | None = None
    examples: Annotated[tuple[ProfileExample, ...], Meta(max_length=50)] | None = None


def profile_slots(rules: ProfileRules) -> dict[str, ProfileSlot]:
    """Return all slots of a profile by name."""
    return ({} if rules.only else PROFILE_SLOTS) | (rules.slots or {})


def slot_rank(name: str, slots: Mapping[str, ProfileSlot]) -> int:
    """Return the position of a slot in a profile; the first is truncated last."""
    slot = slots.get(name)
    kind = _SLOT_KINDS.index("other" if slot is None else slot.kind)
    position = list(slots).index(name) if slot is not None else len(slots)
    return _MAX_SLOTS_PER_KIND * kind + position


_MAX_SLOTS_PER_KIND = 1000
#: The rank of the first slot of tastes.
TASTE_RANK = _MAX_SLOTS_PER_KIND * _SLOT_KINDS.index("taste")


class Prompts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A companion's own prompts for background work.

    The required form of the answer is appended to each.
    """

    summary: Instructions | None = None
    episodes: Instructions | None = None
    topics: Instructions | None = None
    hot: Instructions | None = None


class Behaviour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An instruction for the model, and the conditions under which it applies, all of them.

    `says` are words or phrases of which the message contains one; `recalls` is a layer that
    returned something; `opening` is the first message of a session; `from_hour` to `to_hour` is the
    player's time of day and may span midnight. `after` runs the instruction separately once the
    reply has ended; the client receives the result.
    """

    name: Word
    instruction: Instructions
    says: Annotated[tuple[Phrase, ...], Meta(max_length=100)] = ()
    recalls: LayerName | None = None
    opening: bool | None = None
    from_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    to_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    after: bool = False
