"""Spans of time in a text, resolved relative to a clock."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.text.time_expressions import Span, day_of, span_proximity, spans_in

NOW = datetime(2023, 6, 15, 9, 30, tzinfo=UTC)  # a Thursday


def days(text: str, now: datetime = NOW) -> list[tuple[str, str]]:
    """First and last day of each span."""
    return [
        (span.start.date().isoformat(), (span.end - timedelta(seconds=1)).date().isoformat())
        for span in spans_in(text, now)
    ]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What did I say yesterday?", "2023-06-14", "2023-06-14"),
        ("tonight", "2023-06-15", "2023-06-15"),
        ("last week", "2023-06-05", "2023-06-11"),
        ("last weekend", "2023-06-10", "2023-06-11"),
        ("last Tuesday", "2023-06-13", "2023-06-13"),
        ("on Friday", "2023-06-09", "2023-06-09"),
        ("two days ago", "2023-06-13", "2023-06-13"),
        ("in May", "2023-05-01", "2023-05-31"),
        ("last May", "2023-05-01", "2023-05-31"),
        ("in July", "2022-07-01", "2022-07-31"),
        ("in May 2021", "2021-05-01", "2021-05-31"),
        ("on 8th December, 2022", "2022-12-08", "2022-12-08"),
        ("31 October", "2022-10-31", "2022-10-31"),
        ("on 2023-02-03", "2023-02-03", "2023-02-03"),
        ("in 2021", "2021-01-01", "2021-12-31"),
        ("last summer", "2022-06-01", "2022-08-30"),
        ("the summer of 2021", "2021-06-01", "2021-08-30"),
        ("next month", "2023-07-01", "2023-07-31"),
        ("the week before 16 November 2022", "2022-11-09", "2022-11-15"),
        ("two weeks before 11 August 2022", "2022-07-28", "2022-07-28"),
    ],
)
def test_expressions_are_resolved_relative_to_the_clock(text: str, first: str, last: str) -> None:
    """Days, weeks, months, seasons, years, and shifts from a date."""
    assert days(text) == [(first, last)]


def test_longer_ago_is_less_exact() -> None:
    """ "Three weeks ago" is exact to days, "a year ago" to months."""
    (weeks,), (year,) = spans_in("three weeks ago", NOW), spans_in("a year ago", NOW)
    assert weeks.days == 8
    assert year.days == 360
    assert fit(weeks, day_of(NOW - timedelta(days=21))) == 1.0


def test_before_and_since_are_open_on_one_side() -> None:
    """Up to the day, and from it."""
    (before,), (since,) = spans_in("before 3 June 2023", NOW), spans_in("since 2019", NOW)
    assert before.end.date() == date(2023, 6, 3)
    assert since.start.date() == date(2019, 1, 1)
    assert before.days > 30_000


@pytest.mark.parametrize(
    "text", ["I may go", "we march on", "", "call me at 5", "the second one", "May I?"]
)
def test_words_that_only_look_like_dates_are_ignored(text: str) -> None:
    """Modal verbs, verbs, numbers."""
    assert spans_in(text, NOW) == []


def test_yesterday_is_the_players_yesterday() -> None:
    """When it is after midnight in Tokyo, it is still the day before in London."""
    late = datetime(2023, 6, 15, 16, 0, tzinfo=UTC)
    assert days("today", late.astimezone(ZoneInfo("Asia/Tokyo"))) == [("2023-06-16", "2023-06-16")]


def fit(query: Span, other: Span) -> float:
    """Return how well a span matches a query's."""
    start, end = (np.array([moment.timestamp()]) for moment in (other.start, other.end))
    return float(span_proximity(query, start, end)[0])


def test_a_match_decays_with_distance() -> None:
    """Half after three days, and slower for longer spans."""
    assert fit(day_of(NOW), day_of(NOW)) == 1.0
    assert fit(day_of(NOW), day_of(NOW - timedelta(days=4))) == pytest.approx(0.5)
    month = Span(NOW - timedelta(days=30), NOW)
    assert fit(month, day_of(NOW + timedelta(days=16))) > 0.4


@given(st.text(), st.datetimes(timezones=st.just(UTC)))
def test_any_text_gives_few_spans(text: str, now: datetime) -> None:
    """At most four, each with an end after its start."""
    spans = spans_in(text, now)
    assert len(spans) <= 4
    assert all(span.start < span.end for span in spans)


def test_other_languages_mention_no_times() -> None:
    """The expressions are English: "mai" is no May, nor "on" a preposition."""
    now = datetime(2026, 5, 13, 12, tzinfo=UTC)
    assert spans_in("on Monday", now)
    assert spans_in("Das war am Monday und ich war dabei", now) == []
