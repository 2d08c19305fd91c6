"""The words of a prompt that are Foremind's own, in the player's language. Pure."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from babel import Locale, UnknownLocaleError

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, PromptWords

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


def date_in(language: str, day: datetime) -> str:
    """Return "Today is Wednesday, 20 May 2026." in a language."""
    words = prompt_words(language)
    return words.today.format(
        weekday=words.weekdays[day.weekday()],
        day=day.day,
        month=words.months[day.month - 1],
        year=day.year,
    )


def day_in(language: str, day: datetime) -> str:
    """Return "20 May 2026" in a language."""
    words = prompt_words(language)
    return words.lines.date.format(day=day.day, month=words.months[day.month - 1], year=day.year)


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
