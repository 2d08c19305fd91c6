"""When drafts are equal, and when they say something."""

import pytest

from foremind.typeahead.draft_text import normalise, says_something


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hello there", "  hello   there "),
        ("hello\tthere", "hello\n there"),
        ("cafe\u0301", "café"),
        ("a\u00a0b", "a b"),
    ],
)
def test_unicode_form_and_white_space_make_no_difference(one: str, other: str) -> None:
    """Drafts that look the same are the same."""
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(("one", "other"), [("Polish", "polish"), ("x²", "x2"), ("ab", "a b")])
def test_what_differs_to_a_reader_stays_different(one: str, other: str) -> None:
    """Case, compatibility forms and words apart are kept."""
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize("text", ["", " ", "...", "?!", "— – -", "\u200b", "🏽"])
def test_punctuation_and_blanks_say_nothing(text: str) -> None:
    """There is nothing to search for."""
    assert not says_something(normalise(text))


@pytest.mark.parametrize("text", ["a", "7", "雨", "🌧️", "...ok"])
def test_letters_digits_and_pictographs_say_something(text: str) -> None:
    """Anything that could be meant is searched for."""
    assert says_something(normalise(text))
