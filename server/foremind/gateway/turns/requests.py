"""What a client asks of a session that takes time."""

from dataclasses import dataclass
from typing import Literal

from foremind.domain.errors import Conflict
from foremind.domain.policy import Policy
from foremind.gateway.protocol.client_messages import MessageSend
from foremind.storage.turn_store import ANOTHER_TEXT

#: What a client waits for: the answer to a message that is sent or edited, another reply, or its
#: choice; with the client's id of that, each kind having ids of its own.
RequestKey = tuple[Literal["message", "regenerate", "choose"], str]


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message that is to be answered.

    Attributes:
        policy: the settings in force for its turn when it arrived.
        arrived: the monotonic time at which it did.
        key: the request that it is answered for.
    """

    message: MessageSend
    policy: Policy
    arrived: float
    key: RequestKey


def check_same_text(text_hash: int, text: str) -> None:
    """Check that a message sent again has the same text.

    Raises:
        Conflict: it has not.
    """
    if text_hash != hash(text):
        raise Conflict(ANOTHER_TEXT, param="id")
