"""No text makes a reader raise: every reader, any text, any day, any time zone."""

import itertools
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foremind
from foremind.domain.memory import Fact
from foremind.memory.profile import facts_in
from foremind.text import time_expressions
from foremind.text.tense import Direction
from foremind.text.tokenization import words_of
from tests.fuzzing.readers import READERS, read_by_all, read_dates, search

MONTHS = ["jan", "february", "Mar", "may", "JUNE", "sept", "december"]
EXPRESSIONS = [
    "{year:04}-{number:02}-{day:02}", "{day} {month} {year}", "{day}th of {month}, {year:04}",
    "{month} {day}, {year}", "{day} {month}", "{month} {day}st", "{month} {year:04}",
    "{season} {year:04}", "{season} of {year}", "{which} {season}", "{which} {month}",
    "{which} {weekday}", "{which} {unit}", "{which} weekend", "{count} {unit}s ago",
    "in {count} {unit}s", "in {year:04}", "{year:05}", "{weekday}", "yesterday", "last night",
    "{day:02}/{number:02}/{year:04}", "{day}.{number}.{year}", "on the {day}th", "at Easter {year}",
    "last {count} {unit}s", "since Christmas", "{which} new year", "{count} hours ago",
]  # fmt: skip
CONTEXTS = [
    "{}", "before {}", "since {}", "until {}", "the week before {}", "{count} {unit}s before {}",
    "{count} {unit}s after {}", "What did I say on {}?", "I promise it by {}!",
]  # fmt: skip
# Unusual characters and unfinished phrases.
ODD = [
    "week\u017f ago", "\u212aeep", "\ufdfa", "\u3300", "before the dog\u339e?",
    "after my caf\u0301e",
    "٣ days ago", "i live in a/", "my favourite a is b", "save this: ", '"', "\u201c", "\x00",
    "i am fourty", "since the ", "I", "?", ".\n", "## [", "[99999999999999999999.1 x]", "{", "%",
]  # fmt: skip

names = {
    "year": st.one_of(st.integers(0, 99_999), st.sampled_from([0, 1, 99, 9998, 9999, 10_000])),
    "number": st.integers(0, 99), "day": st.integers(0, 99), "month": st.sampled_from(MONTHS),
    "season": st.sampled_from(["spring", "Summer", "fall", "winter"]),
    "which": st.sampled_from(["last", "this", "next", "past", "in", "since", "early", "before"]),
    "weekday": st.sampled_from(["Monday", "friday"]),
    "unit": st.sampled_from(["day", "week", "weekend", "month", "year"]),
    "count": st.one_of(st.integers(0, 999), st.sampled_from(["a couple of", "several", "twelve"])),
}  # fmt: skip
offsets = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59))
days = st.integers(0, 365).map(lambda day: datetime(2024, 1, 1, 12, tzinfo=UTC) + timedelta(day))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Possible and impossible dates, unusual characters, and arbitrary text."""
    values = draw(st.fixed_dictionaries(names))
    dates = st.tuples(st.sampled_from(CONTEXTS), st.sampled_from(EXPRESSIONS)).map(
        lambda pair: pair[0].replace("{}", pair[1]).format(**values)
    )
    parts = st.one_of(dates, dates, st.sampled_from(ODD), st.text(max_size=12))
    return draw(st.sampled_from([" ", "", "\n", ", "])).join(draw(st.lists(parts, max_size=6)))


@settings(max_examples=600, deadline=None)
@given(texts(), st.one_of(days, st.datetimes(timezones=st.just(UTC))), offsets)
def test_no_text_makes_a_reader_raise(text: str, now: datetime, offset: timedelta) -> None:
    """At any date, in any time zone."""
    zone = timezone(offset)
    try:
        local_now = now.astimezone(zone)
    except OverflowError:  # not a possible date in this time zone
        return
    read_by_all(text, local_now)


READING_ROOMS = (
    "cards", "text", "memory", "retrieval", "background", "typeahead", "llm", "gateway",
)  # fmt: skip


def test_every_module_with_regular_expressions_is_among_the_readers() -> None:
    """A new one cannot be forgotten."""
    package = Path(foremind.__file__).parent
    modules = {
        ".".join(("foremind", *path.relative_to(package).with_suffix("").parts))
        for folder in READING_ROOMS
        for path in (package / folder).rglob("*.py")
        if "\nimport re\n" in path.read_text()
    }
    assert modules <= {module.__name__ for modules, _ in READERS for module in modules}


EVERY_DAY = [datetime(2024, 1, 1, 23, 30, tzinfo=UTC) + timedelta(days=day) for day in range(366)]


@pytest.mark.parametrize("hours", [-12, 0, 14])
def test_dates_are_read_on_every_day_of_a_leap_year(hours: int) -> None:
    """Including the 29th of February, which other years do not have."""
    expressions = [
        "summer 2023", "winter of 2100", "last winter", "next february", "29 february",
        "in February", "february 29", "29 feb 2023", "a year ago", "in 4 years", "last year",
        "the year before 2023",
    ]  # fmt: skip
    zone = timezone(timedelta(hours=hours))
    for now, text in itertools.product(EVERY_DAY, expressions):
        read_dates(text, now.astimezone(zone))
    leap = EVERY_DAY[59].astimezone(UTC)
    assert leap.day == 29
    (summer,) = time_expressions.spans_in("summer 2023", leap)
    assert (summer.start.year, summer.start.month, summer.start.day) == (2023, 6, 1)


def test_every_year_from_0_to_99999_is_read() -> None:
    """Including years that datetime and the database do not support."""
    now = EVERY_DAY[59]
    years = {*range(0, 100_000, 11), *range(30), *range(9_970, 10_010)}
    expressions = [
        "winter {:04}",
        "{:04}-12-31",
        "in December {}",
        "before 1 may {:04}",
        "since {:04}",
        "{}",
    ]
    for year, expression in itertools.product(sorted(years), expressions):
        read_dates(expression.format(year), now)


@pytest.mark.parametrize(
    "expression",
    ["2021-99-99", "9999-12-31", "31 feb {n}", "february 30, {n}", "may 0000", "in {n} days",
     "last friday", "3 may 20{n:02}", "winter 0000", "two weeks before 1 june {n:04}"],
)  # fmt: skip
def test_only_the_first_dates_of_a_draft_are_resolved(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It blocks the event loop, so their number is limited."""
    resolved: list[str] = []
    resolve = time_expressions._directions

    def counted(match: re.Match[str], *, undecided: bool) -> tuple[Direction, ...]:
        resolved.append(match[0])
        return resolve(match, undecided=undecided)

    monkeypatch.setattr(time_expressions, "_directions", counted)
    text = " ".join(expression.format(n=number % 100) for number in range(3000))[:8000]
    search(text, EVERY_DAY[0])
    assert 0 < len(resolved) <= time_expressions.MAX_EXPRESSIONS


def test_only_the_beginning_of_a_long_text_is_searched_for_times() -> None:
    """At most two thousand characters."""
    assert time_expressions.spans_in("x " * 900 + "in 2021", EVERY_DAY[0]) != []
    assert (
        time_expressions.spans_in("x " * time_expressions.MAX_CHARS + "in 2021", EVERY_DAY[0]) == []
    )


def test_unicode_normalisation_cannot_exceed_the_length_limit() -> None:
    """One ligature expands to eighteen letters, which would be eighteen times the work."""
    assert sum(map(len, words_of("\ufdfa" * 8000))) <= 2 * 8000 + 64


def test_an_unterminated_statement_is_not_read_to_the_end_of_the_text() -> None:
    """Reading it from each possible start would take quadratic time."""
    assert facts_in("I live in Lisbon" + " de la mar" * 100 + "/") == []
    text = f"I live in {'x' * 5000}. I live in Lisbon."
    assert facts_in(text)[0] == Fact("home", "lisbon")
