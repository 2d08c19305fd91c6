"""When: the spans of time that a text speaks of, read relative to a clock. Pure.

dateparser reads the expressions; finding them is a pattern of its own, because the library's own
search through a sentence takes tens of milliseconds, too long between two keystrokes.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from dateparser.date import DateDataParser

Seconds = npt.NDArray[np.float64]

_MAX_SPANS = 4  # a sentence seldom names more; a pasted list of dates is no question
_FAR_AWAY = timedelta(days=36_500)

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
    re.IGNORECASE,
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

    At most four. Expressions without a year mean the past: people ask about what was.
    """
    found: list[Span] = []
    if _HINT.search(text) is None:
        return found
    for match in _EXPRESSION.finditer(text):
        span = _span(match["date"].lower(), now.replace(hour=12, minute=0, second=0, microsecond=0))
        if span is not None:
            found.append(_shifted(span, match))
        if len(found) == _MAX_SPANS:
            break
    return found


def day_of(moment: datetime) -> Span:
    """Return the day that a moment is in."""
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return Span(start, start + timedelta(days=1))


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
            Span(span.start - width, span.start)
            if match["side"].lower() == "before"
            else Span(span.end, span.end + width)
        )
    if match["side"].lower() == "before":
        distance = -distance
    return Span(span.start + distance, span.end + distance)


def beside(span: Span, bound: str) -> Span:
    """Return everything before, since or after a span."""
    if bound in ("before", "until", "till"):
        return Span(span.start - _FAR_AWAY, span.start)
    start = span.start if bound == "since" else span.end
    return Span(start, start + _FAR_AWAY)


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS.get(word, 1)


@lru_cache(maxsize=4096)
def _span(expression: str, noon: datetime) -> Span | None:
    """Read one expression, relative to the noon of a day."""
    words = expression.split()
    if words[-1] in _FIRST_MONTH:
        return _season(words[0], words[-1], noon)
    if words[0] in _FIRST_MONTH:
        return _season("this", words[0], noon.replace(year=int(words[-1])))
    if words[-1] == "weekend":
        return _weekend(words[0], noon)
    if words[-1] == "ago":
        return _ago(words, noon)
    bare = _PREPOSITION.sub("", expression)
    read: Any = _reader(noon).get_date_data(bare)
    if read.date_obj is None:
        return None
    span = _whole(read.date_obj.replace(tzinfo=noon.tzinfo), _period(bare, str(read.period)))
    if words[0] == "next" and bare != expression and span.end <= noon:
        return _whole(span.start.replace(year=span.start.year + 1), "month")
    return span


@lru_cache(maxsize=64)
def _reader(noon: datetime) -> DateDataParser:
    """Return a reader of English expressions, for which "Friday" is the last one."""
    return DateDataParser(
        languages=["en"],
        settings={"RELATIVE_BASE": noon.replace(tzinfo=None), "PREFER_DATES_FROM": "past"},
    )


def _period(expression: str, period: str) -> str:
    """A bare year and a bare month are whole; the library says so of most."""
    return "year" if re.fullmatch(r"(?:19|20)\d\d", expression) else period


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
