"""What one session does with the messages of its client."""

from typing import TypeVar

from msgspec.structs import replace

from foremind.domain.errors import InvalidMessage
from foremind.domain.policy import Policy
from foremind.gateway.protocol.client_messages import (
    ClientMessage,
    DraftClear,
    DraftUpdate,
    MessageEdit,
    MessageSend,
    ResponseCancel,
    ResponseChoose,
    ResponseRegenerate,
    Revision,
    SessionOpen,
    SessionUpdate,
)
from foremind.gateway.session_client import SessionClient
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.turns.turn_pipeline import TurnPipeline
from foremind.typeahead.prefetcher import Prefetcher

_Said = TypeVar("_Said", MessageSend, MessageEdit)


class ClientMessageHandler:
    """Handles messages without blocking: drafts before Enter, and what is asked of turns."""

    def __init__(
        self,
        session_policy: SessionPolicy,
        prefetcher: Prefetcher,
        pipeline: TurnPipeline,
        client: SessionClient,
    ) -> None:
        self._session_policy = session_policy
        self._prefetcher = prefetcher
        self._pipeline = pipeline
        self._client = client

    def handle(self, message: ClientMessage, arrived: float) -> None:
        """Handle a message that arrived at monotonic time `arrived`.

        Raises:
            RequestError, TemporaryError: to be sent to the client.
        """
        self._client.active_at = arrived
        match message:
            case DraftUpdate():
                self._prefetcher.update(message.text)
                self._pipeline.on_draft(message.text)
            case DraftClear():
                self.discard_draft()
            case MessageSend():
                message = self._admit(message)
                self._pipeline.send(message, self._policy_of(message), arrived)
            case MessageEdit():
                message = self._admit(message)
                self._pipeline.revise(message, self._policy_of(message), arrived)
            case ResponseRegenerate():
                self._pipeline.revise(message, self._policy_of(message), arrived)
            case ResponseChoose():
                self._pipeline.choose(message, self._session_policy.policy)
            case ResponseCancel():
                if not self._pipeline.cancel(message.response_id):
                    raise InvalidMessage(
                        "response_id: expected the reply in progress", param="response_id"
                    )
            case SessionOpen() | SessionUpdate():
                raise InvalidMessage(
                    "type: this session is open already", param="type", code="already_open"
                )

    def discard_draft(self) -> None:
        """Drop what was typed and not sent."""
        self._prefetcher.clear()
        self._pipeline.on_draft("")

    def _admit(self, message: _Said) -> _Said:
        """Check what the player says, and return it as it may be remembered."""
        if not message.text.strip():
            raise InvalidMessage("text: expected text that is not blank", param="text")
        self._client.own_messages.add(message.id)
        if self._session_policy.consent == "missing":
            message = replace(message, remember=False)
        return message

    def _policy_of(self, message: MessageSend | Revision) -> Policy:
        player = not self._client.principal.admin
        return self._session_policy.policy_of(message, player=player)
