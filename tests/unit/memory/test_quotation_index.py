"""Texts that quote others."""

import pytest

from foremind.memory.erasure.records import QuotationIndex

_TEXTS = {
    1: "Mein Hund heißt Bello und meine Katzen heißen Mia und Leo",
    2: "私の犬の名前はポチです",
    3: "You told me: 私の犬の名前はポチです, and I remember it",
    4: "You said that die Katze von Bello immer schläft, and I believe it",
    5: "I have never seen the sea",
}


@pytest.fixture
def index() -> QuotationIndex[int]:
    """An index of texts in several languages."""
    index = QuotationIndex[int]()
    index.add(_TEXTS.items())
    return index


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("犬の名前はポチです", {2, 3}),
        ("die Katze von Bello immer schläft", {4}),
        ("you said that die katze", {4}),
        ("I have never seen the sea", {5}),
    ],
)
def test_quotes_are_found_in_texts_of_another_language(
    index: QuotationIndex[int], quote: str, expected: set[int]
) -> None:
    """Whose words have other terms."""
    assert index.quoting(quote) == expected


@pytest.mark.parametrize(
    ("quote", "expected"),
    [("I like art", {1, 2}), ("like artichokes", {3}), ("京都がとても好きです", {4})],
)
def test_a_quote_ends_where_words_do(quote: str, expected: set[int]) -> None:
    """Where white space separates these."""
    index = QuotationIndex[int]()
    texts = ("I like art!", "You said: I like art, and more", "I like artichokes")
    index.add(enumerate((*texts, "東京都がとても好きですよ"), start=1))
    assert index.quoting(quote) == expected
