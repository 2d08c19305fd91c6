"""When: the spans of time that a text speaks of, read relative to a clock. Pure.

Finding expressions is a pattern of its own, because dateparser's search through a sentence takes
tens of milliseconds, too long between two keystrokes. Dates of the calendar are read here, which
takes microseconds also where there is no such day; the library reads the rest.
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

Seconds = npt.NDArray[np.float64]

#: How much of a text is read, and how many expressions in it, whether they name a time or not: a
#: sentence seldom holds more, a pasted list of dates is no question, and everybody waits meanwhile.
MOST_CHARS = 2_000
MOST_EXPRESSIONS = 4
_FAR_AWAY = timedelta(days=36_500)
# The calendar ends within what PostgreSQL and every time zone can tell.
_EARLIEST, _LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
_LEAP_YEARS = 8  # between two of them at most

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
_CALENDAR = re.compile(
    rf"(?P<iso>\d{{4}}-\d\d-\d\d)|"
    rf"(?:(?P<first>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<month>{_MONTH})"
    r"(?: (?P<day>\d{1,2})(?:st|nd|rd|th)?)?(?:,? (?P<year>\d{4}))?|(?P<whole>\d{4})",
    re.ASCII,
)
_PREPOSITION = re.compile(
    r"^(?:in|this|last|next|during|of|until|by|early|late|mid|since|before|after) "
    rf"(?={_MONTH}\b|\d{{4}}$)"
)
# What every expression holds some of: most drafts hold none, and are done with sooner.
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
    """A stretch of time, `start` inclusive, `end` exclusive; both with a time zone."""

    start: datetime
    end: datetime

    @property
    def days(self) -> float:
        """Its length in days."""
        return (self.end - self.start).total_seconds() / 86_400


def spans_in(text: str, now: datetime) -> list[Span]:
    """Return the spans of time that `text` names, as someone who says it at `now` means them.

    At most four. Expressions without a year mean the past: people ask about what was. What names
    no day of the calendar is passed over.
    """
    found: list[Span] = []
    read = text[:MOST_CHARS]
    if _HINT.search(read) is None:
        return found
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    for match in islice(_EXPRESSION.finditer(read), MOST_EXPRESSIONS):
        span = _span(match["date"].lower(), noon)
        within = None if span is None else _within_calendar(_shifted(span, match))
        if within is not None:
            found.append(within)
    return found


def day_of(moment: datetime) -> Span:
    """Return the day that a moment is in."""
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return Span(start, _moved(start, timedelta(days=1)))


def closeness(asked: Span, starts: Seconds, ends: Seconds) -> Seconds:
    """Return how well spans fit what was asked for, 1 where they meet, falling to 0.

    It halves with every three days, or with every half length of a longer span: who asks for
    "in May" does not mean the last of April, but may well be told of it.

    Args:
        starts, ends: float64 [n], seconds since 1970.
    """
    gaps = np.maximum(asked.start.timestamp() - ends, starts - asked.end.timestamp())
    halving = max(3.0, min(asked.days, 60.0) / 2) * DAY_S
    return np.asarray(0.5 ** (np.maximum(gaps, 0.0) / halving), np.float64)


def _shifted(span: Span, match: re.Match[str]) -> Span:
    """Apply "two weeks before", "before", "since" and the like."""
    if match["bound"]:
        return beside(span, match["bound"].lower())
    if not match["shift"]:
        return span
    words = match["shift"].lower().split()
    unit = next(_DAYS[word.rstrip("s")] for word in words if word.rstrip("s") in _DAYS)
    distance = timedelta(days=unit * _count(words[0]))
    if words[0] in ("the", "week", "month", "weekend", "year", "day"):
        width = timedelta(days=unit)
        return (
            Span(_moved(span.start, -width), span.start)
            if match["side"].lower() == "before"
            else Span(span.end, _moved(span.end, width))
        )
    if match["side"].lower() == "before":
        distance = -distance
    return Span(_moved(span.start, distance), _moved(span.end, distance))


def beside(span: Span, bound: str) -> Span:
    """Return everything before, since or after a span."""
    if bound in ("before", "until", "till"):
        return Span(_moved(span.start, -_FAR_AWAY), span.start)
    start = span.start if bound == "since" else span.end
    return Span(start, _moved(start, _FAR_AWAY))


def _moved(moment: datetime, by: timedelta) -> datetime:
    """Return a moment moved, no farther than to an end of the calendar."""
    try:
        return moment + by
    except OverflowError:
        return (_EARLIEST if by < timedelta(0) else _LATEST).astimezone(moment.tzinfo)


def _within_calendar(span: Span) -> Span | None:
    within = Span(max(span.start, _EARLIEST), min(span.end, _LATEST))
    return within if within.start < within.end else None


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS.get(word, 1)


@lru_cache(maxsize=4096)
def _span(expression: str, noon: datetime) -> Span | None:
    """Read one expression, relative to the noon of a day; None where it names no time."""
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
    bare = _PREPOSITION.sub("", expression)
    calendar = _CALENDAR.fullmatch(bare)
    if calendar is not None:
        span = _of_calendar(calendar, noon)
        if words[0] == "next" and span.end <= noon:
            return _whole(span.start.replace(year=span.start.year + 1), "month")
        return span
    read: Any = _reader(noon).get_date_data(bare)
    if read.date_obj is None:
        return None
    return _whole(read.date_obj.replace(tzinfo=noon.tzinfo), str(read.period))


def _of_calendar(match: re.Match[str], noon: datetime) -> Span:
    """Return the day, month or year that is named; without a year, the last one that was."""
    if match["whole"]:
        return _whole(noon.replace(year=int(match["whole"]), month=1, day=1), "year")
    if match["iso"]:
        named = date.fromisoformat(match["iso"])
        return day_of(noon.replace(year=named.year, month=named.month, day=named.day))
    month = _MONTHS[match["month"][:3]]
    numbered = match["first"] or match["day"]
    day, period = (1, "month") if numbered is None else (int(numbered), "day")
    first = noon.replace(month=month, day=1)
    if match["year"]:
        return _whole(first.replace(year=int(match["year"]), day=day), period)
    for year in range(noon.year, noon.year - _LEAP_YEARS - 1, -1):
        if day <= monthrange(year, month)[1] and first.replace(year=year, day=day) <= noon:
            return _whole(first.replace(year=year, day=day), period)
    raise ValueError(f"{match[0]}: there is no such day")


def forget_expressions() -> None:
    """Drop the expressions whose spans are remembered."""
    _span.cache_clear()


@lru_cache(maxsize=64)
def _reader(noon: datetime) -> DateDataParser:
    """Return a reader of English expressions, for which "Friday" is the last one."""
    return DateDataParser(
        languages=["en"],
        settings={"RELATIVE_BASE": noon.replace(tzinfo=None), "PREFER_DATES_FROM": "past"},
    )


def _whole(moment: datetime, period: str) -> Span:
    """Return the day, week, month or year around a moment."""
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
    """ "Three weeks ago" is about then: a day either way for days, more for longer units."""
    unit = words[-2].rstrip("s")
    count = next((_count(word) for word in reversed(words[:-2]) if word != "of"), 1)
    middle = noon - timedelta(days=_DAYS[unit] * count)
    slack = timedelta(days={"day": 0.5, "week": 4, "weekend": 4, "month": 16, "year": 180}[unit])
    return Span(middle - slack, middle + slack)


def _weekend(which: str, noon: datetime) -> Span:
    """Saturday and Sunday; "last" is the one that is over, "this" and "next" are to come."""
    saturday = day_of(noon).start + timedelta(days=5 - noon.weekday())
    if which not in ("this", "next"):
        saturday -= timedelta(days=7)
    return Span(saturday, saturday + timedelta(days=2))


def _season(which: str, season: str, noon: datetime) -> Span:
    """Three months, of the year that "last", "this" or "next" means in the northern half."""
    first = _FIRST_MONTH[season]
    start = day_of(noon).start.replace(month=first, day=1)
    if which == "next" and start <= noon:
        start = start.replace(year=start.year + 1)
    if which in ("last", "past", "previous") and start + timedelta(days=91) > noon:
        start = start.replace(year=start.year - 1)
    return Span(start, start + timedelta(days=91))
