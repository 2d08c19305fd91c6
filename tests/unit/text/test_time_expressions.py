"""Spans of time in a text, resolved relative to a clock."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.world import Calendar, Feast
from foremind.text.languages.language_files import ENGLISH, LANGUAGES
from foremind.text.languages.prompt_words import age_in_words
from foremind.text.time_expressions import Span, day_of, span_proximity, spans_in
from foremind.text.time_words import english_times

NOW = datetime(2023, 6, 15, 9, 30, tzinfo=UTC)  # a Thursday


def days(text: str, now: datetime = NOW, language: str = "en") -> list[tuple[str, str]]:
    """First and last day of each span."""
    return [
        (span.start.date().isoformat(), (span.end - timedelta(seconds=1)).date().isoformat())
        for span in spans_in(text, now, language)
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
        ("I met Ana Friday", "2023-06-09", "2023-06-09"),
        ("I flew to Porto Friday", "2023-06-09", "2023-06-09"),
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
        ("the night before last", "2023-06-13", "2023-06-13"),
        ("the week before last", "2023-05-29", "2023-06-04"),
        ("the weekend before last", "2023-06-03", "2023-06-04"),
        ("the month before last", "2023-04-01", "2023-04-30"),
        ("the year before last", "2021-01-01", "2021-12-31"),
        ("the summer before last", "2021-06-01", "2021-08-30"),
        ("the Friday before last", "2023-06-02", "2023-06-02"),
        ("the Christmas before last", "2021-12-24", "2021-12-26"),
        ("the week after next", "2023-06-26", "2023-07-02"),
        ("the weekend after next", "2023-06-24", "2023-06-25"),
        ("the week before last Tuesday", "2023-06-06", "2023-06-12"),
        ("three nights ago", "2023-06-12", "2023-06-12"),
        ("a couple of evenings ago", "2023-06-13", "2023-06-13"),
        ("two Fridays ago", "2023-06-02", "2023-06-02"),
        ("a Friday ago", "2023-06-09", "2023-06-09"),
    ],
)
def test_expressions_are_resolved_relative_to_the_clock(text: str, first: str, last: str) -> None:
    """Days, weeks, months, seasons, years, and shifts from a date."""
    assert days(text) == [(first, last)]


THURSDAY = datetime(2026, 11, 26, 18, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        # What is stated looks ahead unless its verb is past.
        ("I have an exam on Friday", "2026-11-27"),
        ("dentist on 3 December", "2026-12-03"),
        ("the wedding will be on 5 January", "2027-01-05"),
        ("I had an exam on Friday", "2026-11-20"),
        ("we're flying to Rome on Monday", "2026-11-30"),
        ("My train leaves on Sunday", "2026-11-29"),
        ("exam friday!!", "2026-11-27"),
        ("I’ve got the dentist on Tuesday", "2026-12-01"),
        ("ive got a job interview on wed", "2026-12-02"),
        ("the concert is next Friday", "2026-11-27"),
        ("I saw her on Friday", "2026-11-20"),
        ("On Friday I had an exam", "2026-11-20"),
        ("On Friday, we went to the sea", "2026-11-20"),
        ("I wasn't at work on Monday", "2026-11-23"),
        ("I couldn't sleep on Monday", "2026-11-23"),
        ("I cut my finger on Saturday", "2026-11-21"),
        ("We'd planned it. We meet on Saturday.", "2026-11-28"),
        ("I had a bad week, but I have a concert on Saturday", "2026-11-28"),
        ("I was ill. My exam is on Friday.", "2026-11-27"),
        ("I have booked a table for Friday", "2026-11-27"),
        ("I booked a table for Friday", "2026-11-27"),
        ("Scheduled for Saturday, November 28th, at ten", "2026-11-28"),
        ("I saw her on Friday, November 20th", "2026-11-20"),
        ("they moved the exam to Friday", "2026-11-27"),
        ("we are invited to a party on Saturday", "2026-11-28"),
        ("I've been to the dentist on Monday", "2026-11-23"),
        ("I have a delayed flight on Monday", "2026-11-30"),
        ("my birthday is on 9 August", "2027-08-09"),
        ("I was born on 9 August", "2026-08-09"),
        ("she turned six on October 31st", "2026-10-31"),
        ("I need to pay rent on the 3rd", "2026-12-03"),
        ("I paid rent on the 3rd", "2026-11-03"),
        ("Did I tell you that I have an exam on Friday?", "2026-11-27"),
        ("Can you remind me to call Ines on Friday?", "2026-11-27"),
        ("I'm free the day after tomorrow", "2026-11-28"),
        ("I'm free tomorrow evening", "2026-11-27"),
        ("the exam is the morning after tomorrow", "2026-11-28"),
        ("see you tmrw", "2026-11-27"),
        ("i have an exam tommorow", "2026-11-27"),
        ("it's a week from Friday", "2026-12-04"),
        ("this Monday we went to court", "2026-11-23"),
        ("I was home this Thursday", "2026-11-26"),
        ("I'm having my hair cut on Friday", "2026-11-27"),
        ("we read it on Monday", "2026-11-23"),
        ("I still remember the concert on Saturday", "2026-11-21"),
        ("can you remember to call on Saturday", "2026-11-28"),
        # Who has something ahead says "got" of it, or wishes.
        ("got my exam on friday, wish me luck", "2026-11-27"),
        ("got my results on friday. fingers crossed!", "2026-11-27"),
        ("got an appointment on friday", "2026-11-27"),
        ("got tickets for the concert on saturday", "2026-11-28"),
        ("got invited to a wedding on saturday", "2026-11-28"),
        ("bought a dress for the party on saturday", "2026-11-28"),
        ("bought a dress on saturday", "2026-11-21"),
        ("bought flowers for my mum on saturday", "2026-11-21"),
        ("my driving test friday, fingers crossed", "2026-11-27"),
        ("fingers crossed for friday", "2026-11-27"),
        ("worried about friday", "2026-11-27"),
        ("have to hand in my thesis friday", "2026-11-27"),
        ("seeing the dentist tomorrow", "2026-11-27"),
        ("handed in my thesis friday, hope I pass", "2026-11-20"),
        ("got my exam results on friday", "2026-11-20"),
        ("got a puppy on saturday, I'll call him Rex", "2026-11-21"),
        ("got home on friday", "2026-11-20"),
        # What is asked looks back.
        ("Do you remember the trip on Saturday?", "2026-11-21"),
        ("what did we do on Friday?", "2026-11-20"),
        ("what did we do on friday", "2026-11-20"),
        ("Where was I on 3 December?", "2025-12-03"),
        ("do you remember what I said on Monday?", "2026-11-23"),
        ("who called on the 3rd?", "2026-11-03"),
        ("what about Friday?", "2026-11-20"),
        ("What will we do on Friday?", "2026-11-27"),
        ("what are we doing on Friday?", "2026-11-27"),
        ("tell me what I did on Friday", "2026-11-20"),
        ("We met on the second of December", "2025-12-02"),
        ("I have an exam on the twenty-first of January", "2027-01-21"),
        ("The wedding is on December the third", "2026-12-03"),
        ("I married on the Thirty First of May 2019", "2019-05-31"),
        ("Maybe Monday works", "2026-11-30"),
        ("SEE YOU ON MONDAY", "2026-11-30"),
        ("I fell five d ago, I mean 5d ago", "2026-11-21"),
    ],
)
def test_what_is_stated_looks_ahead_and_what_is_asked_back(text: str, day: str) -> None:
    """By the verb that is closest."""
    assert days(text, THURSDAY) == [(day, day)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("I'm getting married in March", "2027-03-01", "2027-03-31"),
        ("I got married in March", "2026-03-01", "2026-03-31"),
        ("We move in early January", "2027-01-01", "2027-01-31"),
        ("I'm in Rome this weekend", "2026-11-28", "2026-11-29"),
        ("at the weekend we are going hiking", "2026-11-28", "2026-11-29"),
        ("we went hiking on the weekend", "2026-11-21", "2026-11-22"),
        ("I start school next summer", "2027-06-01", "2027-08-30"),
        ("I want to go to Spain in summer", "2027-06-01", "2027-08-30"),
        ("we were in Spain in the summer", "2026-06-01", "2026-08-30"),
        ("I'd love to go to Spain in summer", "2027-06-01", "2027-08-30"),
        ("I loved it in Spain in the summer", "2026-06-01", "2026-08-30"),
        ("I was in Spain in the summer visiting Ines", "2026-06-01", "2026-08-30"),
        ("I like Ines, we'll meet in the summer", "2027-06-01", "2027-08-30"),
        ("the wedding is in the summer", "2027-06-01", "2027-08-30"),
        ("I fly home at Christmas", "2026-12-24", "2026-12-26"),
        ("at Christmas I was at my sister's", "2025-12-24", "2025-12-26"),
        ("what did I do at Christmas?", "2025-12-24", "2025-12-26"),
        ("I was in Oslo for new year's eve", "2025-12-31", "2025-12-31"),
        ("What did we do at Easter?", "2026-04-03", "2026-04-06"),
        ("we meet at Easter", "2027-03-26", "2027-03-29"),
        # holidays whose names end like a period or a day of the week
        ("We married on Christmas Day", "2025-12-25", "2025-12-25"),
        ("Grandma comes on Boxing Day", "2026-12-26", "2026-12-26"),
        ("on New Year's Day I slept", "2026-01-01", "2026-01-01"),
        ("he cried on Valentine's Day", "2026-02-14", "2026-02-14"),
        ("at New Year we were in Rome", "2025-12-31", "2026-01-01"),
        ("on Easter Sunday we sang", "2026-04-05", "2026-04-05"),
        ("we leave on Easter Monday", "2027-03-29", "2027-03-29"),
        ("I was in Oslo during the winter", "2025-12-01", "2026-03-01"),
        ("I was alone on Good Friday", "2026-04-03", "2026-04-03"),
        ("What did you think of me last Christmas?", "2025-12-24", "2025-12-26"),
        ("my parents come for Thanksgiving", "2026-11-26", "2026-11-26"),
        ("at Christmas 2019 I was ill", "2019-12-24", "2019-12-26"),
        ("What did I do the day before Christmas?", "2025-12-23", "2025-12-23"),
        ("What did I do the night before Christmas?", "2025-12-23", "2025-12-23"),
        ("what did i tell you yday?", "2026-11-25", "2026-11-25"),
        ("I broke it a fortnight ago", "2026-11-08", "2026-11-16"),
        ("I ran a lot for the past two weeks", "2026-11-13", "2026-11-26"),
        ("Who has visited me in the last year?", "2025-11-27", "2026-11-26"),
        ("Who visited me last year?", "2025-01-01", "2025-12-31"),
        ("over the last month I have read a lot", "2026-10-28", "2026-11-26"),
        ("I'm in Rome for the next week", "2026-11-26", "2026-12-02"),
        ("It was hot in 2019", "2019-01-01", "2019-12-31"),
        ("the photo is from 2019", "2019-01-01", "2019-12-31"),
        ("In 2021 Maria moved out", "2021-01-01", "2021-12-31"),
        ("What happened in late 2020?", "2020-01-01", "2020-12-31"),
    ],
)
def test_longer_times_have_a_direction_too(text: str, first: str, last: str) -> None:
    """Months, weekends, seasons, holidays."""
    assert days(text, THURSDAY) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    [
        "I have 2000 coins", "my PIN is 1984", "I'm in room 2012", "the code 2024 opens it",
        "I won in 2000 steps", "I need 2000 coins", "before 2000 people", "it costs 1999",
        "by 2050 coins we are rich", "a score of 2000", "call 2025", "I'm on the 3rd floor",
        "every Friday I swim", "we usually swim on Sunday", "what do I usually do on Friday?",
        "I love skating during winter", "which film do we love during Thanksgiving?",
        "I love Christmas songs", "it was the last day of school",
        "What activities do you enjoy doing in spring?",
        "Do you know what my favourite thing to do in the summer is?",
        "we met during the spring outing", "I love baking at Christmas",
        "The leaves are especially beautiful in the fall", "it's so nice here in the summer",
        "These places must be absolutely enchanting in the spring, right?",
        "What do you like to do at the weekend?", "I got it in the summer sale",
        "version 1.2.3", "we ran it in two hours",
        "Black Friday was a mess", "I hate black friday", "We have Focus Friday at work",
        "Focus Friday was a mess", "We celebrated Bright Monday",
        "I love Taco Tuesday", "I am in a m", "the first of many",
        "at a ratio of 3/4", "my number is 12.34.2026", "ip 10.12.20.2026",
    ],
)  # fmt: skip
def test_counts_and_numbers_are_no_times(text: str) -> None:
    """Neither years nor days."""
    assert days(text, THURSDAY) == []


@pytest.mark.parametrize(
    ("text", "language", "day"),
    [
        ("03/04/2026", "en-GB", "2026-04-03"),
        ("03/04/2026", "en-US", "2026-03-04"),
        ("03/04/2026", "de", "2026-04-03"),
        ("03/04/2026", "pt-BR", "2026-04-03"),
        ("03/04/2026", "en", None),
        ("03/04/2026", "en-CA", None),
        ("12.10.2026", "de-AT", "2026-10-12"),
        ("12.10.2026", "en-US", "2026-12-10"),
        ("12.10.2026", "en", None),
        ("13/04/2026", "en", "2026-04-13"),
        ("04/13/2026", "en", "2026-04-13"),
        ("13/04/2026", "en-US", "2026-04-13"),
        ("04/04/2026", "en", "2026-04-04"),
        ("31.02.2026", "de", None),
        ("30.06.2026", "en", "2026-06-30"),
        ("3/4/26", "en-GB", "2026-04-03"),
        ("2026/04/03", "ja", "2026-04-03"),
        ("03-04-2026", "nl", "2026-04-03"),
        ("03/04/2026", "ja", None),
    ],
)
def test_days_in_figures_are_read_by_language_and_region(
    text: str, language: str, day: str | None
) -> None:
    """Without them only what can mean one day."""
    expected = [] if day is None else [(day, day)]
    for around in ("My exam is on {}", "{}", "I was there on {}.", "Was ist am {} gewesen?"):
        assert days(around.format(text), THURSDAY, language) == expected, around


def test_hours_and_minutes_are_times() -> None:
    """Exact to half of the unit, also on the night of a clock change."""
    change = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # 2:30 in Berlin, half an hour before it
    now = (change + timedelta(hours=2)).astimezone(ZoneInfo("Europe/Berlin"))
    for text, minutes in (
        ("I ate two hours ago", 120), ("2 hours ago", 120), ("an hour ago", 60),
        ("half an hour ago I fell", 30), ("20 mins ago", 20), ("I leave in an hour", -60),
        ("I have a call in 10 minutes", -10), ("i called 3 hrs ago", 180),
        ("an hour and a half ago", 90), ("one and a half hours ago", 90), ("2h ago", 120),
        ("5 mins ago", 5), ("5mins ago", 5), ("1.5 hours ago", 90), ("10m ago", 10),
        ("in an hour and a half I leave", -90), ("a couple of hrs ago", 120),
    ):  # fmt: skip
        (span,) = spans_in(text, now)
        middle = now.astimezone(UTC) - timedelta(minutes=minutes)
        assert span.start.timestamp() < middle.timestamp() < span.end.timestamp(), text
        assert span.end.timestamp() - span.start.timestamp() <= 3600


def test_what_is_neither_stated_nor_asked_may_be_either() -> None:
    """Of words that are searched for, and of a question in the present."""
    both = [("2026-11-20", "2026-11-20"), ("2026-11-27", "2026-11-27")]
    assert days("Do I have anything on Friday?", THURSDAY) == both
    found = spans_in("exam friday", THURSDAY, undecided=True)
    assert [span.start.date().isoformat() for span in found] == [first for first, _ in both]
    assert spans_in("I love going to the sea in August", THURSDAY, undecided=True) == []


def test_a_time_until_which_something_will_be_begins_now() -> None:
    """What was is open on that side."""
    assert days("I'm in Rome until Monday", THURSDAY) == [("2026-11-26", "2026-11-29")]
    (since,) = spans_in("I'm ill since Monday", THURSDAY)
    assert since.start.date() == date(2026, 11, 23)
    assert since.end.date() == date(2026, 11, 27)  # tomorrow, which is not included


def test_longer_ago_is_less_exact() -> None:
    """ "Three weeks ago" is exact to days, "a year ago" to months."""
    (weeks,), (year,) = spans_in("three weeks ago", NOW), spans_in("a year ago", NOW)
    assert weeks.days == 8
    assert year.days == 360
    assert fit(weeks, day_of(NOW - timedelta(days=21))) == 1.0


@pytest.mark.parametrize(
    ("text", "days_ago"),
    [
        ("two yrs ago", 730), ("a year and a half ago", 547), ("half a year ago", 182),
        ("3 wks ago", 21), ("2w ago", 14), ("4 mths ago", 120), ("two and a half years ago", 912),
    ],
)  # fmt: skip
def test_amounts_may_be_short_or_with_a_half(text: str, days_ago: int) -> None:
    """As people chat."""
    (span,) = spans_in(text, NOW)
    middle = span.start + (span.end - span.start) / 2
    assert abs((NOW - middle).days - days_ago) <= 1


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


@pytest.mark.parametrize(
    ("language", "text", "day"),
    [
        ("de", "Vorgestern war ich krank", "2026-11-24"),
        ("de", "gestern war ich beim Zahnarzt", "2026-11-25"),
        ("de", "morgen habe ich eine Prüfung", "2026-11-27"),
        ("de", "vor drei Tagen war ich in Rom", "2026-11-23"),
        ("de", "letzten Freitag war ich im Kino", "2026-11-20"),
        ("de", "in drei Tagen fliege ich nach Rom", "2026-11-29"),
        ("es", "hace dos días fui al médico", "2026-11-24"),
        ("es", "anteayer fui al cine", "2026-11-24"),
        ("es", "pasado mañana tengo examen", "2026-11-28"),
        ("es", "mañana tengo un examen", "2026-11-27"),
        ("es", "el viernes pasado fui al cine", "2026-11-20"),
        ("fr", "il y a deux jours j'étais malade", "2026-11-24"),
        ("fr", "avant-hier j'étais à Lyon", "2026-11-24"),
        ("fr", "vendredi dernier je suis allé au cinéma", "2026-11-20"),
        ("it", "ieri sono andato al mare", "2026-11-25"),
        ("it", "due giorni fa ero malato", "2026-11-24"),
        ("it", "l'altro ieri ero malato", "2026-11-24"),
        ("it", "venerdì scorso ero al cinema", "2026-11-20"),
        ("pt", "anteontem fui ao médico", "2026-11-24"),
        ("pt", "há dois dias fui ao médico", "2026-11-24"),
        ("pt", "na sexta-feira passada fui ao cinema", "2026-11-20"),
        ("pt", "sexta passada fui ao cinema", "2026-11-20"),
        ("pt", "depois de amanhã tenho exame", "2026-11-28"),
        ("nl", "eergisteren was ik ziek", "2026-11-24"),
        ("nl", "twee dagen geleden was ik ziek", "2026-11-24"),
        ("nl", "afgelopen vrijdag was ik in Rome", "2026-11-20"),
        ("pl", "przedwczoraj byłem chory", "2026-11-24"),
        ("pl", "dwa dni temu byłem chory", "2026-11-24"),
        ("pl", "w zeszły piątek byłem w kinie", "2026-11-20"),
        ("pl", "w zeszłą środę byłem w kinie", "2026-11-25"),
        ("ru", "позавчера я болел", "2026-11-24"),
        ("ru", "два дня назад я болел", "2026-11-24"),
        ("ru", "в прошлую пятницу я был в кино", "2026-11-20"),
        ("tr", "dün doktora gittim", "2026-11-25"),
        ("tr", "iki gün önce doktora gittim", "2026-11-24"),
        ("tr", "geçen cuma sinemaya gittim", "2026-11-20"),
        ("ja", "一昨日、病院に行きました", "2026-11-24"),
        ("ja", "2日前に病院に行きました", "2026-11-24"),
        ("ja", "昨日映画を見ました", "2026-11-25"),
        ("ko", "그저께 병원에 갔어요", "2026-11-24"),
        ("ko", "2일 전에 병원에 갔어요", "2026-11-24"),
        ("ko", "지난 금요일에 영화를 봤어요", "2026-11-20"),
        ("zh", "前天我去了医院", "2026-11-24"),
        ("zh", "两天前我去了医院", "2026-11-24"),
        ("th", "เมื่อวานฉันไปหาหมอ", "2026-11-25"),
        ("de", "Guten Morgen, wie geht es dir", ""),
        ("es", "trabajo por la mañana siempre", ""),
        ("de", "vor zwei Wochen war ich in Rom", "2026-11-12"),
        ("it", "sette settimane fa ero a Roma", "2026-10-08"),
        ("it", "sei settimane fa ero a Roma", "2026-10-15"),
        ("fr", "la semaine prochaine je pars", "2026-12-03"),
        ("zh", "上个月我去了北京", "2026-10-16"),
        ("zh", "以前天天去", ""),
        ("de", "Was haben wir vorletzte Woche gemacht?", "2026-11-12"),
        ("de", "übernächste Woche habe ich eine Prüfung", "2026-12-10"),
        ("es", "la semana antepasada estuve en Roma", "2026-11-12"),
        ("fr", "l'avant-dernière semaine, j'étais à Rome", "2026-11-12"),
        ("pt", "na semana retrasada estive em Roma", "2026-11-12"),
        ("nl", "Wat zei ik voorvorige week?", "2026-11-12"),
        ("pl", "w zaprzeszłym tygodniu byłem w Rzymie", "2026-11-12"),
        ("ru", "Что я говорил на позапрошлой неделе?", "2026-11-12"),
        ("tr", "Evvelki hafta ne dedim?", "2026-11-12"),
        ("ja", "先々週は何をした？", "2026-11-12"),
        ("ko", "지지난주에 뭐 했지?", "2026-11-12"),
        ("zh", "上上周我去了北京", "2026-11-12"),
        ("zh", "前年我去了北京", "2024-07-02"),
        ("de", "Die Hochzeit war am 12. Oktober 2019", "2019-10-12"),
        ("es", "me casé el 12 de octubre de 2019", "2019-10-12"),
        ("ja", "2019年10月12日に結婚しました", "2019-10-12"),
        ("de", "Am Freitag war ich im Kino", ""),
        ("de", "Was habe ich am Freitag gemacht?", "2026-11-20"),
        ("de", "am Freitag", "2026-11-20"),
        ("es", "el viernes que viene tengo examen", "2026-11-27"),
        ("es", "viernes pasado", "2026-11-20"),
        ("pt", "sexta que vem tenho exame", "2026-11-27"),
        ("es", "Los viernes nado", ""),
        ("de", "Wo war ich am 3. Dezember?", "2025-12-03"),
        ("de", "am 3. Dezember", "2025-12-03"),
        ("es", "¿Qué hice el viernes?", "2026-11-20"),
        ("es", "¿Qué hice el 3 de diciembre?", "2025-12-03"),
        ("fr", "Qu'est-ce que j'ai fait vendredi ?", "2026-11-20"),
        ("fr", "Où étais-je le 3 décembre ?", "2025-12-03"),
        ("fr", "Où étais-je le 1er décembre ?", "2025-12-01"),
        ("fr", "Où vas-tu tous les vendredis ?", ""),
        ("it", "Cosa ho fatto venerdì?", "2026-11-20"),
        ("it", "Dove ero il 3 dicembre?", "2025-12-03"),
        ("pt", "O que fiz na sexta-feira?", "2026-11-20"),
        ("pt", "O que fiz na sexta?", "2026-11-20"),
        ("pt", "Onde estive a 3 de dezembro?", "2025-12-03"),
        ("nl", "Wat deed ik op vrijdag?", "2026-11-20"),
        ("nl", "Waar was ik op 3 december?", "2025-12-03"),
        ("pl", "Co robiłem w piątek?", "2026-11-20"),
        ("pl", "Gdzie byłem 3 grudnia?", "2025-12-03"),
        ("ru", "Что я делал в пятницу?", "2026-11-20"),
        ("ru", "Где я был 3 декабря?", "2025-12-03"),
        ("tr", "Cuma günü ne yaptım?", "2026-11-20"),
        ("tr", "3 Aralık günü neredeydim?", "2025-12-03"),
        ("ja", "金曜日に何をしましたか？", "2026-11-20"),
        ("ja", "12月3日に何をしましたか？", "2025-12-03"),
        ("ko", "금요일에 뭐 했어?", "2026-11-20"),
        ("ko", "12월 3일에 뭐 했어?", "2025-12-03"),
        ("zh", "星期五我做了什么？", "2026-11-20"),
        ("zh", "12月3日我做了什么？", "2025-12-03"),
        ("th", "วันศุกร์ฉันทำอะไร?", "2026-11-20"),
        ("de", "Das war am Monday und ich war dabei", ""),
        ("de", "Es gab 30 Tage Regen", ""),
    ],
)
def test_other_languages_have_words_for_times(language: str, text: str, day: str) -> None:
    """Of which none may be past or to come; said on Thursday 26 November 2026."""
    spans = spans_in(text, datetime(2026, 11, 26, 15, tzinfo=UTC), language)
    middles = [span.start + (span.end - span.start) / 2 for span in spans]
    assert [f"{middle:%Y-%m-%d}" for middle in middles] == ([day] if day else [])


@pytest.mark.parametrize("language", sorted(LANGUAGES.keys() - {ENGLISH}))
def test_every_language_has_words_for_times(language: str) -> None:
    """For the days and periods around now, and for how long ago something was."""
    said = age_in_words(NOW - timedelta(days=5), NOW, language)
    assert list(english_times(said, language)) == ["5 days ago"]
    units = {line.partition(":")[0] for line in LANGUAGES[language].times}
    assert units >= {"day", "week", "month", "year"}
    assert len(LANGUAGES[language].numbers) == 10


CALENDAR = Calendar(
    months=("Frost", "Thaw", "Seed", "Bud", "Bloom", "Sun", "Hay", "Corn", "Fruit", "Leaf", "Mist",
            "Long Night"),
    days=("Moonday", "Fireday", "Midweek", "Thunder", "Market", "Bath", "Rest"),
    feasts={"harvest": Feast(9, 20, 5), "Feast of Lights": Feast(2, 29)},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What happened at the last harvest?", "2022-09-20", "2022-09-24"),
        ("what happened at the harvest?", "2022-09-20", "2022-09-24"),
        ("Who came last Harvest", "2022-09-20", "2022-09-24"),
        ("We will meet at the next harvest", "2023-09-20", "2023-09-24"),
        ("What was sung during the Feast of Lights?", "2020-02-29", "2020-02-29"),
        ("What did we do in Long Night?", "2022-12-01", "2022-12-31"),
        ("What was on 3 Fruit 2022?", "2022-09-03", "2022-09-03"),
        ("What did she say last Market?", "2023-06-09", "2023-06-09"),
        ("What did you do yesterday?", "2023-06-14", "2023-06-14"),
    ],
)
def test_a_world_has_names_of_its_own(text: str, first: str, last: str) -> None:
    """For months, days and feasts; those of the language are understood as well."""
    (span,) = spans_in(text, NOW, calendar=CALENDAR)
    assert (str(span.start.date()), str((span.end - timedelta(days=1)).date())) == (first, last)


def test_since_a_feast_is_open_ended() -> None:
    """As with other times."""
    (span,) = spans_in("What happened since the last harvest?", NOW, calendar=CALENDAR)
    assert str(span.start.date()) == "2022-09-20"
    assert span.end > NOW


@pytest.mark.parametrize(
    "text", ["We harvest the wheat", "A harvester broke", "Sunlight and haystacks"]
)
def test_a_word_may_be_no_feast(text: str) -> None:
    """Without what goes before a time."""
    assert spans_in(text, NOW, calendar=CALENDAR) == []
