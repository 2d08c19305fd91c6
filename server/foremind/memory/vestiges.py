"""Words that are held for speed alone, in no relationship's name."""

from foremind.memory.dates import forget_expressions
from foremind.memory.terms import forget_words
from foremind.storage.companions import forget_settings
from foremind.storage.forgetting import MemoriesForgotten
from foremind.storage.notifications import Announcement
from foremind.storage.packed_words import forget_hashes


def heard(announcement: Announcement) -> None:
    """Drop them all where something was forgotten: what is still needed is made again."""
    if isinstance(announcement, MemoriesForgotten):
        forget_words()
        forget_hashes()
        forget_expressions()
        forget_settings()
