"""The last exchange of a session: a message, and the replies that were made to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from foremind.domain.errors import InvalidMessage
from foremind.domain.turn import Status

#: How many replies to one message can be chosen among, with the one that stands. Of more, the
#: earliest go first. A player who wants none of twenty wants another message.
MAX_REPLIES = 20


@dataclass(frozen=True, slots=True)
class MadeReply:
    """A reply that was made to a message; `position` rises with each one made to it."""

    position: int
    status: Status
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LastExchange:
    """The last message of a session, and the replies to it.

    Attributes:
        turn_id, message_id, text, kept: of the message, as in `StoredTurn`.
        regenerated_by: the client's id of the last request for another reply, if there was any.
        reply_id, reply: the turn of the reply that stands, and that reply; None if none does.
        others: the replies that do not stand, the earliest first.
    """

    turn_id: int
    message_id: str
    text: str
    kept: bool
    regenerated_by: str | None
    reply_id: int | None
    reply: MadeReply | None
    others: Sequence[MadeReply]

    @property
    def replies(self) -> list[MadeReply]:
        """All replies that the player can choose among, the earliest first."""
        standing = [] if self.reply is None else [self.reply]
        return sorted([*self.others, *standing], key=lambda reply: reply.position)

    def chosen(self, index: int) -> MadeReply:
        """Return the reply of an index, from 0.

        Raises:
            InvalidMessage: there is none.
        """
        replies = self.replies
        if not replies:
            raise InvalidMessage("index: there is no reply to choose", param="index")
        if not 0 <= index < len(replies):
            raise InvalidMessage(
                f"index: expected 0 to {len(replies) - 1}, got {index}", param="index"
            )
        return replies[index]


def require_last(exchange: LastExchange | None, message_id: str) -> LastExchange:
    """Return an exchange if its message is the one that is named.

    Raises:
        InvalidMessage: it is not, or nothing was said in the session.
    """
    if exchange is None:
        raise InvalidMessage(
            "message_id: nothing was said in this session yet",
            param="message_id",
            code="nothing_said",
        )
    if exchange.message_id != message_id:
        raise InvalidMessage(
            "message_id: expected the id of the last message of this session",
            param="message_id",
            code="not_last_message",
        )
    return exchange
