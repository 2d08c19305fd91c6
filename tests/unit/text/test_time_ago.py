"""Ages in words."""

from datetime import UTC, datetime, timedelta

import pytest

from foremind.text.time_ago import age_in_words

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
