"""How much of a draft's prompt a model prefills before Enter. Pure.

A chat template puts a few tokens behind a message, so only a model that has read the very message
that is sent has nothing left to read. Therefore each draft that settles, as most do at the end of a
word, is read to its end.
"""

from typing import Literal

from foremind.domain.prefetch import Trigger
from foremind.text.tokenization import unspaced_chars

#: The prompt up to the draft and with it, or up to the last message, which does not depend on it.
PrefillPart = Literal["all", "beginning"]

MAX_PREFILLS = 64  #: per message
MAX_SETTLED_PREFILLS = 48  #: of these, before any pause: a message of about as many words
# In a draft that is settled but no sentence: fewer recall something else than more.
_MIN_WORDS = 3
_MIN_UNSPACED_CHARS = 6  # likewise, where no spaces separate words: "昨日、川で魚を"
_SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！", "؟", "۔")


def part_to_prefill(draft: str, trigger: Trigger, prefills: int) -> PrefillPart | None:
    """Return the part of the prompt to prefill for a draft, None if nothing more.

    Args:
        trigger: why its context was prepared.
        prefills: how many were begun for this message before.
    """
    if prefills >= (MAX_PREFILLS if trigger == "pause" else MAX_SETTLED_PREFILLS):
        return None
    if trigger == "pause" or ends_sentence(draft) or _has_several_words(draft):
        return "all"
    return None if prefills else "beginning"


def _has_several_words(draft: str) -> bool:
    return len(draft.split()) >= _MIN_WORDS or unspaced_chars(draft) >= _MIN_UNSPACED_CHARS


def ends_sentence(draft: str) -> bool:
    """Return whether a draft ends with a sentence's end."""
    return draft.rstrip().endswith(_SENTENCE_ENDS)
