"""How the turns of a session report to it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from foremind.auth.principal import Principal
from foremind.domain.errors import ForemindError
from foremind.gateway.protocol.decoding import DecodingProblem
from foremind.gateway.protocol.server_events import Event
from foremind.gateway.reply_generation import RunningTurn
from foremind.typeahead.prefetcher import ContextAtEnter


@dataclass(frozen=True, slots=True)
class SessionCallbacks:
    """How the turns of a session report to it.

    Attributes:
        emit: sends an event to the client.
        fail: sends an error about a message.
        on_context: called with a context at Enter, of which the client may not know yet.
        on_reply: called with each reply that is about to be sent.
        read_reply: loads and reports a reply that another connection received.
        origin: by which other processes know the window.
        principal: returns whose session it is, and what they may do.
    """

    emit: Callable[[Event], None]
    fail: Callable[[ForemindError, DecodingProblem], None]
    on_context: Callable[[str, ContextAtEnter], None]
    on_reply: Callable[[RunningTurn], None]
    read_reply: Callable[[int], Awaitable[None]]
    origin: str
    principal: Callable[[], Principal]
