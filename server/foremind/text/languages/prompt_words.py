"""The words of a prompt that are Foremind's own, and ages, in the player's language. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from string import Formatter
from typing import Literal, TypeVar

import msgspec
from babel import Locale, UnknownLocaleError
from babel.dates import format_timedelta

from foremind.domain.world import NO_CALENDAR, Calendar
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import (
    ENGLISH,
    LANGUAGES,
    PromptWords,
    RecordWords,
    StandInWords,
)

_ANOTHER = next(code for code in LANGUAGES if code != ENGLISH)


def prompt_words(language: str) -> PromptWords:
    """Return the words of a language; English ones where there is no file, or none in it."""
    known = LANGUAGES.get(language, LANGUAGES[ENGLISH])
    words = known.prompt or LANGUAGES[ENGLISH].prompt
    if words is None:
        raise RuntimeError("the file of English has no words of prompts")
    return words


def with_words(language: str) -> str:
    """Return the language if there are words of it, else English."""
    return language if prompt_words(language) is not prompt_words(ENGLISH) else ENGLISH


@lru_cache(64)
def record_words(language: str) -> RecordWords:
    """Return the words of records in a language; each that its file lacks in English."""
    return _completed(prompt_words(language).records, prompt_words(ENGLISH).records)


@lru_cache(64)
def stand_in_words(language: str) -> StandInWords:
    """Return what the stand-in for a language model says; each that a file lacks in English."""
    return _completed(prompt_words(language).stand_in, prompt_words(ENGLISH).stand_in)


_Words = TypeVar("_Words", RecordWords, StandInWords)


def _completed(own: _Words, english: _Words) -> _Words:
    texts = msgspec.structs.asdict(own)
    return msgspec.structs.replace(english, **{name: text for name, text in texts.items() if text})


def label_in(language: str, label: str) -> str:
    """Return one of Foremind's own labels, given in English, in a language.

    Unchanged if it has no word for it, or the label is not Foremind's own.
    """
    return prompt_words(language).labels.get(label, label)


def heading_in(language: str, label: str) -> str:
    """Return a label as it begins a sentence."""
    word = label_in(language, label)
    return f"{word[0].upper()}{word[1:]}"


def date_in(language: str, day: datetime, calendar: Calendar = NO_CALENDAR) -> str:
    """Return "Today is Wednesday, 20 May 2026." in a language, with the names of a calendar."""
    words = prompt_words(language)
    return words.today.format(
        weekday=(calendar.days or words.weekdays)[day.weekday()],
        day=day.day,
        month=(calendar.months or words.months)[day.month - 1],
        year=day.year,
    )


def emotions_in(language: str, emotions: Sequence[str]) -> str:
    """Return how a language model is asked to mark its sentences with emotions."""
    marks = " ".join(f"[{emotion}]" for emotion in emotions)
    return prompt_words(language).emotions.format(marks=marks)


def day_in(language: str, day: datetime, calendar: Calendar = NO_CALENDAR) -> str:
    """Return "20 May 2026" in a language, with the names of a calendar."""
    words = prompt_words(language)
    month = (calendar.months or words.months)[day.month - 1]
    return words.lines.date.format(day=day.day, month=month, year=day.year)


def english_day(text: str) -> str | None:
    """Return a day that is written as `day_in` does in some language, in English; else None."""
    for months, pattern in _DAYS:
        match = pattern.fullmatch(text)
        if match is not None:
            month = _MONTHS[months.index(match["month"])]
            return f"{int(match['day'])} {month} {match['year']}"
    return None


def is_day_heading(text: str) -> bool:
    """Return whether a text only says on which day what follows was said, in some language."""
    return _DAY_HEADING.fullmatch(text) is not None


def _pattern(template: str, places: Mapping[str, str]) -> str:
    """Return a pattern of a filled template, given those of its places."""
    return "".join(
        re.escape(literal) + (places[place] if place is not None else "")
        for literal, place, _, _ in Formatter().parse(template)
    )


def _date_pattern(language: str, *, named: bool) -> str:
    words = prompt_words(language)
    places = {
        "day": r"\d{1,2}",
        "month": "|".join(re.escape(month) for month in sorted(words.months, key=len)[::-1]),
        "year": r"\d{4}",
    }
    begin = {place: f"(?P<{place}>" if named else "(?:" for place in places}
    filled = {place: f"{begin[place]}{pattern})" for place, pattern in places.items()}
    return _pattern(words.lines.date, filled)


_MONTHS = prompt_words(ENGLISH).months
_DAYS = [
    (prompt_words(code).months, re.compile(_date_pattern(code, named=True))) for code in LANGUAGES
]
#: A pattern of the days that have in them what ends sentences: "20. Mai 2026".
STOPPED_DAYS = "|".join(
    _date_pattern(code, named=False)
    for code in LANGUAGES
    if re.search(r"[.!?…;|]\s", prompt_words(code).lines.date)
)
_DAY_HEADING = re.compile(
    "|".join(
        _pattern(record_words(code).on_day, {"date": _date_pattern(code, named=False)})
        for code in LANGUAGES
    )
)


def locale_of(language: str) -> Locale | None:
    """Return what the Unicode CLDR knows of a language; None if nothing."""
    try:
        return Locale.parse(language)
    except (UnknownLocaleError, ValueError):
        return None


def language_name(language: str) -> str:
    """Return the English name of a language, its code if it has none."""
    locale = locale_of(language)
    return (locale and locale.english_name) or language


def language_of_messages(texts: Iterable[str]) -> str:
    """Return the language of most of a player's messages, of as many the first one's.

    Those that do not tell theirs are left out; English if none does.
    """
    languages = Counter(language_of(text) for text in texts if _tells_language(text))
    return next((code for code, _ in languages.most_common(1)), ENGLISH)


def _tells_language(text: str) -> bool:
    return language_of(text, ENGLISH) == language_of(text, _ANOTHER)


_Unit = Literal["minute", "hour", "day", "week", "month", "year"]

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve")  # fmt: skip
_DAY_S = 86_400
# As Babel counts them.
_SECONDS: dict[_Unit, int] = {
    "minute": 60, "hour": 3600, "day": _DAY_S, "week": 7 * _DAY_S, "month": 30 * _DAY_S,
    "year": 365 * _DAY_S,
}  # fmt: skip
_NO_LARGER_UNIT = float("inf")
_MOST_CACHED = 1024  # ages in words


def age_in_words(then: datetime, now: datetime, language: str = ENGLISH) -> str:
    """Return "just now", "an hour ago", "yesterday", "three weeks ago" and the like.

    Days are those of the time zone of `now`; hours have sixty minutes, whatever the clocks show. In
    other languages than English "just now" and "yesterday" are words of the language's file; the
    others are those of the Unicode CLDR.
    """
    language = with_words(language)
    elapsed_s = now.timestamp() - then.timestamp()  # a difference of local times ignores a change
    if elapsed_s < _SECONDS["minute"]:
        return prompt_words(language).lines.just_now
    if elapsed_s < _SECONDS["hour"]:
        return _ago(int(elapsed_s // 60), "minute", language)
    days = (now.date() - then.astimezone(now.tzinfo).date()).days
    if days == 0:
        return _ago(int(elapsed_s // 3600), "hour", language)
    if days == 1:
        return prompt_words(language).lines.yesterday
    if days < 14:
        return _ago(days, "day", language)
    if days < 60:
        return _ago(days // 7, "week", language)
    if days < 730:
        return _ago(round(days / 30.44), "month", language)
    return _ago(round(days / 365.25), "year", language)


def load_ages(language: str) -> None:
    """Load what ages in a language are told with, which takes some milliseconds once."""
    _ago(2, "day", with_words(language))


@lru_cache(_MOST_CACHED)
def _ago(count: int, unit: _Unit, language: str) -> str:
    locale = None if language == ENGLISH else locale_of(language)
    if locale is not None:
        past = -count * _SECONDS[unit]
        return format_timedelta(past, unit, _NO_LARGER_UNIT, add_direction=True, locale=locale)
    if count == 1:
        return f"{'an' if unit == 'hour' else 'a'} {unit} ago"
    return f"{_NUMBERS[count] if count < len(_NUMBERS) else count} {unit}s ago"
