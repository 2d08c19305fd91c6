"""Sections of a prompt, one per layer: lines, most valuable first, with their token counts."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from foremind.domain.companion_rules import TASTE_RANK
from foremind.domain.record import MadeBy, Record, is_manual, of_layer
from foremind.domain.session_state import Flag, SessionState
from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.llm.prompt.record_format import day_in_words, note_line, wordings
from foremind.llm.prompt.token_counter import CountTokens
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import day_in, english_day, label_in, prompt_words
from foremind.text.sentences import key_of_words, sentence_keys

_MAX_PROFILE_TOKENS = 1000  # in addition to manual entries
_MAX_NOTES = 500
_UNRANKED = 1_000_000  # after all that have a rank
# The label of a line of the core memory, with its day: "home (20 May 2026): ".
_DATED_LABEL = re.compile(r"[^:()]{1,80}(?: \((?P<day>[^()]{1,40})\))?: ")
_OTHER_SPEAKER = re.compile(r": | \d{4}")  # or another day


class Section(msgspec.Struct, frozen=True, gc=False):
    """Lines of one layer and their token counts; `made_by` are the origins of its records.

    `records` has the id of each line's record; it is empty where lines are not made of records.
    `shapes` are the lines as sentences, None for a line that is shown completely or not at all.
    `preface` precedes the first line shown. `says` are the sentence keys of all lines, None where
    two lines share a sentence; `whole` is the sum of `tokens`, `is_manual` whether any line was
    written manually, `states` whether any line says what others may say in other words.
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
    is_manual: bool = False
    states: bool = False

    def only(self, numbers: Sequence[int]) -> "Section":
        """Return the section with the lines of the given numbers only."""
        return _build(
            self.layer,
            tuple(self.lines[number] for number in numbers),
            tuple(self.tokens[number] for number in numbers),
            self.made_by,
            tuple(self.shapes[number] for number in numbers),
            self.preface,
            tuple(self.records[number] for number in numbers if self.records),
        )


class StandingLayers(msgspec.Struct, frozen=True, gc=False):
    """The sections of every prompt of a relationship, independent of the draft.

    Turns up to `summarised_turn_id` are covered by the summary.
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
    """Build a section of lines, each of the record at its position, or all of a single record."""
    ids = [record.id for record in records]
    line_records = tuple(ids * len(lines) if len(ids) == 1 else ids)
    made_by = tuple(sorted({record.made_by for record in records}))
    texts = tuple(line if isinstance(line, str) else line.text() for line in lines)
    shapes = tuple(None if isinstance(line, str) else line for line in lines)
    tokens = tuple(count(text) for text in texts)
    return _build(layer, texts, tokens, made_by, shapes, preface, line_records)


def _build(
    layer: LayerName,
    lines: tuple[str, ...],
    tokens: tuple[int, ...],
    made_by: tuple[MadeBy, ...],
    shapes: tuple[QuotedLine | None, ...],
    preface: str,
    records: tuple[int, ...],
) -> Section:
    """Return a section with its derived fields, which every prompt needs."""
    quoted_lines = [shape for shape in shapes if shape is not None]
    says = frozenset[int]().union(*(shape.keys for shape in quoted_lines))
    distinct = len(says) == sum(len(shape.keys) for shape in quoted_lines)
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
        layer in ("behaviours", "state") or any(shape.is_manual for shape in quoted_lines),
        any(shape.states for shape in quoted_lines),
    )


def standing_sections(
    records: Sequence[Record], count: CountTokens, user_name: str = "", language: str = ENGLISH
) -> dict[LayerName, Section]:
    """Return the sections of every prompt of a relationship, independent of the draft.

    Dates in them are absolute, so that the model server can reuse the prefix of the prompt.

    Args:
        language: of the words around the quotations.
    """

    of = partial(of_layer, records)
    sections: dict[LayerName, Section] = {}
    profile = sorted(of("profile"), key=profile_order)
    first_by_text: dict[str, tuple[QuotedLine, Record]] = {}
    for record in profile:
        profile_line = _profile_line(record, language)
        first_by_text.setdefault(profile_line.text(), (profile_line, record))
    lines_shown, records_shown = zip(*first_by_text.values(), strict=True) if profile else ((), ())
    sections["profile"] = _limited(
        section("profile", lines_shown, count, records_shown), _MAX_PROFILE_TOKENS
    )
    notes = sorted(of("scratchpad"), key=note_order)[:_MAX_NOTES]
    note_lines = [note_line(note, user_name, language) for note in notes]
    sections["scratchpad"] = section("scratchpad", note_lines, count, notes)
    for layer in ("hot", "summary", "opening"):
        latest = of(layer)[-1:]
        lines = [text_line for record in latest for text_line in _text_lines(record, language)]
        sections[layer] = section(layer, lines, count, latest)
    return {
        layer: layer_section for layer, layer_section in sections.items() if layer_section.lines
    }


def _text_lines(record: Record, language: str) -> list[QuotedLine]:
    """Return the lines of a layer that consists of one text."""
    manual = is_manual(record.made_by)
    texts = [line.strip() for line in record.content.splitlines() if line.strip()]
    if record.layer == "opening":
        recap = prompt_words(language).lines.recap.format(date=day_in(language, record.created_at))
        before = f"- {recap} "
        return [line((before, " ".join(texts)), is_manual=manual)] if texts else []
    is_core_memory = record.layer == "hot"
    return [
        line(("- ", text), is_manual=manual, day=_only_day(text) if is_core_memory else None)
        for text in texts
    ]


def _only_day(text: str) -> str | None:
    """Return the day of a line of the core memory, as `QuotedLine.day`."""
    label = _DATED_LABEL.match(text)
    if _OTHER_SPEAKER.search(text, 0 if label is None else label.end()):
        return None
    return "" if label is None or label["day"] is None else english_day(label["day"])


def state_section(state: SessionState, count: CountTokens, language: str = ENGLISH) -> Section:
    """Return the state of a session: the current task, then flags sorted by name."""
    label = prompt_words(language).lines.task
    task = [f"- {label}: {quoted(state.task)}"] if state.task.strip() else []
    flags = [f"- {name} = {_flag_text(value)}" for name, value in sorted(state.flags.items())]
    return section("state", [*task, *flags], count)


def _flag_text(value: Flag) -> str:
    """Return a flag's value in one line: booleans and numbers as JSON, text quoted."""
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def profile_order(record: Record) -> tuple[int, float]:
    """Sort key: entries of developers and users first, then stated values in slot order.

    Inferred entries come before tastes, of which there may be many.
    """
    rank = {"developer": -2, "user": -1}.get(record.made_by, record.details.rank)
    if record.kind == "inferred":
        rank = TASTE_RANK - 1
    return rank, -record.updated_at.timestamp()


def note_order(record: Record) -> tuple[int, float]:
    """Sort key: manual notes first, then by rank, which is by kind and significance."""
    rank = -1 if is_manual(record.made_by) else record.details.rank or _UNRANKED
    return rank, -record.updated_at.timestamp()


def _profile_line(record: Record, language: str) -> QuotedLine:
    words = prompt_words(language).lines
    manual = is_manual(record.made_by)
    shown = record.title if manual else label_in(language, record.title)
    # The core memory may be older than the player's language.
    titles = dict.fromkeys((record.title, shown))
    states = dict.fromkeys(sentence_keys([f"{title}: {record.content}" for title in titles]), "")
    if record.kind == "inferred":
        before = f"- {words.seems}: {quoted(shown)}: "
        return line((before, record.content), sentences=False, states=states)
    title = f"{quoted(shown)}: " if shown else ""
    day = day_in_words(record.said_at)
    said_on = words.said_on.format(date=day_in(language, record.said_at))
    after = "" if manual else f" {said_on}"
    if not manual:
        said = wordings(record.details.slot or "", record.title, record.content)
        states = {key_of_words(wording): day for wording in said} | states
    return line(
        (f"- {title}", record.content),
        after=after,
        is_manual=manual,
        sentences=manual,
        states=states,
    )


def _limited(full: Section, max_tokens: int) -> Section:
    """Return the manual lines of a section, and of the others the first within `max_tokens`."""
    used, kept = 0, []
    for index, (cost, shape) in enumerate(zip(full.tokens, full.shapes, strict=True)):
        manual = shape is not None and shape.is_manual
        used += 0 if manual else cost
        if manual or used <= max_tokens:
            kept.append(index)
    return full if len(kept) == len(full.lines) else full.only(kept)
