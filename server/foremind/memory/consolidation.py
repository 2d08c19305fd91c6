"""Is it the same again? Decides which memory a turn merges into. Pure."""

import re
from collections.abc import Sequence

from foremind.domain.memory import SimilarMemory
from foremind.domain.turn import Speaker
from foremind.text.tokenization import MOST_CHARS, names_in, terms_of

# With all-MiniLM-L6-v2 "I love rain" and "rain is my favourite" have cosine 0.85, "I love rain" and
# "I love snow" 0.63, "I like coffee" and "I like tea" 0.72; below this, too much differs.
SAME = 0.82
_MORE_WORDS = 1  # what says more than this beyond the older text is news
_QUOTABLE_CHARS = 8  # shorter ones stand in many a sentence by chance
# Said again, a memory gets this much nearer to certain.
_GROWTH = 0.15

_NEGATION = re.compile(r"\b(?:not|no|never|nobody|nothing|without|hate|dislike)\b|n[’']t\b", re.I)
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
    text: str, speaker: Speaker, similar: Sequence[SimilarMemory]
) -> SimilarMemory | None:
    """Return the speaker's memory that says what `text` says, if any of `similar` does."""
    own = (each for each in similar if each.speaker == speaker)
    return next((each for each in own if says_the_same(text, each)), None)


def only_quotes(text: str, similar: Sequence[SimilarMemory]) -> bool:
    """Return whether `text` holds a memory word for word: a reply that reminds is no news.

    Otherwise every memory that is spoken of would come back as another one.
    """
    said = text.casefold()
    return any(
        len(each.content) >= _QUOTABLE_CHARS and each.content.strip().casefold() in said
        for each in similar
    )


def says_the_same(text: str, known: SimilarMemory) -> bool:
    """Return whether `text` only repeats a memory.

    The meaning must be near, and nothing that an embedding is blind to may differ: negation,
    numbers, names, one word in the same sentence ("my sister is a vet", "my brother is a vet",
    cosine 0.84). Events are not repeated: what happened "yesterday" happened twice.
    """
    if max(len(text), len(known.content)) > MOST_CHARS:
        return False
    if known.cosine < SAME or _TIME.search(text) or _TIME.search(known.content):
        return False
    if text.rstrip().endswith("?") or known.content.rstrip().endswith("?"):
        return False
    for found_in in (_NUMBER.findall, names_in):
        if _folded(found_in(text)) != _folded(found_in(known.content)):
            return False
    if bool(_NEGATION.search(text)) != bool(_NEGATION.search(known.content)):
        return False
    if _one_word_differs(text, known.content):
        return False
    return len(terms_of(text)) <= len(terms_of(known.content)) + _MORE_WORDS


def grown(known: float, again: float) -> float:
    """Return the significance of a memory that was said again."""
    most = max(known, again)
    return round(most + (1 - most) * _GROWTH, 4)


def _one_word_differs(one: str, other: str) -> bool:
    pairs = list(zip(one.casefold().split(), other.casefold().split(), strict=False))
    alike = len(one.split()) == len(other.split())
    return alike and sum(first.strip(".!") != second.strip(".!") for first, second in pairs) == 1


def _folded(words: Sequence[str]) -> set[str]:
    return {word.casefold() for word in words}
