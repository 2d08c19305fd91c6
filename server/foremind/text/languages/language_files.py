"""Reads the files of languages: which words of a language mean what. Pure.

A language is added by a file `data/<code>.toml`; no code names languages besides English.

The texts of a language's file that prompts and records are made of, and the places in them.

What background work writes (`RecordWords`, labels) and what the stand-in says may be missing, and
is in English then.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Literal

import msgspec
import Stemmer

from foremind.domain.companion_rules import KINDS, PROFILE_SLOTS


def phrase_pattern(phrase: str, *, separated: bool = True) -> str:
    """Return a pattern of words of which "/" separates alternatives, and begins optional ones.

    Args:
        separated: whether other words are separated from them.
    """
    words, end = [], r"(?:(?!\w)|(?<!\w))" if separated else ""
    for word in phrase.split():
        alternatives = any_of(filter(None, word.split("/")))
        words.append(rf"(?:(?:{alternatives}){end}\s*){'?' * word.startswith('/')}")
    return "".join(words)


def any_of(phrases: Iterable[str]) -> str:
    """Return a pattern of any of some phrases as they are written, the longest first."""
    longest_first = sorted(phrases, key=len, reverse=True)
    return "|".join(re.escape(phrase).replace("'", "['’`´]") for phrase in longest_first)


class LineWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the lines of a prompt say besides what they quote: templates, with `PLACES` to fill.

    `when` in them is filled by `dated`; `topic` and `name` are quoted.
    """

    date: str
    just_now: str
    yesterday: str
    dated: str
    user_said: str
    companion_said: str
    happened: str
    no_longer_so: str
    weak_match: str
    episode: str
    settled: str
    topic: str
    topic_met: str
    question: str
    question_again: str
    saved: str
    saved_by_game: str
    seems: str
    said_on: str
    recap: str
    task: str
    document: str


class RecordWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What records that rules write say besides what was said; empty where a file lacks it.

    `on_day` begins what was said on a `{date}`; `a_chat` is what an episode without a topic is
    about. The others are usage patterns.
    """

    on_day: str = ""
    a_chat: str = ""
    nothing_much: str = ""
    short_answers: str = ""
    long_answers: str = ""


class StandInWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the stand-in for a language model says; empty where a file lacks it.

    `told` quotes the player, `happened` what nobody said. `unknown` answers what it does not know,
    `listening` what is no question, each with a phrase a line.
    """

    told: str = ""
    happened: str = ""
    unknown: str = ""
    listening: str = ""


#: What records are labelled with besides the slots of profiles and the kinds of notes.
RECORD_LABELS = frozenset({"left open", "settled", "answers"})
#: All labels of Foremind's own, which are their English words.
LABELS = RECORD_LABELS | PROFILE_SLOTS.keys() | KINDS.keys()

#: The places of templates, sorted; other words have none.
PLACES: Mapping[str, list[str]] = {
    "player": ["name"],
    "today": ["day", "month", "weekday", "year"],
    "emotions": ["marks"],
    "lines.date": ["day", "month", "year"],
    "lines.dated": ["age", "date"],
    "lines.user_said": ["name", "when"],
    "lines.companion_said": ["when"],
    "lines.happened": ["when"],
    "lines.episode": ["topic", "when"],
    "lines.topic": ["topic", "when"],
    "lines.topic_met": ["count", "topic", "when"],
    "lines.question": ["name", "when"],
    "lines.question_again": ["count", "name", "when"],
    "lines.saved": ["when"],
    "lines.saved_by_game": ["when"],
    "lines.said_on": ["date"],
    "lines.recap": ["date"],
    "lines.document": ["title"],
    "records.on_day": ["date"],
    "stand_in.told": ["age", "text"],
    "stand_in.happened": ["age", "text"],
}


def unfilled(field: str, text: str) -> str | None:
    """Return what a text of the table `prompt` is expected to have; None if it has it."""
    places = PLACES.get(field, [])
    if _places_in(text) == places:
        return None
    expected = ", ".join(f"{{{place}}}" for place in places) or "nothing in braces"
    return f"{expected}{', each once' if places else ''}"


def _places_in(text: str) -> list[str] | None:
    """Return the names of the places that `str.format` fills, sorted; None for a single brace."""
    try:
        return sorted(place for _, place, _, _ in Formatter().parse(text) if place is not None)
    except ValueError:
        return None


Script = Literal["latin", "cyrillic", "kana", "han", "hangul", "thai"]

ENGLISH = "en"
#: Scripts whose words are not separated, or carry particles, so that their terms are n-grams.
UNSPACED: frozenset[Script] = frozenset({"kana", "han", "hangul", "thai"})
_DATA = Path(__file__).parent / "data"


class InvalidLanguageFile(ValueError):
    """A language's file cannot be used; the message names the file, the field and what it is."""


class _PromptWordsInFile(msgspec.Struct, forbid_unknown_fields=True):
    """The table `prompt` as it is written."""

    player: str
    rules: str
    emotions: str
    today: str
    weekdays: str
    months: str
    lines: LineWords
    records: RecordWords = RecordWords()
    stand_in: StandInWords = StandInWords()
    labels: dict[str, str] = {}


class _LanguageFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file as it is written: lists of words are strings, separated by white space.

    `synonyms` has a set of words a line, `pins` and `pin_endings` a phrase.
    """

    code: str
    script: Script
    stop_words: str
    question_words: str
    first_person: str
    fillers: str
    stemmer: str = ""
    letters: str = ""
    elisions: str = ""
    question_endings: str = ""
    request_words: str = ""
    leading_words: str = ""
    suffixes: str = ""
    shared_words: str = ""
    synonyms: str = ""
    empty_words: str = ""
    pins: str = ""
    pin_endings: str = ""
    times: str = ""
    numbers: str = ""
    prompt: _PromptWordsInFile | None = None


@dataclass(frozen=True, slots=True)
class PromptWords:
    """What a prompt says besides what was said: `player` has a place for the `{name}`, `emotions`
    for the `{marks}` of these, `today` for `{weekday}`, `{day}`, `{month}` and `{year}`; the first
    weekday is Monday.

    `records`, `stand_in` and `labels` may lack some words.
    """

    player: str
    rules: str
    emotions: str
    today: str
    weekdays: tuple[str, ...]
    months: tuple[str, ...]
    lines: LineWords
    records: RecordWords
    stand_in: StandInWords
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Language:
    """The words of a language, in lower case.

    `stemmer` names a Snowball algorithm. `letters` are seldom seen in English. `elisions` are what
    precedes an apostrophe and is no part of the word after it ("l" in "l'école"). `fillers` state
    nothing: greetings, thanks, laughter. `request_words` ask to be told or shown something; with
    "+" between them, words do if they stand in a sentence in that order.
    `leading_words` have another one follow them, so that hardly any message ends with one.
    `suffixes` are particles that are written as part of a word, longest first. `shared_words` occur
    in other languages, too, and tell little. `synonyms` maps words to the first words of the sets
    that they belong to: words of one set are found by each other. `empty_words` are those with
    which a model says that it found nothing ("not mentioned"), or names the parties. `pins` are how
    a player asks to have something saved: "/" separates alternatives of a word and begins one that
    may be missing, and "…" stands for a clause. `pin_endings` may follow them ("for ever"). `times`
    are phrases for days, weeks and so on, by how far away they are, a unit of time a line;
    `numbers` those from one on. English has neither: `time_expressions` has more of it.
    `prompt` is None if its file has no such words.
    """

    code: str
    script: Script
    stemmer: str | None
    letters: frozenset[str]
    elisions: frozenset[str]
    stop_words: frozenset[str]
    question_words: frozenset[str]
    question_endings: tuple[str, ...]
    request_words: frozenset[str]
    leading_words: frozenset[str]
    first_person: frozenset[str]
    fillers: frozenset[str]
    suffixes: tuple[str, ...]
    shared_words: frozenset[str]
    synonyms: Mapping[str, frozenset[str]]
    empty_words: frozenset[str] = frozenset()
    pins: tuple[str, ...] = ()
    pin_endings: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    prompt: PromptWords | None = None

    @property
    def function_words(self) -> frozenset[str]:
        """The words that are no terms: stop words and question words."""
        return self.stop_words | self.question_words


def parse_language(name: str, content: str) -> Language:
    """Parse the file `name`, "<code>.toml".

    Raises:
        InvalidLanguageFile: it is not TOML, or a field is missing, unknown or has another value.
    """
    try:
        file = msgspec.convert(_in_lower_case(tomllib.loads(content)), _LanguageFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidLanguageFile(f"{name}: {error}") from None
    if f"{file.code}.toml" != name:
        raise InvalidLanguageFile(f"{name}: code: expected the name of the file, not {file.code!r}")
    if file.stemmer and file.stemmer not in Stemmer.algorithms():
        raise InvalidLanguageFile(
            f"{name}: stemmer: expected one of {', '.join(Stemmer.algorithms())}, "
            f"not {file.stemmer!r}"
        )
    return Language(
        code=file.code,
        script=file.script,
        stemmer=file.stemmer or None,
        letters=frozenset(file.letters),
        elisions=frozenset(file.elisions.split()),
        stop_words=frozenset(file.stop_words.split()),
        question_words=frozenset(file.question_words.split()),
        request_words=frozenset(file.request_words.split()),
        leading_words=frozenset(file.leading_words.split()),
        question_endings=tuple(file.question_endings.split()),
        first_person=frozenset(file.first_person.split()),
        fillers=frozenset(file.fillers.split()),
        suffixes=tuple(sorted(file.suffixes.split(), key=len, reverse=True)),
        shared_words=frozenset(file.shared_words.split()),
        synonyms=_sets_of(file.synonyms),
        empty_words=frozenset(file.empty_words.split()),
        pins=_lines_of(file.pins),
        pin_endings=_lines_of(file.pin_endings),
        times=_lines_of(file.times),
        numbers=tuple(file.numbers.split()),
        prompt=None if file.prompt is None else _prompt_words(name, file.prompt),
    )


def _in_lower_case(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a file in lower case, besides the words that a prompt shows."""
    return {
        field.lower(): value.lower() if isinstance(value, str) else value
        for field, value in fields.items()
    }


def _prompt_words(name: str, file: _PromptWordsInFile) -> PromptWords:
    """Return the words of prompts in the file `name`.

    Raises:
        InvalidLanguageFile: there are too few or too many, or a place is missing or unknown.
    """
    weekdays, months = tuple(file.weekdays.split()), tuple(file.months.split())
    for field, words, count in (("weekdays", weekdays, 7), ("months", months, 12)):
        if len(words) != count:
            raise InvalidLanguageFile(
                f"{name}: prompt.{field}: expected {count} words, not {len(words)}"
            )
    texts = {"player": file.player, "emotions": file.emotions, "today": file.today}
    texts |= {f"lines.{field}": text for field, text in msgspec.structs.asdict(file.lines).items()}
    optional: dict[str, msgspec.Struct] = {"records": file.records, "stand_in": file.stand_in}
    for table, own in optional.items():
        written = msgspec.structs.asdict(own).items()
        texts |= {f"{table}.{field}": text for field, text in written if text}
    for field, text in texts.items():
        expected = unfilled(field, text)
        if expected is not None:
            raise InvalidLanguageFile(f"{name}: prompt.{field}: expected {expected}")
    for label in file.labels:
        if label not in LABELS:
            raise InvalidLanguageFile(
                f"{name}: prompt.labels: expected some of {', '.join(sorted(LABELS))}, "
                f"not {label!r}"
            )
    labels = MappingProxyType(file.labels)
    return PromptWords(
        file.player,
        file.rules,
        file.emotions,
        file.today,
        weekdays,
        months,
        file.lines,
        file.records,
        file.stand_in,
        labels,
    )


def _lines_of(phrases: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, phrases.splitlines())))


def _sets_of(synonyms: str) -> Mapping[str, frozenset[str]]:
    """Return the first words of the sets that each word belongs to."""
    sets: defaultdict[str, set[str]] = defaultdict(set)
    for words in map(str.split, synonyms.splitlines()):
        for word in words:
            sets[word].add(words[0])
    return MappingProxyType({word: frozenset(firsts) for word, firsts in sets.items()})


def _read_languages() -> Mapping[str, Language]:
    files = sorted(_DATA.glob("*.toml"))
    languages = [parse_language(path.name, path.read_text(encoding="utf-8")) for path in files]
    return MappingProxyType({language.code: language for language in languages})


#: Every language that there is a file for, by its code; read once, when the server starts.
LANGUAGES = _read_languages()
