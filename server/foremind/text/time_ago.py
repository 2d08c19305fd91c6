"""How long ago something was, and how long something lasts, in words. Pure."""

from datetime import datetime
from functools import lru_cache
from typing import Literal

from babel.dates import format_timedelta

from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import locale_of, prompt_words, with_words

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
