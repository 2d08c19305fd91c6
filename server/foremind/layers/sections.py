"""What one layer contributes to a prompt: lines, the most valuable first, with their tokens."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from foremind.companions import RANK_OF_TASTES
from foremind.layers.budget import MOST_PROFILE_TOKENS
from foremind.layers.tokens import CountTokens
from foremind.layers.wording import day_in_words, labelled, quoted
from foremind.settings import LayerName
from foremind.storage.records import MadeBy, Record, RecordLayer, by_hand
from foremind.storage.session_state import Flag, SessionState

_MOST_NOTES = 100
_LEFT = "The last conversation, on {day}, ended like this; come back to it only if it fits:"


class Section(msgspec.Struct, frozen=True, gc=False):
    """Lines of one layer and what each takes; `made_by` says which means made them.

    `records` has the id of the record that each line is made of, or nothing where none are.
    """

    layer: LayerName
    lines: tuple[str, ...]
    tokens: tuple[int, ...]
    made_by: tuple[MadeBy, ...] = ()
    records: tuple[int, ...] = ()

    def first(self, count: int) -> "Section":
        """Return the section with only its first lines."""
        return Section(
            self.layer,
            self.lines[:count],
            self.tokens[:count],
            self.made_by,
            self.records[:count],
        )


class Standing(msgspec.Struct, frozen=True, gc=False):
    """What stands in every prompt of a relationship, whatever the draft.

    Turns up to `summarised_turn_id` are in the summary.
    """

    sections: Mapping[LayerName, Section] = {}
    summarised_turn_id: int = 0


def section(
    layer: LayerName, lines: Sequence[str], count: CountTokens, records: Sequence[Record] = ()
) -> Section:
    """Count the tokens of lines, each made of the record in its place, or all of a single one."""
    makers = tuple(sorted({each.made_by for each in records}))
    ids = [each.id for each in records]
    made_of = ids * len(lines) if len(ids) == 1 else ids
    return Section(
        layer, tuple(lines), tuple(count(each) for each in lines), makers, tuple(made_of)
    )


def standing_sections(records: Sequence[Record], count: CountTokens) -> dict[LayerName, Section]:
    """Return what stands in every prompt of a relationship, whatever the draft.

    Dates are absolute here: a prompt that begins alike can be reused by the model server.
    """

    def of(layer: RecordLayer) -> list[Record]:
        return [each for each in records if each.layer == layer]

    made: dict[LayerName, Section] = {}
    profile = sorted(of("profile"), key=profile_order)
    said = {_profile_line(each): each for each in reversed(profile)}
    profile = [each for each in profile if said[_profile_line(each)] is each]
    lines = [_profile_line(each) for each in profile]
    made["profile"] = _within(section("profile", lines, count, profile), MOST_PROFILE_TOKENS)
    # The hot context is made of the scratchpad too: where there is one, only news of it is added.
    told = max((each.updated_at for each in of("hot")), default=None)
    news = [each for each in of("scratchpad") if told is None or each.updated_at > told]
    notes = sorted(news, key=lambda each: each.updated_at, reverse=True)[:_MOST_NOTES]
    made["scratchpad"] = section(
        "scratchpad",
        [f"- {labelled(each.kind)}: {quoted(each.content)}" for each in notes],
        count,
        notes,
    )
    for layer in ("hot", "summary", "opening"):
        found = of(layer)[-1:]
        text = [
            f"- {quoted(line.strip())}"
            for each in found
            for line in each.content.splitlines()
            if line.strip()
        ]
        if layer == "opening" and found:
            left = text[0].removeprefix("- ")
            text = [f"- {_LEFT.format(day=day_in_words(found[0].created_at))} {left}"]
        made[layer] = section(layer, text, count, found)
    return {layer: each for layer, each in made.items() if each.lines}


def state_section(state: SessionState, count: CountTokens) -> Section:
    """Return what goes on in a session: the task in hand, then flags by name."""
    task = [f"- the task in hand: {quoted(state.task)}"] if state.task.strip() else []
    flags = [f"- {name} = {_flag(value)}" for name, value in sorted(state.flags.items())]
    return section("state", [*task, *flags], count)


def _flag(value: Flag) -> str:
    """Return a flag's value in one line: true, false and numbers as JSON has them, texts quoted."""
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def profile_order(record: Record) -> tuple[int, float]:
    """What developers and users wrote comes first, then what was said, by its slot.

    What was inferred comes before tastes, of which there may be many.
    """
    rank = {"developer": -2, "user": -1}.get(record.made_by, record.details.rank)
    if record.kind == "inferred":
        rank = RANK_OF_TASTES - 1
    return rank, -record.updated_at.timestamp()


def _profile_line(record: Record) -> str:
    if record.kind == "inferred":
        return f"- seems: {quoted(record.title)}: {quoted(record.content)}"
    # What was stated before there were slots says by itself what it is about.
    named = record.title and (record.details.slot or by_hand(record.made_by))
    title = f"{quoted(record.title)}: " if named else ""
    return f"- {title}{quoted(record.content)}"


def _within(whole: Section, tokens: int) -> Section:
    used = 0
    for index, cost in enumerate(whole.tokens):
        used += cost
        if used > tokens:
            return whole.first(index)
    return whole
