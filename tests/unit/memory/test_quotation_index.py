"""Texts that mention or quote others."""

import pytest

from foremind.memory.quotation_index import QuotationIndex

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
    ("about", "expected"),
    [
        ("Bello", {1, 4}),
        ("meine Katze", {1, 4}),
        ("犬", {2, 3}),
        ("犬の名前", {2, 3}),
        ("the sea", {5}),
    ],
)
def test_words_are_found_in_every_language(
    index: QuotationIndex[int], about: str, expected: set[int]
) -> None:
    """However they are inflected."""
    assert index.mentioning(about) == expected


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
