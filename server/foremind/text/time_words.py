"""Words for times in other languages than English, as what they are in English. Pure.

Relative days and periods are those of the language's file ("vorgestern", "la semana pasada"). How
long ago something was ("hace dos días") and names of weekdays and months are those of the Unicode
CLDR. A weekday that does not say whether it is the last or the next one, and a day without its
year, begin with "on": nothing tells here whether a verb is past. A month alone must have its year.
"""

import re
from collections.abc import Iterator
from functools import cache

from babel import Locale

from foremind.text.languages.language_files import (
    LANGUAGES,
    UNSPACED,
    Language,
    any_of,
    phrase_pattern,
)

_UNITS = ("hour", "day", "week", "month", "year")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_NEAR = {-1: "last {}", 0: "this {}", 1: "next {}", -2: "{} before last", 2: "{} after next"}
_NEAR_DAYS = {-1: "yesterday", 0: "today", 1: "tomorrow"}
_FIGURES = r"(?:\d{4}\s?[年년]\s?)?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]"


def english_times(text: str, language: str) -> Iterator[str]:
    """Yield what the times are called in English that words of a language name in a text."""
    words = _time_words(language)
    for match in words.pattern.finditer(text):
        assert match.lastgroup is not None
        english = words.meanings[int(match.lastgroup[1:])]
        if english:
            yield words.filled(english, match[0].lower())


def is_only_time(text: str, language: str) -> bool:
    """Return whether a text has no word that tells anything besides times."""
    others = re.findall(r"\w+", _time_words(language).pattern.sub(" ", text).lower())
    return LANGUAGES[language].stop_words.issuperset(others)


class _TimeWords:
    """The words for times of a language, and what they mean."""

    def __init__(self, language: Language) -> None:
        locale = Locale(language.code)
        bound, end = (r"\b", r"(?!\w)") if language.script not in UNSPACED else ("", "")
        self._bound, self._end = bound, end
        space = r"\s+" if bound else r"\s*"
        numbers = list(enumerate((words.split("/") for words in language.numbers), 1))
        self._numbers = {word: number for number, words in numbers for word in words}
        self._weekdays = [_inflected(locale.days["format"]["wide"][day]) for day in range(7)]
        self._months = [locale.months["format"]["wide"][month].lower() for month in range(1, 13)]
        day, month = r"\d{1,2}(?:[.º°]|er)?\s+(?:de )?", any_of(self._months)
        year = r"(?: de)?,?\s\d{4}"
        months = rf"{day}(?:{month})(?:{year})?|(?:{month}){year}"
        weekday, count = "|".join(self._weekdays), rf"(?:\d{{1,3}}|{any_of(self._numbers)})"
        known = [
            (
                phrase_pattern(phrase, separated=bool(bound)).replace(
                    r"\{weekday\}", f"(?:{weekday})"
                ),
                english,
            )
            for phrase, english in sorted(_relative(language), key=lambda known: -len(known[0]))
        ]
        for unit in _UNITS:
            for tense, english in (("past", f"# {unit}s ago"), ("future", f"in # {unit}s")):
                for said in {*locale._data["date_fields"][unit][tense].values()}:
                    pattern = re.escape(said).replace(r"\{0\}", count)
                    known.append((re.sub(r"(?:\\?\s)+", lambda _: space, pattern), english))
        known.append((_FIGURES if not bound else months, "date"))
        self.meanings = [english for _, english in known]
        groups = "|".join(f"(?P<g{n}>{pattern})" for n, (pattern, _) in enumerate(known))
        self.pattern = re.compile(f"{bound}(?:{groups}){end}", re.IGNORECASE)

    def filled(self, english: str, said: str) -> str:
        """Return an English expression with the number, weekday or date that was said."""
        if english == "date":
            return self._date(said)
        if "@" in english:
            found = (
                n for n, day in enumerate(self._weekdays) if re.search(rf"\b{day}(?!\w)", said)
            )
            return english.replace("@", _WEEKDAYS[next(found)])
        digits = re.search(r"\d+", said)
        number = digits or re.search(rf"{self._bound}(?:{any_of(self._numbers)}){self._end}", said)
        counted = number[0] if number else ""
        return english.replace("#", str(self._numbers.get(counted, counted)))

    def _date(self, said: str) -> str:
        figures = [int(figure) for figure in re.findall(r"\d+", said)]
        if re.fullmatch(_FIGURES, said):
            *year, month, day = figures
            if not 0 < month <= 12:
                return ""
            named = " ".join(map(str, [day, _MONTHS[month - 1], *year]))
            return named if year else f"on {named}"
        month = max((name in said, len(name), number) for number, name in enumerate(self._months))[
            2
        ]
        if figures[-1] < 100:
            return f"on {figures[0]} {_MONTHS[month]}"
        return " ".join([*map(str, figures[:-1]), _MONTHS[month], str(figures[-1])])


def prepare() -> None:
    """Read the words of all languages, which takes tens of milliseconds for each."""
    for language in LANGUAGES:
        _time_words(language)


@cache
def _time_words(language: str) -> _TimeWords:
    return _TimeWords(LANGUAGES[language])


def _relative(language: Language) -> Iterator[tuple[str, str]]:
    """Yield the phrases of a language's file, and what they are in English; "" means no time."""
    for line in language.times:
        unit, _, meanings = line.partition(":")
        for meaning in meanings.split(";"):
            count, _, phrases = meaning.strip().partition(" ")
            for phrase in phrases.split(","):
                yield phrase.strip(), _in_english(unit, int(count))


def _in_english(unit: str, count: int) -> str:
    if unit == "none":
        return ""
    if unit == "day":
        ago = f"{-count} days ago" if count < 0 else f"in {count} days"
        return _NEAR_DAYS.get(count, ago)
    if unit == "weekday":
        return _NEAR[count].format("@") if count else "on @"
    return _NEAR[count].format(unit)


def _inflected(weekday: str) -> str:
    """Return a pattern of a weekday in any case: "пятницу", and "sexta" for "sexta-feira"."""
    head = weekday.lower().partition("-")[0]
    return (
        rf"{re.escape(head[:-1])}\w{{1,2}}(?:-\w+)?" if head.isalpha() and len(head) > 3 else head
    )
