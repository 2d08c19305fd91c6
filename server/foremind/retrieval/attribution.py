"""Attribution: which of the recalled memories a reply used. Pure."""

from collections.abc import Sequence

from foremind.domain.memory import Recalled
from foremind.text.tokenization import terms_of

# A reply uses a memory if it contains two of its terms, and a third of all of them.
_MIN_SHARED_TERMS = 2
_MIN_SHARE = 1 / 3


def used_memories(reply: str, memories: Sequence[Recalled]) -> list[int]:
    """Return the ids of the memories that `reply` uses."""
    reply_terms = set(terms_of(reply))
    return [memory.id for memory in memories if _uses(reply_terms, set(terms_of(memory.content)))]


def _uses(reply_terms: set[str], memory_terms: set[str]) -> bool:
    shared = len(reply_terms & memory_terms)
    return (
        shared >= min(_MIN_SHARED_TERMS, len(memory_terms))
        and shared >= _MIN_SHARE * len(memory_terms) > 0
    )
