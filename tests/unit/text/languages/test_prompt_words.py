"""The words of a prompt that are Foremind's own."""

from datetime import UTC, datetime

import pytest

from foremind.text.languages.language_files import ENGLISH, LANGUAGES
from foremind.text.languages.prompt_words import date_in, language_of_messages, prompt_words

DAY = datetime(2026, 5, 20, 12, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", "Heute ist Mittwoch, der 20. Mai 2026."),
        ("en", "Today is Wednesday, 20 May 2026."),
        ("es", "Hoy es miércoles, 20 de mayo de 2026."),
        ("fr", "Nous sommes le mercredi 20 mai 2026."),
        ("it", "Oggi è mercoledì 20 maggio 2026."),
        ("ja", "今日は2026年5月20日、水曜日です。"),
        ("ko", "오늘은 2026년 5월 20일 수요일입니다."),
        ("nl", "Vandaag is het woensdag 20 mei 2026."),
        ("pl", "Dziś jest środa, 20 maja 2026 roku."),
        ("pt", "Hoje é quarta-feira, 20 de maio de 2026."),
        ("ru", "Сегодня среда, 20 мая 2026 года."),
        ("th", "วันนี้คือวันพุธที่ 20 พฤษภาคม ค.ศ. 2026"),
        ("tr", "Bugün 20 Mayıs 2026, Çarşamba."),
        ("zh", "今天是2026年5月20日，星期三。"),
        ("sv", "Today is Wednesday, 20 May 2026."),  # there is no file for Swedish
    ],
)
def test_dates_are_in_the_language(language: str, expected: str) -> None:
    """English where there is no file."""
    assert date_in(language, DAY) == expected


def test_every_language_has_words_of_its_own() -> None:
    """They name the tags, which stay as they are, and say the name as it is quoted."""
    assert len({prompt_words(language).rules for language in LANGUAGES}) == len(LANGUAGES)
    for language in LANGUAGES:
        words = prompt_words(language)
        assert "<memories>" in words.rules
        assert '"A{na}"' in words.player.format(name='"A{na}"')


def test_no_language_borrows_words_of_english() -> None:
    """Every line has words of its own; a place alone is nobody's word."""
    english = prompt_words(ENGLISH).lines
    for language in LANGUAGES.keys() - {ENGLISH}:
        lines = prompt_words(language).lines
        borrowed = {
            field
            for field in lines.__struct_fields__
            if getattr(lines, field) == getattr(english, field)
        }
        assert borrowed <= {"date"}, language


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        ([], ENGLISH),
        (["Bruno", "12:30"], ENGLISH),  # tell nothing
        (["Bruno", "haha", "Mein Hund heißt Bruno"], "de"),
        (["Ich liebe Katzen", "I was in a war"], "de"),  # as many: the newest
        (["I was in a war", "Ich liebe Katzen", "Mein Hund heißt Bello"], "de"),
    ],
)
def test_most_messages_that_tell_their_language_decide(texts: list[str], language: str) -> None:
    """The newest is first."""
    assert language_of_messages(texts) == language
