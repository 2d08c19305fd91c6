"""What people write differently and mean the same is found, by memory search and by a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.lore.key_matcher import KeyMatcher, PlainKey
from foremind.text.folding import folded
from foremind.text.tokenization import terms_of, words_of


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("O\u2019Brien", "o'brien"),
        ("\u0130stanbul", "istanbul"),
        ("\uff24\uff52\uff41\uff47\uff4f\uff4e", "dragon"),
        ("Spider\u2011Man", "spider-man"),
        ("light\u00adhouse", "lighthouse"),
        ("שָׁלוֹם", "שלום"),
        ("الكِتَابُ", "كتاب"),
        ("والسيف", "سيف"),
        ("إبراهيم", "ابراهيم"),
        ("caf\u00e9", "cafe\u0301"),
    ],
)
def test_a_word_is_found_as_it_is_meant(written: str, meant: str) -> None:
    """By one folding: what memory search finds, a key finds."""
    assert folded(written) == folded(meant)
    assert words_of(written) == words_of(meant)
    assert terms_of(written) == terms_of(meant) != []
    assert KeyMatcher([PlainKey(written)]).found_in(f"a {meant}, b") == {0}


@given(st.text())
def test_folding_is_done_at_once(text: str) -> None:
    """No line is added, and no text becomes much longer."""
    assert folded(text).count("\n") <= text.count("\n")
    assert len(folded(text)) <= 2 * (2 * len(text) + 64)
