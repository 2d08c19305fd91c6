"""What a client is told of a session when it opens: the greeting, the newest turns, the state."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from foremind.gateway.conversation import LiveConversation
from foremind.gateway.event_builders import session_opened
from foremind.gateway.flow_control import limits_of
from foremind.gateway.protocol.client_messages import MAX_FRAME_BYTES
from foremind.gateway.protocol.server_events import SessionOpened, TurnView, encode
from foremind.gateway.protocol.views import turn_view
from foremind.gateway.session_client import SessionClient
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.character import greeting_of

_RECENT_TURNS = 30  # sent to the client when a session opens
_SEQ_BYTES = 20  # of the event's number, which is set later


class OpenedSessionView:
    """Tells a client of one session what that is about."""

    def __init__(
        self,
        session_id: str,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        client: SessionClient,
        services: SessionServices,
    ) -> None:
        self._session_id = session_id
        self._conversation = conversation
        self._session_policy = session_policy
        self._client = client
        self._services = services

    async def read_recent_turns(self) -> list[TurnView]:
        """Load history and state, and return the newest turns for the client.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        relationship_id = self._conversation.opened.relationship_id
        await self._conversation.read_history()
        turns = await self._services.stores.turns.recent_turns(relationship_id, _RECENT_TURNS)
        await self._conversation.state.read()
        return [turn_view(turn) for turn in turns]

    def event(
        self, turns: list[TurnView], warnings: Sequence[str], *, resumed: bool = False
    ) -> SessionOpened:
        """Return `session.opened`, with as much of the greeting and newest turns as fits a frame.

        Args:
            warnings: about what the client stated and was not understood.
        """
        companion, principal = self._session_policy.companion, self._client.principal
        opened = self._conversation.opened
        greeting = greeting_of(
            companion, self._conversation.greeting, principal.name, str(opened.session_id)
        )
        event = session_opened(
            self._session_id,
            opened.relationship_id,
            principal,
            companion,
            greeting,
            self._session_policy.policy,
            self._session_policy.consent,
            self._session_policy.model,
            limits_of(self._services.runtime.settings),
            self._conversation.state.value,
            warnings,
            resumed=resumed,
        )
        too_much = len(encode(event)) + _SEQ_BYTES - MAX_FRAME_BYTES
        if too_much > 0:  # a card's greeting may be that long; JSON has no byte of it less
            shown = greeting.encode()[: max(0, len(greeting.encode()) - too_much)]
            event.companion = replace(event.companion, greeting=shown.decode(errors="ignore"))
        event.turns = newest_fitting(turns, MAX_FRAME_BYTES - len(encode(event)))
        return event


def newest_fitting(turns: Sequence[TurnView], room_bytes: int) -> list[TurnView]:
    """Return the newest turns that fit a number of bytes as JSON, oldest first. Pure."""
    fitting: list[TurnView] = []
    for turn in reversed(turns):
        room_bytes -= len(msgspec.json.encode(turn)) + 1  # and a comma
        if room_bytes < _SEQ_BYTES:
            break
        fitting.append(turn)
    return fitting[::-1]
