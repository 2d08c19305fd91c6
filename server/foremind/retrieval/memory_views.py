"""Recalled memories as clients see them. Pure."""

from datetime import datetime

from foremind.domain.memory import MemoryView, Recalled
from foremind.text.time_ago import age_in_words


def memory_view(memory: Recalled, now: datetime, language: str) -> MemoryView:
    """Return a recalled memory with its age as of `now`, in the player's time zone and language."""
    return MemoryView(
        id=str(memory.id),
        content=memory.content,
        score=memory.score,
        significance=memory.significance,
        created_at=memory.created_at,
        speaker=memory.speaker,
        memory_type=memory.memory_type,
        age=age_in_words(memory.created_at, now, language),
        relevance=memory.relevance,
        superseded=memory.superseded,
    )
