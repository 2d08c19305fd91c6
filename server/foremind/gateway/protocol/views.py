"""Wire representations of turns. Pure."""

from foremind.domain.turn import Turn
from foremind.gateway.protocol.server_events import TurnView


def turn_view(turn: Turn) -> TurnView:
    """Return a stored turn."""
    return TurnView(
        turn_id=str(turn.id),
        speaker=turn.speaker,
        message_id=turn.message_id,
        status=turn.status,
        text=turn.content,
        created_at=turn.created_at,
        reply_to=turn.answers,
        index=turn.index,
        count=turn.count,
    )
