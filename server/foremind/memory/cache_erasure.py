"""Process-wide caches of words and settings, which belong to no relationship."""

from foremind.domain.announcements import MemoriesForgotten
from foremind.storage.companion_store import forget_settings
from foremind.storage.notifications import Announcement
from foremind.text.packed_terms import forget_hashes
from foremind.text.time_expressions import clear_span_cache
from foremind.text.tokenization import forget_words


def heard(announcement: Announcement) -> None:
    """Clear these caches after an erasure; entries still needed are computed again."""
    if isinstance(announcement, MemoriesForgotten):
        forget_words()
        forget_hashes()
        clear_span_cache()
        forget_settings()
