"""Which memories a text repeats."""

from datetime import UTC, datetime

import pytest

from foremind.domain.memory import SimilarMemory
from foremind.memory.ingest_decisions import (
    find_same,
    only_quotes,
    reinforced_significance,
    says_the_same,
)


def memory(text: str, cosine: float = 0.9) -> SimilarMemory:
    """A memory with this cosine."""
    return SimilarMemory(1, "user", text, 0.6, datetime(2026, 5, 1, tzinfo=UTC), cosine)


def test_a_paraphrase_is_the_same() -> None:
    """If the same speaker said it."""
    same = memory("I love rain")
    assert find_same("rain is my favourite", "companion", [same], 0.82) is None
    assert find_same("rain is my favourite", "user", [same], 0.82) == same


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("I don't love rain", "I love rain"),
        ("I have two dogs", "I have three dogs"),
        ("my friend is Ana", "my friend is Eva"),
        ("my sister is a vet", "my brother is a vet"),
        ("I went swimming yesterday", "yesterday I went for a swim"),
        ("do I love rain?", "I love rain"),
        ("I love rain because my grandmother and I danced in it", "I love rain"),
    ],
)
def test_what_an_embedding_is_blind_to_keeps_them_apart(text: str, other: str) -> None:
    """Negation, numbers, names, one word replaced, events, questions, added information."""
    assert not says_the_same(text, memory(other), 0.82)


def test_dissimilar_texts_are_not_the_same() -> None:
    """Below the minimum cosine nothing else is compared."""
    assert not says_the_same("rain is my favourite", memory("I love rain", 0.7), 0.82)
    assert not says_the_same("rain is my favourite", memory("I love rain", 0.9), 0.95)


def test_without_a_measured_cosine_only_the_same_words_are_the_same() -> None:
    """Some models give nearly all texts a high cosine; merging would lose what was said."""
    assert not says_the_same("rain is my favourite", memory("I love rain", 0.99), None)
    assert says_the_same("I love the rain!", memory("I love rain", 0.9), None)


def test_repetition_raises_significance() -> None:
    """It approaches 1 without reaching it."""
    assert 0.6 < reinforced_significance(0.6, 0.3) < reinforced_significance(0.7, 0.3) < 1


def test_a_reply_that_quotes_a_memory_adds_nothing_new() -> None:
    """Otherwise every memory that a reply mentions would be stored once more."""
    assert only_quotes("Yesterday you told me: “I love rain”", [memory("I love rain")])
    assert not only_quotes("You love rain", [memory("I love rain")])
    assert not only_quotes("yes, in Porto", [memory("Porto")])


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("Mein Hund heißt Bello!", "mein Hund heißt Bello", True),
        ("Mein Hund heißt Bello", "Mein Kater heißt Tom", False),
        ("私の犬の名前はポチです。", "私の犬の名前はポチです", True),
        ("私の犬の名前はポチです", "私の猫の名前はタマです", False),
    ],
)
def test_other_languages_repeat_a_memory_with_the_same_terms(
    text: str, other: str, expected: bool
) -> None:
    """An English model finds any two texts in them alike."""
    assert says_the_same(text, memory(other, 0.99), 0.82) is expected
