"""What one layer contributes to a prompt: lines, the most valuable first, with their tokens."""

import json
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from foremind.domain.companion import RANK_OF_TASTES
from foremind.domain.record import MadeBy, Record, by_hand, of_layer
from foremind.domain.session_state import Flag, SessionState
from foremind.domain.settings import LayerName
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.llm.prompt.record_format import day_in_words, note_line
from foremind.llm.prompt.token_counter import CountTokens

MOST_PROFILE_TOKENS = 1000  # beyond what somebody wrote by hand
_MOST_NOTES = 100
_LEFT = "The last conversation, on {day}, ended like this; come back to it only if it fits:"


class Section(msgspec.Struct, frozen=True, gc=False):
    """Lines of one layer and what each takes; `made_by` says which means made them.

    `records` has the id of the record that each line is made of, or nothing where none are.
    `shapes` are the lines as they were put together: None for one that is shown whole or not at
    all. `preface` is said before the first line that is shown. `says` are the sentences of all its
    lines, None where two of them say the same; `whole` is what all of it takes, `by_hand` whether
    somebody wrote some of it.
    """

    layer: LayerName
    lines: tuple[str, ...]
    tokens: tuple[int, ...]
    made_by: tuple[MadeBy, ...]
    shapes: tuple[QuotedLine | None, ...]
    preface: str = ""
    records: tuple[int, ...] = ()
    says: frozenset[int] | None = None
    whole: int = 0
    by_hand: bool = False

    def only(self, chosen: Sequence[int]) -> "Section":
        """Return the section with only some of its lines."""
        return _made(
            self.layer,
            tuple(self.lines[each] for each in chosen),
            tuple(self.tokens[each] for each in chosen),
            self.made_by,
            tuple(self.shapes[each] for each in chosen),
            self.preface,
            tuple(self.records[each] for each in chosen if self.records),
        )


class StandingLayers(msgspec.Struct, frozen=True, gc=False):
    """What stands in every prompt of a relationship, whatever the draft.

    Turns up to `summarised_turn_id` are in the summary.
    """

    sections: Mapping[LayerName, Section] = {}
    summarised_turn_id: int = 0


def section(
    layer: LayerName,
    lines: Sequence[str | QuotedLine],
    count: CountTokens,
    records: Sequence[Record] = (),
    preface: str = "",
) -> Section:
    """Write lines out, each made of the record in its place, or all of a single one."""
    ids = [record.id for record in records]
    made_of = tuple(ids * len(lines) if len(ids) == 1 else ids)
    makers = tuple(sorted({record.made_by for record in records}))
    texts = tuple(line if isinstance(line, str) else line.text() for line in lines)
    shapes = tuple(None if isinstance(line, str) else line for line in lines)
    tokens = tuple(count(text) for text in texts)
    return _made(layer, texts, tokens, makers, shapes, preface, made_of)


def _made(
    layer: LayerName,
    lines: tuple[str, ...],
    tokens: tuple[int, ...],
    made_by: tuple[MadeBy, ...],
    shapes: tuple[QuotedLine | None, ...],
    preface: str,
    records: tuple[int, ...],
) -> Section:
    """Return a section that knows what it says: it is asked for each prompt."""
    known = [shape for shape in shapes if shape is not None]
    says = frozenset[int]().union(*(each.keys for each in known))
    distinct = len(says) == sum(len(each.keys) for each in known)
    return Section(
        layer,
        lines,
        tokens,
        made_by,
        shapes,
        preface,
        records,
        says if distinct else None,
        sum(tokens),
        layer in ("behaviours", "state") or any(each.by_hand for each in known),
    )


def standing_sections(records: Sequence[Record], count: CountTokens) -> dict[LayerName, Section]:
    """Return what stands in every prompt of a relationship, whatever the draft.

    Dates are absolute here: a prompt that begins alike can be reused by the model server.
    """

    of = partial(of_layer, records)
    made: dict[LayerName, Section] = {}
    profile = sorted(of("profile"), key=profile_order)
    of_line = {_profile_line(each).text(): each for each in reversed(profile)}
    profile = [each for each in profile if of_line[_profile_line(each).text()] is each]
    made["profile"] = _within(
        section("profile", list(map(_profile_line, profile)), count, profile), MOST_PROFILE_TOKENS
    )
    # The hot context is made of the scratchpad too: where there is one, only news of it is added,
    # and what somebody wrote. All others are found by their meaning.
    told = max((each.updated_at for each in of("hot")), default=None)
    news = [
        each
        for each in of("scratchpad")
        if told is None or each.updated_at > told or by_hand(each.made_by)
    ]
    notes = sorted(news, key=lambda each: each.updated_at, reverse=True)[:_MOST_NOTES]
    made["scratchpad"] = section("scratchpad", list(map(note_line, notes)), count, notes)
    for layer in ("hot", "summary", "opening"):
        found = of(layer)[-1:]
        told_of = [one for each in found for one in _lines_of(each)]
        made[layer] = section(layer, told_of, count, found)
    return {layer: each for layer, each in made.items() if each.lines}


def _lines_of(record: Record) -> list[QuotedLine]:
    """Return the lines of a layer that is one text."""
    mine = by_hand(record.made_by)
    texts = [line.strip() for line in record.content.splitlines() if line.strip()]
    if record.layer == "opening":
        before = f"- {_LEFT.format(day=day_in_words(record.created_at))} "
        return [line((before, " ".join(texts)), by_hand=mine)] if texts else []
    return [line(("- ", text), by_hand=mine) for text in texts]


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


def _profile_line(record: Record) -> QuotedLine:
    if record.kind == "inferred":
        return line((f"- seems: {quoted(record.title)}: ", record.content), sentences=False)
    mine = by_hand(record.made_by)
    # What was stated before there were slots says by itself what it is about.
    named = record.title and (record.details.slot or mine)
    title = f"{quoted(record.title)}: " if named else ""
    said = "" if mine else f" (said on {day_in_words(record.updated_at)})"
    whole = mine or not record.details.slot
    return line((f"- {title}", record.content), after=said, by_hand=mine, sentences=whole)


def _within(whole: Section, tokens: int) -> Section:
    """Return the first lines, as far as the tokens go, and all that somebody wrote by hand."""
    used, kept = 0, []
    for index, (cost, shape) in enumerate(zip(whole.tokens, whole.shapes, strict=True)):
        mine = shape is not None and shape.by_hand
        used += 0 if mine else cost
        if mine or used <= tokens:
            kept.append(index)
    return whole if len(kept) == len(whole.lines) else whole.only(kept)
