"""Words that are held for speed alone, in no relationship's name."""

from foremind.domain.announcements import MemoriesForgotten
from foremind.storage.companion_store import forget_settings
from foremind.storage.notifications import Announcement
from foremind.text.packed_terms import forget_hashes
from foremind.text.time_expressions import forget_expressions
from foremind.text.tokenization import forget_words


def heard(announcement: Announcement) -> None:
    """Drop them all where something was forgotten: what is still needed is made again."""
    if isinstance(announcement, MemoriesForgotten):
        forget_words()
        forget_hashes()
        forget_expressions()
        forget_settings()
