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
        # as people write: apostrophes and quotation marks, hyphens, what nobody sees
        (PlainKey("don't"), "I don\u2019t", True),
        (PlainKey("O\u2019Brien"), "o'brien's ship", True),
        (PlainKey("O\u2019Brien", case_sensitive=True), "O`Brien", True),
        (PlainKey("the \u201cElder\u201d"), 'the "elder"', True),
        (PlainKey('"home"'), "at \u201ehome\u201c", True),
        (PlainKey("spider-man"), "Spider\u2011Man", True),
        (PlainKey("Jean\u2010Luc"), "jean-luc", True),
        (PlainKey("lighthouse"), "the light\u00adhouse", True),
        (PlainKey("light\u00adhouse"), "the light\u200bhouse", True),
        (PlainKey("salt road"), "the salt\u00a0road", True),
        # case and width
        (PlainKey("istanbul"), "\u0130stanbul", True),
        (PlainKey("\u0130STANBUL"), "Istanbul", True),
        (PlainKey("\u0130stanbul", case_sensitive=True), "Istanbul", True),
        (PlainKey("\uff23\uff21\uff26\uff25"), "a cafe", True),
        (PlainKey("dragon"), "\uff24\uff52\uff41\uff47\uff4f\uff4e", True),
        (PlainKey("\uff84\uff9e\uff97\uff7a\uff9e\uff9d"), "ドラゴンだ", True),
        (PlainKey("Σίσυφος"), "ΣΊΣΥΦΟΣ", True),
        # emoji with and without selector
        (PlainKey("\u2764\ufe0f"), "I \u2764 you", True),
        (PlainKey("\u2764"), "I\u2764\ufe0fyou", True),
        (PlainKey("\u2620\ufe0e"), "\u2620\ufe0f", True),
        (PlainKey("\U0001f409"), "the\U0001f409flies", True),
        # points, vowels and articles
        (PlainKey("שלום"), "שָׁלוֹם לך", True),
        (PlainKey("שָׁלוֹם"), "שלום", True),
        (PlainKey("كتاب"), "قرأت الكتاب", True),
        (PlainKey("كتاب"), "الكِتَابُ", True),
        (PlainKey("الكتاب"), "كتاب قديم", True),
        (PlainKey("سيف"), "وبالسيف", True),
        (PlainKey("مدينة"), "للمدينة", True),
        (PlainKey("أحمد"), "قال احمد", True),
        (PlainKey("مكتبة"), "المكتبه", True),
        (PlainKey("1907"), "عام ١٩٠٧", True),
        (PlainKey("ח\u05f4ן"), 'ח"ן', True),
        (PlainKey("Isparta"), "ısparta", True),
        (PlainKey("Пётр"), "петр", True),
        (PlainKey("كتاب"), "كتابة", False),
        (PlainKey("له"), "الله", False),
        # signs that belong to a word
        (PlainKey("C#"), "C#7", False),
        (PlainKey("C#"), "in C#, or C", True),
        (PlainKey("C#"), "C", False),
        (PlainKey("C"), "C# and C++", False),
        (PlainKey("C"), "in C, or C#", True),
        (PlainKey("C++"), "C++20", False),
        (PlainKey(".NET"), "ASP.NET", False),
        (PlainKey(".NET"), "on .net", True),
        (PlainKey("@mara"), "bob@mara", False),
        (PlainKey("[Guild]"), "the [Guild]s", True),
        (PlainKey("C#"), "日本のC#が", True),
        # patterns of JavaScript
        (PatternKey("/^OOC/m"), "Yes.\nOOC: later", True),
        (PatternKey("/^OOC/m"), "Yes.\r\nOOC: later", True),
        (PatternKey("/^OOC/m"), "Yes. OOC: later", False),
        (PatternKey("/^OOC/"), "Yes.\nOOC: later", False),
        (PatternKey("/end$/m"), "the end\nand more", True),
        (PatternKey(r"/one\ntwo/"), "one\ntwo", True),
        (PatternKey(r"/one\ntwo/"), "one two", False),
        (PatternKey(r"one\s+two"), "one  two", True),
        (PatternKey("/a.b/s"), "a\nb", True),
        (PatternKey("/a.b/"), "a\nb", False),
        (PatternKey("/a[^]b/"), "a\nb", True),
        (PatternKey("/x[]y/"), "xy", False),
        (PatternKey(r"/\u{1f409}/u"), "a \U0001f409", True),
        (PatternKey(r"/[\u{1f409}-\u{1f40b}]/u"), "a \U0001f40a", True),
        (PatternKey(r"/\ud83d\udc09/"), "a \U0001f409", True),
        (PatternKey(r"/\p{Script=Greek}/u"), "λόγος", True),
        (PatternKey(r"/\p{sc=Grek}/u"), "λόγος", True),
        (PatternKey(r"/^\P{Script=Greek}+$/u"), "λόγος", False),
        (PatternKey(r"/[\p{Script_Extensions=Han}!]/u"), "竜", True),
        (PatternKey(r"/\p{Lowercase_Letter}/u"), "A b", True),
        (PatternKey(r"/^\p{General_Category=Uppercase_Letter}+$/u"), "Ab", False),
        (PatternKey(r"/\p{Emoji}/u"), "a \U0001f409", True),
        (PatternKey(r"/[\b]/"), "bat", False),
        (PatternKey(r"/and\/or/"), "and/or", True),
        (PatternKey("/don't/"), "I don\u2019t", True),
        (PatternKey("/don\u2019t/"), "I don't", True),
        (PatternKey(r"/don\u2019t/"), "I don\u2019t", True),
        (PatternKey("/cafe/"), "\uff43\uff41\uff46\uff45", True),
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
