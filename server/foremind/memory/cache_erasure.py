"""Process-wide caches of texts, words and settings, which belong to no relationship."""

from foremind.domain.announcements import Announcement, MemoriesForgotten
from foremind.memory.scoring import clear_score_cache
from foremind.storage.companion_store import clear_settings_cache
from foremind.text.languages.detection import clear_language_cache
from foremind.text.statements.extraction import clear_statement_cache
from foremind.text.tokenization import clear_hash_cache, clear_stem_cache, clear_term_cache


def on_announcement(announcement: Announcement) -> None:
    """Clear these caches after an erasure; entries still needed are computed again."""
    if isinstance(announcement, MemoriesForgotten):
        clear_language_cache()
        clear_statement_cache()
        clear_score_cache()
        clear_term_cache()
        clear_stem_cache()
        clear_hash_cache()
        clear_settings_cache()
