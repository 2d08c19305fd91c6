"""What runtimes say of a player's time zone and language."""

import pytest

from foremind.domain.user import read_hints

_NOT_UNDERSTOOD: list[object] = [
    None,
    "",
    "C",
    5,
    -120,
    2.0,
    True,
    [],
    [5],
    {},
    "x" * 600,
    "null",
    "../x",
    "\0",
]


@pytest.mark.parametrize(
    ("hint", "key"),
    [
        ("Europe/Lisbon", "Europe/Lisbon"),
        ("utc", "UTC"),
        ("Z", "UTC"),
        ("GMT+2", "Etc/GMT-2"),
        ("Etc/GMT+2", "Etc/GMT+2"),
        ("UTC-05:00", "Etc/GMT+5"),
        ("UTC \u22125", "Etc/GMT+5"),
        ("+0200", "Etc/GMT-2"),
        ("-12", "Etc/GMT+12"),
        ("GMT+00:00", "UTC"),
        ("UTC+05:30", "Asia/Kolkata"),
        ("+05:45:00", "Asia/Kathmandu"),
        ("(UTC+01:00) Amsterdam, Berlin, Bern", "Etc/GMT-1"),
        ("europe/lisbon", "Europe/Lisbon"),
        ("America/Buenos Aires", "America/Buenos_Aires"),
        (":Europe/Paris\0", "Europe/Paris"),
        ("/usr/share/zoneinfo/Europe/Paris", "Europe/Paris"),
        ("posix/Europe/Paris", "Europe/Paris"),
        ("W. Europe Standard Time", "Europe/Berlin"),
        ("pacific standard time", "America/Los_Angeles"),
        ("Tokyo Standard Time", "Asia/Tokyo"),
    ],
)
def test_a_time_zone_is_read_as_far_as_it_can_be(hint: str, key: str) -> None:
    """Of an offset, a plus is ahead of UTC, as people write it."""
    hints = read_hints(hint, None)
    assert (str(hints.time_zone), hints.warnings) == (key, ())


@pytest.mark.parametrize(
    "hint",
    [
        *_NOT_UNDERSTOOD,
        "Etc/Unknown", "Europe", "Europe/", "Factory", "localtime", "CEST", "GMT+15", "-13",
        "-03:30", "W. Europe Time", "/etc/localtime",
    ],
)  # fmt: skip
def test_another_time_zone_counts_as_not_given(hint: object) -> None:
    """And the client is told, unless it gave none."""
    hints = read_hints(hint, None)
    assert hints.time_zone is None
    assert [warning.partition(":")[0] for warning in hints.warnings] == (
        [] if hint is None else ["time_zone"]
    )


@pytest.mark.parametrize(
    ("hint", "language"),
    [
        ("de", "de"),
        ("pt-BR", "pt"),
        ("zh-Hant-TW", "zh"),
        ("EN", "en"),
        ("en_US", "en"),
        ("en_US.UTF-8", "en"),
        ("sr_RS@latin", "sr"),
        ("de-", "de"),
        ("en-US-u-ca-gregory", "en"),
        ("en-US,en;q=0.9,de", "en"),
        ("C:pt_BR:pt", "pt"),
        (["und", "fr-CA"], "fr"),
        ("German", "de"),
        ("English_United States.1252", "en"),
        ("ChineseSimplified", "zh"),
        ("deu", "de"),
        ("iw", "he"),
    ],
)
def test_a_language_is_read_as_far_as_it_can_be(hint: object, language: str) -> None:
    """What follows the first subtag is script, region, variant, or an encoding."""
    hints = read_hints(None, hint)
    assert (hints.language, hints.warnings) == (language, ())


@pytest.mark.parametrize(
    "hint",
    [
        *_NOT_UNDERSTOOD,
        "POSIX", "C.UTF-8", "root", "und", "d", "d3", "\u0434e", "de--AT", "Klingon", "x-klingon",
        "no way", "Unknown", "*",
    ],
)  # fmt: skip
def test_another_language_counts_as_not_given(hint: object) -> None:
    """And the client is told, unless it gave none."""
    hints = read_hints(None, hint)
    assert hints.language is None
    assert [warning.partition(":")[0] for warning in hints.warnings] == (
        [] if hint is None else ["language"]
    )


@pytest.mark.parametrize(
    ("hint", "tag"),
    [
        ("pt-BR", "pt-BR"), ("en_us.UTF-8", "en-US"), ("zh-Hant-TW", "zh-TW"), ("es-419", "es-419"),
        ("de", "de"), ("zh-Hans", "zh"), ("de-1996", "de"), ("en,en-US,en-GB;q=0.5", "en-US"),
        (["und", "fr", "en-US"], "fr"), ("English", "en"), (None, None), ("Klingon", None),
    ],
)  # fmt: skip
def test_the_region_is_kept_for_dates(hint: object, tag: str | None) -> None:
    """That of the language that counts."""
    assert read_hints(None, hint).language_tag == tag
