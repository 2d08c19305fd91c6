"""Which of the recalled memories a reply made use of. Pure."""

from collections.abc import Sequence

from foremind.domain.memory import Recalled
from foremind.text.tokenization import terms_of

# A reply that holds two of a memory's words, and a third of all of them, speaks of it.
_WORDS = 2
_SHARE = 1 / 3


def used_in(reply: str, memories: Sequence[Recalled]) -> list[int]:
    """Return the ids of the memories that `reply` speaks of."""
    said = set(terms_of(reply))
    return [memory.id for memory in memories if _speaks_of(said, set(terms_of(memory.content)))]


def _speaks_of(said: set[str], memory: set[str]) -> bool:
    shared = len(said & memory)
    return shared >= min(_WORDS, len(memory)) and shared >= _SHARE * len(memory) > 0
