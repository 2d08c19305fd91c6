"""The spans of time that a text mentions, resolved relative to a clock. Pure.

Expressions are found by a regular expression, because dateparser's search through a sentence takes
tens of milliseconds, too long between two keystrokes. Calendar dates are parsed here, which takes
microseconds even for days that do not exist; the library parses the rest.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from dateparser.date import DateDataParser

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH

Seconds = npt.NDArray[np.float64]

#: How many characters of a text are searched, and how many expressions are parsed, valid or not. A
#: sentence seldom has more, a pasted list of dates is no question, and this blocks the event loop.
MAX_CHARS = 2_000
MAX_EXPRESSIONS = 4
_FAR_AWAY = timedelta(days=36_500)
# Within what PostgreSQL and every time zone can represent.
_EARLIEST, _LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
_MAX_LEAP_GAP_YEARS = 8  # the longest time between two leap years

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_COUNT = (
    r"(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\d{1,3}|"
    r"a few|several|a couple(?: of)?)"
)
_UNIT = r"(?:day|weekend|week|month|year)"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_DATE = (
    rf"(?:\d{{4}}-\d\d-\d\d|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}\b(?:,? \d{{4}}\b)?|"
    rf"{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?|{_MONTH},? \d{{4}}\b|"
    rf"(?:in|this|last|next|since|during|of|until|by|early|late|mid|before|after) {_MONTH}\b"
    rf"(?!,? \d| be\b)|{_SEASON}(?: of)? \d{{4}}\b|(?:19|20)\d\d\b)"
)
_RELATIVE = (
    rf"(?:the day before yesterday|yesterday|today|tonight|tomorrow|last night|"
    rf"this (?:morning|afternoon|evening)|"
    rf"(?:last|this|next|past|previous) (?:{_UNIT}|{_SEASON}|{_WEEKDAY})\b|"
    rf"{_COUNT} {_UNIT}s? ago|in {_COUNT} {_UNIT}s?\b|{_WEEKDAY}\b)"
)
_EXPRESSION = re.compile(
    rf"\b(?P<shift>(?:the |{_COUNT} )?{_UNIT}s? (?P<side>before|after) |"
    rf"(?P<bound>before|after|since|until|till) )?"
    rf"(?:the )?(?P<date>{_DATE}|{_RELATIVE})",
    re.IGNORECASE | re.ASCII,
)
_CALENDAR_DATE = re.compile(
    rf"(?P<iso>\d{{4}}-\d\d-\d\d)|"
    rf"(?:(?P<first>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<month>{_MONTH})"
    r"(?: (?P<day>\d{1,2})(?:st|nd|rd|th)?)?(?:,? (?P<year>\d{4}))?|(?P<whole>\d{4})",
    re.ASCII,
)
_PREPOSITION = re.compile(
    r"^(?:in|this|last|next|during|of|until|by|early|late|mid|since|before|after) "
    rf"(?={_MONTH}\b|\d{{4}}$)"
)
# Every expression contains one of these; most drafts contain none, and need no full search.
_HINT = re.compile(
    r"\d|day|week|month|year|night|morning|evening|afternoon|spring|summer|autumn|fall|winter|"
    r"tomorrow|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec",
    re.IGNORECASE,
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_DAYS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}
_COUNTS = {
    word: number
    for number, words in enumerate(
        ("", "a an one the", "two couple", "three few", "four several", "five", "six", "seven",
         "eight", "nine", "ten", "eleven", "twelve")
    )
    for word in words.split()
}  # fmt: skip
DAY_S = 86_400.0
_FIRST_MONTH = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}


@dataclass(frozen=True, slots=True)
class Span:
    """A period of time, `start` inclusive, `end` exclusive; both with a time zone."""

    start: datetime
    end: datetime

    @property
    def days(self) -> float:
        """Its length in days."""
        return (self.end - self.start).total_seconds() / 86_400


def spans_in(text: str, now: datetime, fallback: str = ENGLISH) -> list[Span]:
    """Return the spans of time that `text` mentions, as somebody who says it at `now` means them.

    At most four. Expressions without a year mean the past, because people ask about what was. Days
    that do not exist are ignored. Texts in other languages than English mention none;
    `fallback` is the language where it is unsure.
    """
    spans: list[Span] = []
    searched = text[:MAX_CHARS]
    if _HINT.search(searched) is None or language_of(searched, fallback) != ENGLISH:
        return spans
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    for match in islice(_EXPRESSION.finditer(searched), MAX_EXPRESSIONS):
        span = _span(match["date"].lower(), noon)
        clipped = None if span is None else _clipped(_shifted(span, match))
        if clipped is not None:
            spans.append(clipped)
    return spans


def day_of(moment: datetime) -> Span:
    """Return the day that contains a moment."""
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return Span(start, _clamped_shift(start, timedelta(days=1)))


def span_proximity(query: Span, starts: Seconds, ends: Seconds) -> Seconds:
    """Return how well spans match a query's span: 1 if they overlap, decaying to 0; float64 [n].

    It halves with every three days in between, or with every half length of a longer query: "in
    May" does not mean the last day of April, which may be of interest nonetheless.

    Args:
        starts, ends: float64 [n], seconds since 1970.
    """
    gaps = np.maximum(query.start.timestamp() - ends, starts - query.end.timestamp())
    half_life_s = max(3.0, min(query.days, 60.0) / 2) * DAY_S
    return np.asarray(0.5 ** (np.maximum(gaps, 0.0) / half_life_s), np.float64)


def _shifted(span: Span, match: re.Match[str]) -> Span:
    """Apply "two weeks before", "before", "since" and the like."""
    if match["bound"]:
        return open_ended_span(span, match["bound"].lower())
    if not match["shift"]:
        return span
    words = match["shift"].lower().split()
    unit = next(_DAYS[word.rstrip("s")] for word in words if word.rstrip("s") in _DAYS)
    shift = timedelta(days=unit * _count(words[0]))
    if words[0] in ("the", "week", "month", "weekend", "year", "day"):
        width = timedelta(days=unit)
        return (
            Span(_clamped_shift(span.start, -width), span.start)
            if match["side"].lower() == "before"
            else Span(span.end, _clamped_shift(span.end, width))
        )
    if match["side"].lower() == "before":
        shift = -shift
    return Span(_clamped_shift(span.start, shift), _clamped_shift(span.end, shift))


def open_ended_span(span: Span, bound: str) -> Span:
    """Return the open-ended span before, since or after a span."""
    if bound in ("before", "until", "till"):
        return Span(_clamped_shift(span.start, -_FAR_AWAY), span.start)
    start = span.start if bound == "since" else span.end
    return Span(start, _clamped_shift(start, _FAR_AWAY))


def _clamped_shift(moment: datetime, by: timedelta) -> datetime:
    """Return a moment shifted, but not beyond the calendar."""
    try:
        return moment + by
    except OverflowError:
        return (_EARLIEST if by < timedelta(0) else _LATEST).astimezone(moment.tzinfo)


def _clipped(span: Span) -> Span | None:
    """Return the part of a span within the calendar, if any."""
    clipped = Span(max(span.start, _EARLIEST), min(span.end, _LATEST))
    return clipped if clipped.start < clipped.end else None


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS.get(word, 1)


@lru_cache(maxsize=4096)
def _span(expression: str, noon: datetime) -> Span | None:
    """Resolve one expression relative to the noon of a day; None if it names no valid time."""
    try:
        return _named(expression, noon)
    except (ValueError, OverflowError):  # the year 0, the 30th of February, the end of the calendar
        return None


def _named(expression: str, noon: datetime) -> Span | None:
    words = expression.split()
    if words[-1] in _FIRST_MONTH:
        return _season(words[0], words[-1], noon)
    if words[0] in _FIRST_MONTH:
        return _season("this", words[0], noon.replace(year=int(words[-1]), day=1))
    if words[-1] == "weekend":
        return _weekend(words[0], noon)
    if words[-1] == "ago":
        return _ago(words, noon)
    date_text = _PREPOSITION.sub("", expression)
    calendar_date = _CALENDAR_DATE.fullmatch(date_text)
    if calendar_date is not None:
        span = _calendar_span(calendar_date, noon)
        if words[0] == "next" and span.end <= noon:
            return _period_around(span.start.replace(year=span.start.year + 1), "month")
        return span
    parsed: Any = _reader(noon).get_date_data(date_text)
    if parsed.date_obj is None:
        return None
    return _period_around(parsed.date_obj.replace(tzinfo=noon.tzinfo), str(parsed.period))


def _calendar_span(match: re.Match[str], noon: datetime) -> Span:
    """Return the day, month or year that is named; without a year, the most recent one."""
    if match["whole"]:
        return _period_around(noon.replace(year=int(match["whole"]), month=1, day=1), "year")
    if match["iso"]:
        iso_date = date.fromisoformat(match["iso"])
        return day_of(noon.replace(year=iso_date.year, month=iso_date.month, day=iso_date.day))
    month = _MONTHS[match["month"][:3]]
    day_number = match["first"] or match["day"]
    day, period = (1, "month") if day_number is None else (int(day_number), "day")
    first = noon.replace(month=month, day=1)
    if match["year"]:
        return _period_around(first.replace(year=int(match["year"]), day=day), period)
    for year in range(noon.year, noon.year - _MAX_LEAP_GAP_YEARS - 1, -1):
        if day <= monthrange(year, month)[1] and first.replace(year=year, day=day) <= noon:
            return _period_around(first.replace(year=year, day=day), period)
    raise ValueError(f"{match[0]}: there is no such day")


def clear_span_cache() -> None:
    """Clear the cache of resolved expressions."""
    _span.cache_clear()


@lru_cache(maxsize=64)
def _reader(noon: datetime) -> DateDataParser:
    """Return a parser of English expressions, for which "Friday" is the last one."""
    return DateDataParser(
        languages=["en"],
        settings={"RELATIVE_BASE": noon.replace(tzinfo=None), "PREFER_DATES_FROM": "past"},
    )


def _period_around(moment: datetime, period: str) -> Span:
    """Return the day, week, month or year that contains a moment."""
    day = day_of(moment).start
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return Span(monday, monday + timedelta(days=7))
    if period == "month":
        first = day.replace(day=1)
        return Span(first, first + timedelta(days=monthrange(day.year, day.month)[1]))
    if period == "year":
        return Span(day.replace(month=1, day=1), day.replace(year=day.year + 1, month=1, day=1))
    return Span(day, day + timedelta(days=1))


def _ago(words: list[str], noon: datetime) -> Span:
    """Return an approximate span: "three days ago" is that day, longer units are less exact."""
    unit = words[-2].rstrip("s")
    count = next((_count(word) for word in reversed(words[:-2]) if word != "of"), 1)
    middle = noon - timedelta(days=_DAYS[unit] * count)
    slack = timedelta(days={"day": 0.5, "week": 4, "weekend": 4, "month": 16, "year": 180}[unit])
    return Span(middle - slack, middle + slack)


def _weekend(relation: str, noon: datetime) -> Span:
    """Return a Saturday and Sunday: "last" is past, "this" and "next" are the coming one."""
    saturday = day_of(noon).start + timedelta(days=5 - noon.weekday())
    if relation not in ("this", "next"):
        saturday -= timedelta(days=7)
    return Span(saturday, saturday + timedelta(days=2))


def _season(relation: str, season: str, noon: datetime) -> Span:
    """Return the three months of a northern season: the last, the next, or this year's."""
    start = day_of(noon).start.replace(month=_FIRST_MONTH[season], day=1)
    if relation == "next" and start <= noon:
        start = start.replace(year=start.year + 1)
    if relation in ("last", "past", "previous") and start + timedelta(days=91) > noon:
        start = start.replace(year=start.year - 1)
    return Span(start, start + timedelta(days=91))
