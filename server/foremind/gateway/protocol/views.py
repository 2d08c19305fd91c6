"""Wire representations of turns and memories. Pure."""

from datetime import datetime

from foremind.domain.memory import Recalled
from foremind.domain.turn import Turn
from foremind.gateway.protocol.messages import MemoryView, TurnView
from foremind.text.relative_time import age_in_words


def memory_view(memory: Recalled, now: datetime) -> MemoryView:
    """Return a recalled memory with its age as of `now`, in the player's time zone."""
    return MemoryView(
        id=str(memory.id),
        content=memory.content,
        score=memory.score,
        significance=memory.significance,
        created_at=memory.created_at,
        speaker=memory.speaker,
        memory_type=memory.memory_type,
        age=age_in_words(memory.created_at, now),
        relevance=memory.relevance,
        superseded=memory.superseded,
    )


def turn_view(turn: Turn) -> TurnView:
    """Return a stored turn."""
    return TurnView(
        turn_id=str(turn.id),
        speaker=turn.speaker,
        message_id=turn.message_id,
        status=turn.status,
        text=turn.content,
        created_at=turn.created_at,
    )
