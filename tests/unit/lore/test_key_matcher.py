"""Keys are found as words, characters or patterns, and no pattern takes more than linear time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.lore.key_matcher import (
    MAX_PATTERNS,
    MAX_SCANNED_CHARS,
    KeyMatcher,
    PatternKey,
    PlainKey,
)


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        (PlainKey("ring"), "The RING of Gyges", True),
        (PlainKey("ring"), "Bring a drink", False),
        (PlainKey("ring"), "Rings", False),
        (PlainKey("ring"), "the _ring_, the ring's song", True),
        (PlainKey("ring", whole_words=False), "Bring a drink", True),
        (PlainKey("Ring", case_sensitive=True), "the ring", False),
        (PlainKey("Ring", case_sensitive=True), "the Ring", True),
        (PlainKey("salt  road"), "the salt\nroad", True),
        (PlainKey("salt road"), "the salty road", False),
        (PlainKey("STRASSE"), "die Straße", True),
        (PlainKey("cafe\u0301"), "the caf\u00e9", True),
        (PlainKey("cafe"), "the cafe\u0301", False),
        (PlainKey("龍"), "黒龍の谷", True),
        (PlainKey("黒龍"), "黒い龍", False),
        (PlainKey("드래곤"), "드래곤이 왔다", True),
        (PlainKey("มังกร"), "เจ้ามังกรดำ", True),
        (PlainKey("дракон"), "Дракон!", True),
        (PlainKey("дракон"), "драконы", False),
        (PlainKey("c++"), "C++ or C", True),
        (PlainKey("🐉"), "a 🐉!", True),
        (PlainKey(" "), "a b", False),
        (PatternKey("drag(on|oness)s?"), "Two DRAGONESSES", True),
        (PatternKey("Dragon", case_sensitive=True), "dragon", False),
        (PatternKey("/dragon/"), "Dragon", False),
        (PatternKey("/dragon/i"), "Dragon", True),
        (PatternKey("/^dragon$/gim"), "Dragon", True),
        (PatternKey(r"[\u9f8d\u7adc]"), "黒竜", True),
        (PatternKey(r"\bring\b"), "bring", False),
    ],
)  # fmt: skip
def test_a_key_is_found(key: PlainKey | PatternKey, text: str, found: bool) -> None:
    """As a whole word where words have spaces between them, anywhere where they have none."""
    matcher = KeyMatcher([PlainKey("unrelated"), key])
    assert not matcher.unusable
    assert (1 in matcher.found_in(text)) is found


@pytest.mark.parametrize(
    "pattern", ["(?=dragon)", r"(a)\1", "(", "/a/x", "/a/b/c/q", "((a{1,1000}){1,10}){1,10}"]
)
def test_a_pattern_that_cannot_run_is_unusable_and_the_others_work(pattern: str) -> None:
    """Backtracking, a fault in its syntax, unknown flags, or too large."""
    matcher = KeyMatcher([PatternKey("wol[fv]"), PatternKey(pattern), PlainKey("hart")])
    assert matcher.unusable == {1}
    assert matcher.found_in("a wolf, a hart, aa") == {0, 2}


def test_patterns_are_limited_in_number_and_in_size_together() -> None:
    """The last ones are unusable."""
    matcher = KeyMatcher([PatternKey(f"x{number}y") for number in range(MAX_PATTERNS + 3)])
    assert matcher.unusable == {MAX_PATTERNS, MAX_PATTERNS + 1, MAX_PATTERNS + 2}
    large = KeyMatcher([PatternKey(rf"\pL{{1,3}}{number}z") for number in range(MAX_PATTERNS)])
    kept = MAX_PATTERNS - len(large.unusable)
    assert large.unusable == set(range(kept, MAX_PATTERNS))
    assert large.found_in("abc0z") == {0}


def test_what_would_take_backtracking_engines_forever_is_searched() -> None:
    """And the rest of the text too."""
    matcher = KeyMatcher([PatternKey("(a+)+$"), PatternKey("(x|x)*y"), PlainKey("dragon")])
    assert matcher.found_in("a" * 900 + "!" + "x" * 900 + " dragon") == {2}


def test_only_the_end_of_a_long_message_is_scanned() -> None:
    """The last thousands of characters."""
    matcher = KeyMatcher([PlainKey("dragon")])
    assert matcher.found_in("dragon " + "x " * (MAX_SCANNED_CHARS // 2 - 4))
    assert not matcher.found_in("dragon " + "x " * (MAX_SCANNED_CHARS // 2))


@given(
    st.lists(st.text("abc 龍.", min_size=1, max_size=4), min_size=1, max_size=8),
    st.text("abcABC 龍.", max_size=40),
)
def test_substring_keys_are_those_that_python_finds(keys: list[str], text: str) -> None:
    """The index finds no more and no fewer."""
    matcher = KeyMatcher([PlainKey(key, whole_words=False) for key in keys])
    haystack = " ".join(text.split()).lower()
    needles = [" ".join(key.split()).lower() for key in keys]
    expected = {number for number, key in enumerate(needles) if key and key in haystack}
    assert matcher.found_in(text) == expected
