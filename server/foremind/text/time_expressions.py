"""The spans of time that a text mentions, resolved relative to a clock. Pure.

Words for times are English, or those of `time_words` for other languages. Dates in figures are read
in every language, in the order of day and month that the player's language and region have.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt

from foremind.domain.world import NO_CALENDAR, Calendar
from foremind.text.languages import utterances
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES
from foremind.text.tense import Direction, directions_of
from foremind.text.time_words import english_times, is_only_time

Seconds = npt.NDArray[np.float64]

#: How many characters of a text are searched, and how many expressions resolved, valid or not. A
#: sentence seldom has more, a pasted list of dates is no question, and this blocks the event loop.
MAX_CHARS = 2_000
MAX_EXPRESSIONS = 4
_APOSTROPHES = str.maketrans("’‘`´", "''''")
_FAR_AWAY = timedelta(days=36_500)
# Within what PostgreSQL and every time zone can represent.
_EARLIEST, _LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
_MAX_LEAP_GAP_YEARS = 8  # the longest time between two leap years
_MAX_MONTHS_TO_A_DAY = 2  # from one month with a 31st to the next

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_SHORT_WEEKDAY = r"(?:mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
_COUNT = (
    r"(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\d{1,3}|"
    r"a few|several|a couple(?: of)?)"
)
_UNIT = r"(?:day|weekend|week|fortnight|month|year)"
_PART_OF_DAY = r"(?:night|morning|afternoon|evening)"
_ANY_UNIT = r"(?:day|weekend|week|wk|fortnight|month|mth|year|yr|hour|hr|minute|min)"
_AMOUNT = (
    rf"(?:half an?|\d{{1,3}}[.,]\d|{_COUNT})(?: and a half)?(?:(?<=\d) ?| ){_ANY_UNIT}s?"
    r"(?: and a half)?"
)
_LOWER_ORDINALS = re.findall(
    r"\w+",
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth",
)
_ORDINALS = {word: number for number, word in enumerate(_LOWER_ORDINALS, 1)} | {
    f"{tens}{mark}{word}": ten + number
    for tens, ten, last in (("twenty", 20, 9), ("thirty", 30, 1))
    for number, word in enumerate(_LOWER_ORDINALS[:last], 1)
    for mark in " -"
} | {"thirtieth": 30}  # fmt: skip
_ORDINAL = rf"(?:{'|'.join(sorted(_ORDINALS, key=len, reverse=True))})"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_HOLIDAY = (
    r"(?:christmas eve|christmas(?: day)?|xmas|boxing day|new year'?s? eve|new year'?s? day|"
    r"new year'?s?|easter(?: sunday| monday)?|good friday|hallowe'?en|valentine'?s?(?: day)?|"
    r"thanksgiving)"
)
_LAST = r"(?:last|past|previous)"
_NEXT = r"(?:next|coming|this coming)"
# What follows a time is no noun: "in 2000 steps", "on the 3rd floor", "for Christmas cards".
_NO_NOUN = (
    r"(?![ -](?-i:(?!(?:and|but|or|so|to(?! \d)|when|where|with|i|we|he|she|it|they|my|our|his|her|"
    r"their|the|this|that|next|last|at|in|on|for|of|because|after|before|until|as|was|were|is|are|"
    r"will|did|do|had|has|have|by|from|if|than|then|already|again|too|alone|there|who|please|me|"
    r"you|though|since|\w+ed|\w+ing)\b)[a-z]))"
)
_FIGURES = (
    r"(?<![\d./-])(?:\d{4}(?P<y>[-/.])\d{1,2}(?P=y)\d{1,2}|"
    r"\d{1,2}(?P<d>[-/.])\d{1,2}(?P=d)(?:19|20)\d\d|\d{1,2}/\d{1,2}/\d\d)(?![./-]?\d)"
)
# Other figures than these are a count, a PIN, the number of a room.
_YEAR = rf"(?:19|20)\d\d\b(?![-'.,:]?\d|['%°]){_NO_NOUN}"
_BEFORE_YEAR = r"(?:in|during|by|from|early|late|mid|year|(?:end|start|beginning) of)"
_DATE = (
    rf"(?:{_FIGURES}|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}\b(?:,? \d{{4}}\b)?|"
    rf"{_ORDINAL} of {_MONTH}\b(?:,? \d{{4}}\b)?|"
    rf"{_MONTH} the (?:\d{{1,2}}(?:st|nd|rd|th)|{_ORDINAL})\b(?:,? \d{{4}}\b)?{_NO_NOUN}|"
    rf"{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?|{_MONTH},? \d{{4}}\b|"
    # With "since" or "the week before", these need no other preposition.
    rf"(?(shift)|(?:in|this|{_LAST}|{_NEXT}|during|of|by|early|late|mid)[ -]){_MONTH}\b"
    rf"(?!,? \d| be\b)|{_SEASON}(?: of)? \d{{4}}\b|"
    rf"(?(shift)|{_BEFORE_YEAR}[ -]){_YEAR}|"
    rf"(?(shift)|(?:at|on|over|for|by|around|during|this|{_LAST}|{_NEXT}) ){_HOLIDAY}"
    rf"(?: \d{{4}})?\b{_NO_NOUN}|"
    rf"(?(shift)|(?:on|by|from) )the \d{{1,2}}(?:st|nd|rd|th)\b{_NO_NOUN})"
)
# The night or week before last; the week before last Christmas is another.
_NAMED_TIME = rf"(?:{_PART_OF_DAY}|{_UNIT}|{_SEASON}|{_WEEKDAY}|{_MONTH}|{_HOLIDAY})"
_LAST_BUT_ONE = (
    rf"{_NAMED_TIME} (?:before last|after next)\b(?! (?:{_NAMED_TIME}|{_SHORT_WEEKDAY}|{_COUNT})\b)"
)
_NEAR_DAYS = {
    "yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "this morning": 0,
    "this afternoon": 0, "this evening": 0, "tomorrow": 1,
    # As they are often typed.
    "yday": -1, "tmrw": 1, "tmr": 1, "tommorow": 1, "tomorow": 1, "tommorrow": 1,
}  # fmt: skip
_RELATIVE = (
    rf"(?:{'|'.join(_NEAR_DAYS)}|"
    rf"the other day\b|(?:this|{_LAST}|{_NEXT}) (?:{_UNIT}|{_SEASON}|{_WEEKDAY})\b(?! of\b)|"
    rf"(?:{_LAST}|{_NEXT}) {_COUNT} {_UNIT}s?\b|"
    rf"(?:on|at|over|during) the weekend\b|"
    rf"(?:in|over|during(?!(?: the)? \w+ \w+ing\b))(?: the)? {_SEASON}\b{_NO_NOUN}|"
    rf"{_COUNT} (?:{_PART_OF_DAY}|{_WEEKDAY})s? ago\b|"
    rf"{_AMOUNT} (?:ago|from now)\b|in {_AMOUNT}\b|\d{{1,3}} ?(?:h|d|w|y|m|mos?) ago\b|"
    rf"{_WEEKDAY}\b|(?:on|by|from|this|{_LAST}|{_NEXT}) {_SHORT_WEEKDAY}\b)"
)
_EXPRESSION = re.compile(
    rf"(?<!\bevery )(?<!\beach )\b"
    rf"(?P<shift>(?:the |{_COUNT} )?(?:{_UNIT}s? |{_PART_OF_DAY}s? (?!from))"
    rf"(?P<side>before|after|from) |"
    rf"(?P<bound>before|after|since|until|till) )?"
    rf"(?:the )?(?P<date>{_LAST_BUT_ONE}|{_DATE}|{_RELATIVE})",
    re.IGNORECASE | re.ASCII,
)
_EXPRESSION_IN_FIGURES = re.compile(
    rf"(?P<shift>)(?P<side>)(?P<bound>)(?P<date>{_FIGURES})", re.ASCII
)
# What stands before a time; the last of these says which of several it is.
_LEADING = re.compile(
    r"(?:(?:in|on|at|over|for|by|from|around|during|of|early|late|mid|the|year|end|start|"
    r"beginning|this|last|past|previous|next|coming)[ -])*"
)
_NAMED_ORDINAL = re.compile(rf"\b{_ORDINAL}\b")
_CALENDAR_DATE = re.compile(
    rf"(?:(?P<first>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<month>{_MONTH})"
    r"(?: (?:the )?(?P<day>\d{1,2})(?:st|nd|rd|th)?)?(?:,? (?P<year>\d{4}))?",
    re.ASCII,
)
# "Last year" is that of the calendar, "in the last year" the twelve months up to now.
_WITHIN = re.compile(r"\b(?:in|over|within|during|for|of|throughout) the $", re.IGNORECASE)
_ONE_PERIOD = re.compile(r"^(\w+) (week|month|year)$")
_APPOSITION = re.compile(r",? (?:on |the )?", re.IGNORECASE)  # "on Saturday, 12 December"
_DISTANCE = re.compile(
    rf"(?P<in>in )?(?P<count>half an?|\d{{1,3}}[.,]\d|{_COUNT})(?P<half> and a half)? ?"
    rf"(?P<unit>{_ANY_UNIT}|{_PART_OF_DAY}|[hdwym]|mo)s?(?P<more> and a half)?"
    r"(?:(?P<ago> ago)| from now)?"
)
_WEEKDAYS_AGO = re.compile(rf"({_COUNT}) ({_WEEKDAY})s? ago")
_UNITS = {
    "hr": "hour", "h": "hour", "min": "minute", "m": "minute", "d": "day", "wk": "week",
    "w": "week", "mth": "month", "mo": "month", "yr": "year", "y": "year",
    **dict.fromkeys(("night", "morning", "afternoon", "evening"), "day"),
}  # fmt: skip
# One of these before a day of the week makes a name of it: "black Friday". A capital does where a
# name of a day can stand: "We have Focus Friday", but not "I met Ana Friday".
_NAMED_DAY = re.compile(
    r"(?:(?:^|[.!?;:,\n] ?|\b(?:an?|the|our|my|its|it's|is|was|ha(?:ve|s|d)|call(?:ed|s)?|about|"
    r"for|on|(?:lov|lik|hat|enjoy|celebrat)(?:e|es|ed|s)?) )(?-i:([A-Z][\w'-]*))|"
    r"black|cyber|ash|palm|shrove|fat|maundy|holy|super|casual) $",
    re.IGNORECASE,
)
_NO_NAME = LANGUAGES[ENGLISH].stop_words | LANGUAGES[ENGLISH].fillers | {
    "last", "next", "past", "coming", "previous", "since", "till", "see", "come", "maybe", "every",
    "each", "early", "late", "around",
}  # fmt: skip
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FEAST = (
    r"\b(?:(?P<bound>before|after|since|until|till) |(?:on|at|during|over|for|by|in|around) )?"
    r"(?:the )?(?:(?P<relation>last|past|previous|next|coming|this) )?"
    r"(?P<name>{names})\b"
)
_NTH = re.compile(r"\d{1,2}(?:st|nd|rd|th)")
_BEHIND, _AHEAD = ("last", "past", "previous"), ("next", "coming")
_A_MOMENT = timedelta(hours=12)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAYS = {"day": 1, "week": 7, "weekend": 7, "fortnight": 14, "month": 30, "year": 365}
_SECONDS = {"hour": 3600, "minute": 60}
_SLACK_DAYS = {"day": 0.5, "week": 4, "weekend": 4, "fortnight": 4, "month": 16, "year": 180}
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
_SEASON_DAYS = 91
# Month, day and length in days of those that are on the same day of every year.
_HOLIDAYS = {
    "christmas eve": (12, 24, 1), "christmas day": (12, 25, 1), "christmas": (12, 24, 3),
    "xmas": (12, 24, 3), "boxing day": (12, 26, 1), "new years eve": (12, 31, 1),
    "new year eve": (12, 31, 1), "new years day": (1, 1, 1), "new year day": (1, 1, 1),
    "new year": (12, 31, 2), "new years": (12, 31, 2), "halloween": (10, 31, 1),
    "valentines day": (2, 14, 1), "valentines": (2, 14, 1), "valentine": (2, 14, 1),
    "valentine day": (2, 14, 1),
}  # fmt: skip
# Days after Easter Sunday, and length in days.
_OF_EASTER = {
    "good friday": (-2, 1), "easter": (-2, 4), "easter sunday": (0, 1), "easter monday": (1, 1),
}  # fmt: skip
_WORDS = {
    *_WEEKDAYS, *_MONTHS, *_DAYS, *_SECONDS, *_UNITS, *_NEAR_DAYS, *_FIRST_MONTH, *_HOLIDAYS,
    *_OF_EASTER, "thanksgiving",
} - {"h", "m", "d", "w", "mo", "y"}  # fmt: skip  # these follow a figure
# Every expression contains one of these; most drafts contain none, and need no full search. Of each
# word the beginning, because "Hallowe'en" goes on otherwise.
_HINT = re.compile(
    "|".join((
        r"\d", r"\bago\b",
        *sorted(word[:6] for word in _WORDS if not any(part in word for part in _WORDS - {word})),
    )),
    re.IGNORECASE,
)  # fmt: skip
_MONTH_FIRST_REGIONS = frozenset({"AS", "GU", "MP", "PH", "PR", "US", "VI"})
# Where either order is usual: English without its region, and countries and languages of both.
_UNSURE_ORDERS = frozenset({"en", "en-CA", "fr-CA", "ja", "ko", "zh"})


@dataclass(frozen=True, slots=True)
class Span:
    """A period of time, `start` inclusive, `end` exclusive; both with a time zone."""

    start: datetime
    end: datetime

    @property
    def days(self) -> float:
        """Its length in days."""
        return (self.end - self.start).total_seconds() / 86_400


def spans_in(
    text: str,
    now: datetime,
    fallback: str = ENGLISH,
    *,
    undecided: bool = False,
    calendar: Calendar = NO_CALENDAR,
) -> list[Span]:
    """Return the spans of time that `text` mentions, as somebody who says it at `now` means them.

    At most four. What is stated looks ahead unless its verb is past; what is
    asked looks back. Days that do not exist are ignored.

    Args:
        fallback: the player's language, perhaps with the region ("en-GB"): the order of day and
            month in "03/04/2026", and the language of a text that does not tell.
        undecided: of what neither states nor asks, such as words that are searched for, return
            the spans in both directions.
        calendar: the names of months, days and feasts of a world, besides those of the language.
    """
    searched = text[:MAX_CHARS].translate(_APOSTROPHES)
    spans: list[Span] = []
    if calendar is not NO_CALENDAR:
        spans = _feasts_in(searched, now, calendar, undecided=undecided)
        searched = _in_english(searched, calendar)
    language = language_of(searched, fallback)
    if language == ENGLISH and _HINT.search(searched) is None:
        return spans[:MAX_EXPRESSIONS]
    expression = _EXPRESSION if language == ENGLISH else _EXPRESSION_IN_FIGURES
    if language != ENGLISH:
        unsure = _unsure_directions(searched, language, undecided=undecided)
        for named in islice(english_times(searched, language), MAX_EXPRESSIONS):
            for direction in unsure if named.startswith("on ") else ("ahead",):
                with suppress(ValueError, OverflowError):
                    span = _named(named, now, direction, fallback)
                    span = None if span is None else _clipped(span)
                    if span is not None and span not in spans:
                        spans.append(span)
    end = -1
    directions: tuple[Direction, ...] = ()
    for match in islice(expression.finditer(searched), MAX_EXPRESSIONS):
        if not (end >= 0 and _APPOSITION.fullmatch(searched, end, match.start())):
            directions = _directions(match, undecided=undecided)
        end = match.end()
        for direction in directions:
            span = _span(match, now, direction, fallback)
            if span is not None and span not in spans:
                spans.append(span)
    return spans[:MAX_EXPRESSIONS]


def _feasts_in(text: str, now: datetime, calendar: Calendar, *, undecided: bool) -> list[Span]:
    """Return the spans of the feasts of a world that a text mentions: "since the last harvest"."""
    if not calendar.feasts:
        return []
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    feasts = {name.casefold(): feast for name, feast in calendar.feasts.items()}
    pattern = re.compile(_FEAST.format(names=_any_of(feasts)), re.IGNORECASE)
    spans: list[Span] = []
    for match in islice(pattern.finditer(text), MAX_EXPRESSIONS):
        if match.start() == match.start("name"):  # "We harvest the wheat"
            continue
        feast = feasts[match["name"].casefold()]
        of_year = partial(_days_of_year, noon, feast.month, feast.day, feast.days)
        for direction in _directions(match, undecided=undecided):
            with suppress(ValueError, OverflowError):
                relation = (match["relation"] or "").lower()
                span = _in_some_year(of_year, relation, noon, direction)
                if span is not None and match["bound"]:
                    span = open_ended_span(span, match["bound"].lower())
                span = None if span is None else _clipped(span)
                if span is not None and span not in spans:
                    spans.append(span)
    return spans


def _in_english(text: str, calendar: Calendar) -> str:
    """Return a text in which the months and days of a world have their English names."""
    names = dict(zip(map(str.casefold, calendar.months or ()), _MONTH_NAMES, strict=False))
    names |= dict(zip(map(str.casefold, calendar.days or ()), _DAY_NAMES, strict=False))
    if not names:
        return text
    pattern = re.compile(rf"\b(?:{_any_of(names)})\b", re.IGNORECASE)
    return pattern.sub(lambda match: names[match[0].casefold()], text)


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern of names, the longest first."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


def _unsure_directions(text: str, language: str, *, undecided: bool) -> tuple[Direction, ...]:
    """Return where a weekday or a day without its year lies in another language than English.

    What is asked looks back, and what is stated may be either, so that it names no day.
    """
    if utterances.asks(text, language) or utterances.requests(text, language):
        return ("back",)
    if undecided:
        return ("back", "ahead")
    return ("back",) if is_only_time(text, language) else ()


def _directions(match: re.Match[str], *, undecided: bool) -> tuple[Direction, ...]:
    if match["bound"] and match["bound"].lower() == "since":
        return ("back",)
    return directions_of(match.string, match.start(), match.end(), undecided=undecided)


def _span(match: re.Match[str], now: datetime, direction: Direction, tag: str) -> Span | None:
    """Resolve one expression; None if it names no valid time."""
    try:
        name = _NAMED_ORDINAL.sub(lambda found: f"{_ORDINALS[found[0]]}th", match["date"].lower())
        if _is_name_of_day(match, name):
            return None
        if _WITHIN.search(match.string, 0, match.start("date")):
            name = _ONE_PERIOD.sub(r"\1 one \2", name)
        span = _named(name, now, direction, tag)
        if span is None:
            return None
        span = _shifted(span, match)
        if direction == "ahead" and (match["bound"] or "").lower() in ("before", "until", "till"):
            span = Span(max(span.start, day_of(now).start), span.end)
        if (match["bound"] or "").lower() == "since":
            span = Span(span.start, day_of(now).end)
    except (ValueError, OverflowError):  # the year 0, the 30th of February, the calendar's end
        return None
    return _clipped(span)


def _is_name_of_day(match: re.Match[str], name: str) -> bool:
    """Return whether a day of the week is part of a name, as in "Black Friday"."""
    if name[:3] not in _WEEKDAYS or " " in name or match["date"].isupper():
        return False
    before = _NAMED_DAY.search(match.string, max(0, match.start("date") - 40), match.start("date"))
    return before is not None and (before[1] or "").lower() not in _NO_NAME


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
    units = [_UNITS.get(word.rstrip("s"), word.rstrip("s")) for word in words]
    unit = next(_DAYS[word] for word in units if word in _DAYS)
    shift = timedelta(days=unit * _count(words[0]))
    if words[0] == "the" or units[0] in _DAYS:
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


def _named(expression: str, now: datetime, direction: Direction, tag: str) -> Span | None:
    """Return the span that an expression in lower case names, without what shifts it."""
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    if expression in _NEAR_DAYS:
        return day_of(noon + timedelta(days=_NEAR_DAYS[expression]))
    if expression == "the other day":
        return Span(day_of(noon - timedelta(days=7)).start, day_of(noon).start)
    if re.fullmatch(_FIGURES, expression):
        return _in_figures(expression, noon, tag)
    name, *but_one = re.split(" (before last|after next)$", expression)
    if but_one:
        return _last_but_one(name, but_one[0] == "before last", now, tag)
    if (weekdays := _WEEKDAYS_AGO.fullmatch(expression)) is not None:
        last = _weekday("last", _WEEKDAYS.index(weekdays[2][:3]), noon, "back")
        earlier = timedelta(days=7 * (_amount(weekdays[1]) - 1))
        return Span(last.start - earlier, last.end - earlier)
    distance = _DISTANCE.fullmatch(expression)
    if distance is not None:
        return _distant(distance, now, direction)
    leading = _LEADING.match(expression)
    name = expression[0 if leading is None else leading.end() :]
    relation = next(
        (word for word in ("last", "previous", "past", "next", "coming", "this")
         if word in expression[: -len(name)].split()), ""
    )  # fmt: skip
    words = name.split()
    if words[-1].rstrip("s") in _DAYS and not re.fullmatch(_HOLIDAY, name):
        return _period(relation, words, noon, direction)
    if name.isdigit():
        return _period_around(noon.replace(year=int(name), month=1, day=1), "year")
    if _NTH.fullmatch(name):
        return _day_of_month(int(name[:-2]), noon, direction)
    if name[:3] in _WEEKDAYS:
        return _weekday(relation, _WEEKDAYS.index(name[:3]), noon, direction)
    of_year, year = _annual(name, noon)
    if year is not None:
        return of_year(year)
    return _in_some_year(of_year, relation, noon, direction)


def _last_but_one(name: str, is_back: bool, now: datetime, tag: str) -> Span | None:
    """Return the night before last, the week after next and the like."""
    if _UNITS.get(name) == "day":
        return day_of(now + timedelta(days=-2 if is_back else 2))
    relation = "last" if is_back else "next"
    direction: Direction = "back" if is_back else "ahead"
    nearer = _named(f"{relation} {name}", now, direction, tag)
    if nearer is None:
        return None
    return _named(f"{relation} {name}", nearer.start + _A_MOMENT, direction, tag)


def _in_figures(text: str, noon: datetime, tag: str) -> Span | None:
    """Return the day that figures name; None where it may be either of two."""
    first, second, last = (int(part) for part in re.split(r"[-/.]", text))
    if re.match(r"\d{4}", text):
        return day_of(noon.replace(year=first, month=second, day=last))
    year = last if last >= 100 else 2000 + last
    possible = {
        (day, month)
        for day, month in ((first, second), (second, first))
        if month <= 12 and 0 < day <= monthrange(year, month or 1)[1]
    }
    is_day_first = day_comes_first(tag)
    if is_day_first is not None and len(possible) > 1:
        possible = {(first, second) if is_day_first else (second, first)}
    if len(possible) != 1:
        return None
    ((day, month),) = possible
    return day_of(noon.replace(year=year, month=month, day=day))


def day_comes_first(tag: str) -> bool | None:
    """Return whether the day stands before the month in "03/04/2026"; None where that is unsure.

    Args:
        tag: a language, perhaps with its region, such as "de" or "en-GB".
    """
    language, _, region = tag.partition("-")
    if tag in _UNSURE_ORDERS or language in _UNSURE_ORDERS - {ENGLISH}:
        return None
    return not (language == ENGLISH and region in _MONTH_FIRST_REGIONS)


def _distant(match: re.Match[str], now: datetime, direction: Direction) -> Span | None:
    """Return an approximate span: "three days ago" is that day, longer units are less exact.

    "I ran it in two hours" tells how long something took.
    """
    if match["in"] and direction == "back":
        return None
    sign = -1 if match["ago"] else 1
    unit = _UNITS.get(match["unit"], match["unit"])
    count = _amount(match["count"]) + (0.5 if match["half"] or match["more"] else 0.0)
    if unit in _SECONDS:
        middle = now.astimezone(UTC) + timedelta(seconds=sign * count * _SECONDS[unit])
        slack = timedelta(seconds=_SECONDS[unit] / 2)
        return Span(middle - slack, middle + slack)  # two hours of one night may be called alike
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    middle = noon + timedelta(days=sign * _DAYS[unit] * count)
    slack = timedelta(days=_SLACK_DAYS[unit])
    return Span(middle - slack, middle + slack)


def _amount(count: str) -> float:
    if count.startswith("half"):
        return 0.5
    if count[0].isdigit():
        return float(count.replace(",", "."))
    return _count([word for word in count.split() if word != "of"][-1])


def _period(relation: str, words: list[str], noon: datetime, direction: Direction) -> Span:
    """Return "last week", "the past two months", "this weekend" and the like."""
    unit, today = words[-1].rstrip("s"), day_of(noon)
    if unit == "weekend" and len(words) == 1:
        return _weekend(relation, noon, direction)
    if len(words) > 1 or relation == "past" or unit == "fortnight":
        count = next((_count(word) for word in reversed(words[:-1]) if word != "of"), 1)
        length = timedelta(days=_DAYS[unit] * count)
        if relation in _AHEAD:
            return Span(today.start, _clamped_shift(today.start, length))
        return Span(_clamped_shift(today.end, -length), today.end)
    present = _period_around(noon, unit)
    if relation in _AHEAD:
        return _period_around(present.end, unit)
    return present if relation == "this" else _period_around(present.start - _A_MOMENT, unit)


def _weekend(relation: str, noon: datetime, direction: Direction) -> Span:
    """Return a Saturday and Sunday: "this" one is the present or the coming one."""
    saturday = day_of(noon).start + timedelta(days=5 - noon.weekday())
    is_weekend = noon.weekday() >= 5
    if relation in _BEHIND or (not relation and direction == "back" and not is_weekend):
        saturday -= timedelta(days=7)
    if relation in _AHEAD and is_weekend:
        saturday += timedelta(days=7)
    return Span(saturday, saturday + timedelta(days=2))


def _weekday(relation: str, weekday: int, noon: datetime, direction: Direction) -> Span:
    """Return the last or the coming day of that name; "this" one may be today."""
    since = (noon.weekday() - weekday) % 7
    if relation in _BEHIND or (relation not in _AHEAD and direction == "back"):
        shift = -since if relation == "this" else -(since or 7)
    else:
        shift = -since % 7 if relation == "this" else 7 - since
    return day_of(noon + timedelta(days=shift))


def _day_of_month(day: int, noon: datetime, direction: Direction) -> Span | None:
    """Return the last or the coming day of that number; today is either."""
    first, sign = noon.replace(day=1), -1 if direction == "back" else 1
    for _ in range(_MAX_MONTHS_TO_A_DAY + 1):
        days = monthrange(first.year, first.month)[1]
        if 0 < day <= days and (first.replace(day=day) - noon) * sign >= timedelta(0):
            return day_of(first.replace(day=day))
        first = (first + timedelta(days=days if sign > 0 else -1)).replace(day=1)
    return None


_OfYear = Callable[[int], Span | None]


def _annual(name: str, noon: datetime) -> tuple[_OfYear, int | None]:
    """Return a function from a year to what has this name in it, and the year if that is named.

    Raises:
        ValueError: nothing is called so.
    """
    calendar_date = _CALENDAR_DATE.fullmatch(name)
    if calendar_date is not None:
        number = calendar_date["first"] or calendar_date["day"]
        day = None if number is None else int(number)
        named = partial(_month_or_day, noon, _MONTHS[calendar_date["month"][:3]], day)
        return named, int(calendar_date["year"]) if calendar_date["year"] else None
    words = name.replace("'", "").replace(" of ", " ").split()
    year = int(words.pop()) if words[-1].isdigit() else None
    title = " ".join(words)
    if title in _FIRST_MONTH:
        month, day, days = _FIRST_MONTH[title], 1, _SEASON_DAYS
    elif title in _HOLIDAYS:
        month, day, days = _HOLIDAYS[title]
    elif title in _OF_EASTER or title == "thanksgiving":
        return partial(_movable_holiday, noon, title), year
    else:  # December of a year with a leading zero, for one
        raise ValueError(name)
    return partial(_days_of_year, noon, month, day, days), year


def _in_some_year(
    of_year: _OfYear, relation: str, noon: datetime, direction: Direction
) -> Span | None:
    """Return the last or the coming span of those of the years around; the present is either."""
    is_back = relation in _BEHIND or (relation not in _AHEAD and direction == "back")
    years = range(
        max(_EARLIEST.year, noon.year - 1 - _MAX_LEAP_GAP_YEARS),
        min(_LATEST.year, noon.year + 1 + _MAX_LEAP_GAP_YEARS) + 1,
    )
    for span in map(of_year, reversed(years) if is_back else years):
        if span is None:
            continue
        if relation in (_BEHIND if is_back else _AHEAD):
            fits = span.end <= noon if is_back else span.start > noon
        else:
            fits = span.start <= noon if is_back else span.end > noon
        if fits:
            return span
    return None


def _month_or_day(noon: datetime, month: int, day: int | None, year: int) -> Span | None:
    if day is None:
        return _period_around(noon.replace(year=year, month=month, day=1), "month")
    if not 0 < day <= monthrange(year, month)[1]:
        return None
    return day_of(noon.replace(year=year, month=month, day=day))


def _days_of_year(noon: datetime, month: int, day: int, days: int, year: int) -> Span | None:
    first = _month_or_day(noon, month, day, year)
    return None if first is None else Span(first.start, first.start + timedelta(days=days))


def _movable_holiday(noon: datetime, title: str, year: int) -> Span:
    """Return Easter (Friday to Monday), one of its days, or Thanksgiving of the United States."""
    if title == "thanksgiving":
        first = noon.replace(year=year, month=11, day=1)
        return day_of(first + timedelta(days=(3 - first.weekday()) % 7 + 21))
    after, days = _OF_EASTER[title]
    start = day_of(_easter_sunday(noon, year)).start + timedelta(days=after)
    return Span(start, start + timedelta(days=days))


def _easter_sunday(noon: datetime, year: int) -> datetime:
    """Return Easter Sunday, by the algorithm of Butcher (1876) for the Gregorian calendar."""
    century, in_century = divmod(year, 100)
    moon = (19 * (year % 19) + century - century // 4 - (8 * century + 13) // 25 + 15) % 30
    week = (32 + 2 * (century % 4) + 2 * (in_century // 4) - moon - in_century % 4) % 7
    shift = (year % 19 + 11 * moon + 22 * week) // 451
    month, day = divmod(moon + week - 7 * shift + 114, 31)
    return noon.replace(year=year, month=month, day=day + 1)


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
