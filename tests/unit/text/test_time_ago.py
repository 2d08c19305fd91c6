"""Ages in words."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from foremind.text.languages.language_files import ENGLISH, LANGUAGES
from foremind.text.languages.prompt_words import age_in_words

NOW = datetime(2026, 5, 20, 15, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("elapsed", "words"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=1), "a minute ago"),
        (timedelta(minutes=45), "45 minutes ago"),
        (timedelta(hours=1), "an hour ago"),
        (timedelta(hours=14), "14 hours ago"),
        (timedelta(hours=20), "yesterday"),
        (timedelta(days=1), "yesterday"),
        (timedelta(days=5), "five days ago"),
        (timedelta(days=21), "three weeks ago"),
        (timedelta(days=90), "three months ago"),
        (timedelta(days=365), "12 months ago"),
        (timedelta(days=800), "two years ago"),
    ],
)
def test_an_age_in_words(elapsed: timedelta, words: str) -> None:
    """From seconds to years."""
    assert age_in_words(NOW - elapsed, NOW) == words.replace("12 months", "twelve months")


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ("2026-10-25T00:50Z", "2026-10-25T01:10Z", "20 minutes ago"),  # 2:50, then 2:10
        ("2026-10-25T00:10Z", "2026-10-25T01:10Z", "an hour ago"),  # 2:10, and 2:10 again
        ("2026-10-24T22:30Z", "2026-10-25T02:30Z", "four hours ago"),  # 0:30, then 3:30
        ("2026-10-24T21:30Z", "2026-10-25T01:30Z", "yesterday"),  # 23:30, then 2:30
        ("2026-10-25T01:10Z", "2026-10-25T01:10Z", "just now"),
        ("2026-03-29T00:50Z", "2026-03-29T01:10Z", "20 minutes ago"),  # 1:50, then 3:10
        ("2026-03-28T23:30Z", "2026-03-29T01:30Z", "two hours ago"),  # 0:30, then 3:30
    ],
)
def test_hours_have_sixty_minutes_on_the_night_of_a_clock_change(
    then: str, now: str, words: str
) -> None:
    """Whether the age is of a time in the player's time zone or in UTC."""
    berlin = ZoneInfo("Europe/Berlin")
    said, present = (datetime.fromisoformat(moment) for moment in (then, now))
    for moment in (said, said.astimezone(berlin)):
        assert age_in_words(moment, present.astimezone(berlin)) == words


@pytest.mark.parametrize(
    ("language", "ages"),
    [
        ("de", ["gerade eben", "vor 1 Minute", "vor 21 Stunden", "gestern", "vor 3 Wochen"]),
        ("pl", ["przed chwilą", "1 minutę temu", "21 godzin temu", "wczoraj", "3 tygodnie temu"]),
        ("ru", ["только что", "1 минуту назад", "21 час назад", "вчера", "3 недели назад"]),
        ("ja", ["たった今", "1 分前", "21 時間前", "昨日", "3 週間前"]),
        ("sv", ["just now", "a minute ago", "21 hours ago", "yesterday", "three weeks ago"]),
    ],
)
def test_ages_are_in_the_language(language: str, ages: list[str]) -> None:
    """With its plurals; in English where there is no file of a language, such as Swedish."""
    late = NOW.replace(hour=23)
    elapsed = [
        timedelta(), timedelta(minutes=1), timedelta(hours=21), timedelta(days=1),
        timedelta(days=21),
    ]  # fmt: skip
    assert [age_in_words(late - passed, late, language) for passed in elapsed] == ages


def test_every_language_has_words_for_every_age() -> None:
    """None is in English."""
    elapsed = [timedelta(days=days) for days in (0, 0.02, 0.2, 1, 5, 21, 90, 800)]
    english = {age_in_words(NOW - passed, NOW) for passed in elapsed}
    for language in LANGUAGES.keys() - {ENGLISH}:
        ages = {age_in_words(NOW - passed, NOW, language) for passed in elapsed}
        assert len(ages) == len(english) and not ages & english
