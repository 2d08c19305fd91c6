"""The words of a prompt that are Foremind's own."""

from datetime import UTC, datetime

import pytest

from foremind.text.languages.language_files import ENGLISH, LABELS, LANGUAGES
from foremind.text.languages.prompt_words import (
    date_in,
    day_in,
    english_day,
    heading_in,
    is_day_heading,
    label_in,
    language_of_messages,
    prompt_words,
    record_words,
)
from foremind.text.sentences import sentence_keys

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


def test_every_language_has_all_words_of_records_and_all_labels() -> None:
    """But English, whose labels are those that records are stored with."""
    english = record_words(ENGLISH)
    assert all(getattr(english, field) for field in english.__struct_fields__)
    for language in LANGUAGES.keys() - {ENGLISH}:
        words = record_words(language)
        borrowed = {
            field
            for field in words.__struct_fields__
            if getattr(words, field) == getattr(english, field)
        }
        assert not borrowed, language
        assert set(prompt_words(language).labels) == LABELS, language


def test_labels_are_in_the_language_if_they_are_of_foremind() -> None:
    """In English where there is no file; a heading begins with a capital letter."""
    assert [label_in(language, "home") for language in ("de", "ja", "en", "sv")] == [
        "Wohnort", "住まい", "home", "home",
    ]  # fmt: skip
    assert label_in("de", "boat") == "boat"
    assert [heading_in(language, "left open") for language in ("de", "en")] == [
        "Offen geblieben", "Left open",
    ]  # fmt: skip


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_label_is_told_from_what_it_labels(language: str) -> None:
    """With a date and without, so that what it labels is found elsewhere in a prompt."""
    for label in LABELS:
        shown = label_in(language, label)
        dated = f"{shown} ({day_in(language, DAY)}): "
        short = sentence_keys([f"{shown}: Porto", f"{dated}Porto"])
        assert short[0] == short[1] != 0, label
        long = sentence_keys(
            ["Mira keeps bees", f"{shown}: Mira keeps bees", f"{dated}Mira keeps bees"]
        )
        assert len(set(long)) == 1, label


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_days_are_recognised_in_every_language(language: str) -> None:
    """By themselves, and as what begins the sentences of a day."""
    for month in range(1, 13):
        day = DAY.replace(month=month, day=7)
        written = day_in(language, day)
        assert english_day(written) == day_in(ENGLISH, day)
        heading = record_words(language).on_day.format(date=written)
        assert is_day_heading(heading) and not is_day_heading(f"{heading} x")
    assert english_day("Scout") is None


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
