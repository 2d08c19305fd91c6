"""Which memories a reply used."""

from datetime import UTC, datetime

from foremind.domain.memory import Recalled
from foremind.retrieval.access_counts import used_memories


def recalled(number: int, content: str) -> Recalled:
    """A recalled memory."""
    now = datetime(2026, 5, 1, tzinfo=UTC)
    return Recalled(number, content, "user", "conversation", 0.5, now, False, 0.5, 0.5, 0.5, 0.5)


def test_a_memory_is_used_if_the_reply_shares_enough_terms() -> None:
    """At least two and a third of all; a single shared term is chance."""
    memories = [
        recalled(1, "My sister Lena is a vet in Hamburg"),
        recalled(2, "The sister ship burned"),
        recalled(3, ""),
    ]
    assert used_memories("How is Lena, your sister the vet?", memories) == [1]
