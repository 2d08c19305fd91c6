"""Decides which memory a turn merges into because it says the same. Pure."""

import re
from collections.abc import Sequence

from foremind.domain.memory import SimilarMemory
from foremind.domain.turn import Speaker
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.tokenization import MAX_CHARS, names_in, terms_of

_MAX_ADDED_TERMS = 1  # a text with more terms than this beyond the memory's adds information
_MIN_QUOTE_CHARS = 8  # shorter memories occur in many sentences by chance
# When repeated, a memory's significance moves this share of the way to 1.
_REINFORCEMENT = 0.15

_NEGATION = re.compile(
    r"\b(?:not|no|never|nobody|nothing|without|hate|dislike|forget|(?:do|did|does|is|are|was|ca|wo)nt)\b|n[’']t\b",
    re.I,
)
_NUMBER = re.compile(
    r"\d+|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b", re.I
)
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|this|again|january|february|march|april|"
    r"may|june|july|august|september|october|november|december|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    re.I,
)


def find_same(
    text: str,
    speaker: Speaker,
    similar: Sequence[SimilarMemory],
    repetition: float | None,
    fallback: str = ENGLISH,
) -> SimilarMemory | None:
    """Return the speaker's memory that says what `text` says, if any of `similar` does."""
    own = (memory for memory in similar if memory.speaker == speaker)
    return next(
        (memory for memory in own if says_the_same(text, memory, repetition, fallback)), None
    )


def only_quotes(text: str, similar: Sequence[SimilarMemory]) -> bool:
    """Return whether `text` contains a memory verbatim: a reply that reminds adds nothing new.

    Otherwise every memory that a reply mentions would be stored once more.
    """
    folded = text.casefold()
    return any(
        len(memory.content) >= _MIN_QUOTE_CHARS and memory.content.strip().casefold() in folded
        for memory in similar
    )


def says_the_same(
    text: str, memory: SimilarMemory, repetition: float | None, fallback: str = ENGLISH
) -> bool:
    """Return whether `text` only repeats a memory.

    The meaning must be similar, and nothing that an embedding is blind to may differ: negation,
    numbers, names, one word in the same sentence ("my sister is a vet", "my brother is a vet",
    cosine 0.84). Events never count as repeated: what happened "yesterday" happened twice. In other
    languages than English, and with a model whose cosines have not been measured, every term must
    be the same.

    Args:
        repetition: the cosine from which texts may say the same; None if it is not known. With
            all-MiniLM-L6-v2 "I love rain" and "rain is my favourite" have cosine 0.85, "I love
            rain" and "I love snow" 0.63.
        fallback: the language where it is unsure.
    """
    if max(len(text), len(memory.content)) > MAX_CHARS:
        return False
    if memory.cosine < (repetition or 0.0) or _TIME.search(text) or _TIME.search(memory.content):
        return False
    if any(said.rstrip().endswith(QUESTION_MARKS) for said in (text, memory.content)):
        return False
    languages = {language_of(text, fallback), language_of(memory.content, fallback)}
    if repetition is None or languages != {ENGLISH}:
        return sorted(terms_of(text, fallback)) == sorted(terms_of(memory.content, fallback))
    for extract in (_NUMBER.findall, names_in):
        if _folded(extract(text)) != _folded(extract(memory.content)):
            return False
    if bool(_NEGATION.search(text)) != bool(_NEGATION.search(memory.content)):
        return False
    if _one_word_differs(text, memory.content):
        return False
    return len(terms_of(text)) <= len(terms_of(memory.content)) + _MAX_ADDED_TERMS


def reinforced_significance(former: float, repeated: float) -> float:
    """Return the significance of a memory that was said again."""
    highest = max(former, repeated)
    return round(highest + (1 - highest) * _REINFORCEMENT, 4)


def _one_word_differs(text: str, other: str) -> bool:
    pairs = list(zip(text.casefold().split(), other.casefold().split(), strict=False))
    same_length = len(text.split()) == len(other.split())
    differing = sum(first.strip(".!") != second.strip(".!") for first, second in pairs)
    return same_length and differing == 1


def _folded(words: Sequence[str]) -> set[str]:
    return {word.casefold() for word in words}
