"""Normalisation of drafts, and whether they are worth searching for."""

import pytest

from foremind.typeahead.prefetch_policy import has_searchable_text, normalise


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("hello there", "  hello   there "),
        ("hello\tthere", "hello\n there"),
        ("cafe\u0301", "café"),
        ("a\u00a0b", "a b"),
    ],
)
def test_unicode_form_and_whitespace_make_no_difference(first: str, second: str) -> None:
    """Drafts that look the same are equal."""
    assert normalise(first) == normalise(second)


@pytest.mark.parametrize(("first", "second"), [("Polish", "polish"), ("x²", "x2"), ("ab", "a b")])
def test_visible_differences_are_kept(first: str, second: str) -> None:
    """Case, compatibility characters and word boundaries."""
    assert normalise(first) != normalise(second)


@pytest.mark.parametrize("text", ["", " ", "...", "?!", "— – -", "\u200b", "🏽"])
def test_punctuation_and_whitespace_are_not_searchable(text: str) -> None:
    """There is nothing to search for."""
    assert not has_searchable_text(normalise(text))


@pytest.mark.parametrize("text", ["a", "7", "雨", "🌧️", "...ok"])
def test_letters_digits_and_pictographs_are_searchable(text: str) -> None:
    """Anything that may carry meaning."""
    assert has_searchable_text(normalise(text))
