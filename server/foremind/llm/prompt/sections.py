"""Sections of a prompt, one per layer: lines, most valuable first, with their token counts.

Formats records and memories for a language model: as quoted data, with age and origin.

A companion that says "on 2026-04-29 you stated" sounds like a database. So ages are in words, weak
matches are marked as such, and open questions come with the suggestion to return to them. The words
around the quotations are in the prompt's language; the days by which lines are compared stay in
English.

How users would say what is known of them, to find the same statement in other words.

Only plain wordings: a sentence that says more, such as why or since when, equals none of them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec

from foremind.domain.companion_rules import TASTE_RANK
from foremind.domain.memory import NARRATED_TYPES, Recalled
from foremind.domain.record import MadeBy, Record, is_manual, of_layer
from foremind.domain.session_state import Flag, SessionState
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.world import NO_CALENDAR, Calendar
from foremind.llm.prompt.quoted_lines import (
    QuotedLine,
    line,
    quoted,
    whole_line,
    witnessed_key,
)
from foremind.llm.prompt.token_counter import CountTokens
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import (
    age_in_words,
    day_in,
    english_day,
    label_in,
    prompt_words,
)
from foremind.text.sentences import key_of_words, sentence_keys, sentences_in
from foremind.text.tokenization import words_of

_LIKES = ("i like {}", "i love {}", "i enjoy {}", "i adore {}")
_CALLED = ("my {} is {}", "my {}'s name is {}", "my {} is called {}", "i have a {} called {}",
           "i have a {} named {}")  # fmt: skip
# By profile slot, with the value in place of {}; family and pets with the kind and the name.
_WORDINGS: dict[str, tuple[str, ...]] = {
    "name": ("my name is {}", "my name's {}", "i am {}", "call me {}"),
    "age": ("i am {}", "i am {} years old"),
    "birthday": ("my birthday is {}", "my birthday is on {}"),
    "home": ("i live in {}", "i am living in {}"),
    "origin": ("i am from {}", "i come from {}"),
    "job": ("i am a {}", "i am an {}", "i work as a {}", "i work as an {}"),
    "employer": ("i work for {}", "i work at {}"),
    "studies": ("i study {}", "i am studying {}"),
    "status": ("i am {}",),
    "languages": ("i speak {}",),
    "diet": ("i am {}",),
    "health": ("i have {}", "i am {}"),
    "family": _CALLED,
    "pets": _CALLED,
    "goals": ("my goal is to {}", "my dream is to {}", "i want to {}", "i hope to {}",
              "i plan to {}"),
    "prefers": ("i prefer {}",),
    "likes": (*_LIKES, *(f"{wording[:-2]}to {{}}" for wording in _LIKES), "i have always liked {}",
              "i have always loved {}", "i always loved {}", "i live for {}"),
    "dislikes": ("i hate {}", "i dislike {}", "i don't like {}", "i can't stand {}",
                 "i can't bear {}", "i never liked {}", "i have never liked {}",
                 "i always hated {}", "i have always hated {}", "i no longer like {}",
                 "i am no fan of {}", "i have gone off {}", "{} is not my thing",
                 "{} are not my thing", "{} isn't my thing", "{} aren't my thing"),
}  # fmt: skip
_FAVOURITE = "favourite "
_FAVOURITES = ("my favourite {} is {}", "my favorite {} is {}")

_THE_USER = (["the", "user"], ["user"])
_VERBS = {"is": "am", "has": "have", "does": "do", "goes": "go"}
_POSSESSIVES = frozenset(("her", "his", "their"))
_SPEAKER = frozenset(("i", "i'm", "i've", "i'd", "i'll"))
_FIRST_PERSON = _SPEAKER | {"my", "we", "our", "you", "your"}


def wordings(slot: str, title: str, value: str) -> list[str]:
    """Return sentences that state no more than that a profile slot has a value, as words."""
    words = " ".join(words_of(value))
    if slot == "favourites" and title.startswith(_FAVOURITE):
        about = title.removeprefix(_FAVOURITE)
        return [wording.format(about, words) for wording in _FAVOURITES]
    templates = _WORDINGS.get(slot, ())
    if templates is not _CALLED:
        return [template.format(words) for template in templates]
    kind, _, name = words.partition(" ")
    return [template.format(kind, name) for template in templates] if name else []


def in_first_person(note: str, user_name: str) -> list[str]:
    """Return how the user may have said a note: "Lives in Porto" as "I live in Porto".

    Each as its words; empty if the note is in the user's own words. The result is for comparison:
    where the note has another subject, it is no sentence that anybody says.
    """
    words, named = _without_subject(words_of(note), words_of(user_name))
    if not words or (not named and (words[0] in _FIRST_PERSON or not _SPEAKER.isdisjoint(words))):
        return []
    if words[0] == "my":
        return [" ".join(words)]
    rest = ["my" if word in _POSSESSIVES else word for word in words[1:]]
    return [" ".join(["i", verb, *rest]) for verb in _base_forms(words[0])]


def _without_subject(words: list[str], name: Sequence[str]) -> tuple[list[str], bool]:
    """Return words without the user as their subject, and whether it was; possessives as "my"."""
    for subject in (list(name), list(name[:1]), *_THE_USER):
        if not subject:
            continue
        if words[: len(subject)] == subject:
            return words[len(subject) :], True
        if words[: len(subject)] == [*subject[:-1], f"{subject[-1]}'s"]:
            return ["my", *words[len(subject) :]], True
    return words, False


def _base_forms(verb: str) -> list[str]:
    """Return what the verb of a third person may be in the first."""
    if verb in _VERBS:
        return [_VERBS[verb]]
    if verb.endswith("ies"):
        return [f"{verb[:-3]}y"]
    if verb.endswith("es"):
        return [verb[:-1], verb[:-2]]
    return [verb[:-1]] if verb.endswith("s") else [verb]


# Relevance (70/30) of the best memory below which recall is presented as a hunch.
WEAK = 0.30


def labelled(label: str, language: str = ENGLISH) -> str:
    """Return a label of Foremind's own in a language, other plain words unchanged, else quoted."""
    own = label_in(language, label)
    if own != label:
        return own
    return label if label.replace(" ", "").replace("_", "").isalnum() else quoted(label)


def day_in_words(moment: datetime) -> str:
    """Return "29 April 2026"."""
    return day_in(ENGLISH, moment)


def age_and_date(
    then: datetime, now: datetime, language: str = ENGLISH, calendar: Calendar = NO_CALENDAR
) -> str:
    """Return "three weeks ago, on 29 April 2026"."""
    local = then.astimezone(now.tzinfo)
    date = day_in(language, local, calendar)
    dated = prompt_words(language).lines.dated
    return dated.format(age=age_in_words(local, now, language), date=date)


def episode_line(record: Record, now: datetime, language: str = ENGLISH) -> QuotedLine:
    """Return an episode as one line."""
    words = prompt_words(language).lines
    when = age_and_date(record.created_at, now, language)
    before = f"- {words.episode.format(when=when, topic=quoted(record.title))}: "
    conclusions = record.details.conclusions[:2]
    separators = (f" {words.settled} ", "; ")
    return line((before, record.content), *zip(separators, conclusions, strict=False))


def topic_line(record: Record, now: datetime, language: str = ENGLISH) -> QuotedLine:
    """Return a topic as one line."""
    words, sessions = prompt_words(language).lines, record.details.sessions
    when = age_and_date(record.said_at, now, language)
    template = words.topic_met if sessions > 1 else words.topic
    before = template.format(topic=quoted(record.title), when=when, count=sessions)
    return line((f"- {before}: ", record.content), is_manual=is_manual(record.made_by))


def question_line(
    record: Record, user_name: str, now: datetime, language: str = ENGLISH
) -> QuotedLine:
    """Return an open question as one line."""
    words, attempts = prompt_words(language).lines, record.details.attempts
    when = age_and_date(record.created_at, now, language)
    template = words.question_again if attempts else words.question
    before = template.format(when=when, name=quoted(user_name), count=attempts)
    return line((f"- {before}: ", record.content))


def note_line(record: Record, user_name: str, language: str = ENGLISH) -> QuotedLine:
    """Return a note as one line."""
    if is_manual(record.made_by):
        kind = f"{labelled(record.kind, language)}: " if record.kind else ""
        return line((f"- {kind}", record.content), is_manual=True)
    day = day_in_words(record.said_at)
    states = {
        key_of_words(words): day
        for sentence in sentences_in(record.content)
        for words in in_first_person(sentence, user_name)
    }
    before = f"- {labelled(record.kind, language)}, {day_in(language, record.said_at)}: "
    return line((before, record.content), day=day, states=states)


def vault_line(record: Record, now: datetime, language: str = ENGLISH) -> QuotedLine:
    """Return a pinned record as one line."""
    words = prompt_words(language).lines
    template = words.saved_by_game if record.made_by == "developer" else words.saved
    saved_at = record.last_source_at or record.created_at
    saved = template.format(when=age_and_date(saved_at, now, language))
    title = f"{quoted(record.title)}: " if record.title else ""
    manual = is_manual(record.made_by)
    return line((f"- {saved}: {title}", record.content), is_manual=manual)


def memory_line(
    memory: Recalled,
    user_name: str,
    now: datetime,
    language: str = ENGLISH,
    calendar: Calendar = NO_CALENDAR,
) -> QuotedLine:
    """Return a memory as quoted data: who said it or that it happened, how long ago, and what.

    What is no longer so is always said, whatever says elsewhere that it is so. A mind of a world
    has no user: what it witnessed says itself who said it, and is told from the same words of
    others.
    """
    words, narrated = prompt_words(language).lines, memory.memory_type in NARRATED_TYPES
    own = memory.speaker == "companion" and not narrated
    narrated = narrated or not (user_name or own)
    by_user = memory.speaker == "user" and not narrated
    template = words.user_said if by_user else words.companion_said
    template = words.happened if narrated else template
    when = age_and_date(memory.created_at, now, language, calendar)
    when += f" ({memory.place})" if memory.place else ""
    before = f"- {template.format(when=when, name=quoted(user_name))}"
    if not user_name:
        return whole_line(f"{before}: ", memory.content, witnessed_key(memory.content, own=own))
    if memory.superseded:
        return line((f"{before} ({words.no_longer_so}): ", memory.content), sentences=False)
    day = day_in_words(memory.created_at.astimezone(now.tzinfo)) if by_user else None
    return line((f"{before}: ", memory.content), day=day)


def memory_lines(
    memories: Sequence[Recalled],
    user_name: str,
    now: datetime,
    language: str = ENGLISH,
    calendar: Calendar = NO_CALENDAR,
) -> list[QuotedLine]:
    """Return memories as lines, best first."""
    return [memory_line(memory, user_name, now, language, calendar) for memory in memories]


def weak_match_preface(memories: Sequence[Recalled], language: str = ENGLISH) -> str:
    """Return the preface for memories of which even the best is a weak match, else nothing."""
    best = max((memory.relevance for memory in memories), default=WEAK)
    return prompt_words(language).lines.weak_match if best < WEAK else ""


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
