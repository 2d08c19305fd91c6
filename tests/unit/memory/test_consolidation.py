"""Is it the same again?"""

from datetime import UTC, datetime

import pytest

from foremind.domain.memory import SimilarMemory
from foremind.memory.consolidation import find_same, grown, only_quotes, says_the_same


def known(text: str, cosine: float = 0.9) -> SimilarMemory:
    """A memory this near."""
    return SimilarMemory(1, "user", text, 0.6, datetime(2026, 5, 1, tzinfo=UTC), cosine)


def test_the_same_in_other_words_is_the_same() -> None:
    """Where the same speaker said it."""
    assert find_same("rain is my favourite", "companion", [known("I love rain")]) is None
    assert find_same("rain is my favourite", "user", [known("I love rain")]) == known("I love rain")


@pytest.mark.parametrize(
    ("text", "memory"),
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
def test_what_an_embedding_is_blind_to_keeps_them_apart(text: str, memory: str) -> None:
    """Negation, numbers, names, one swapped word, events, questions, news."""
    assert not says_the_same(text, known(memory))


def test_what_is_not_near_is_not_the_same() -> None:
    """Below the boundary nothing is compared."""
    assert not says_the_same("rain is my favourite", known("I love rain", 0.7))


def test_said_again_it_matters_more() -> None:
    """And never quite reaches certainty."""
    assert 0.6 < grown(0.6, 0.3) < grown(0.7, 0.3) < 1


def test_a_reply_that_quotes_a_memory_is_no_news() -> None:
    """Else every memory that is spoken of would be remembered once more."""
    assert only_quotes("Yesterday you told me: “I love rain”", [known("I love rain")])
    assert not only_quotes("You love rain", [known("I love rain")])
    assert not only_quotes("yes, in Porto", [known("Porto")])
