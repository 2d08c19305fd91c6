"""The claims of one session to messages: a message is answered by whoever has claimed it."""

import structlog

from foremind.domain.errors import ForemindError
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.deduplication import MessageClaim
from foremind.gateway.protocol.client_messages import MessageSend
from foremind.gateway.session_services import SessionServices

_log = structlog.get_logger("foremind.gateway")


class MessageClaims:
    """Claims the messages of one session, in this process and, once stored, among all."""

    def __init__(self, conversation: LiveConversation, services: SessionServices) -> None:
        self._conversation = conversation
        self._deduplicator = services.deduplicator
        self._turns = services.stores.turns
        self._background_worker = services.after_reply.background_worker

    def find(self, message_id: str) -> MessageClaim | None:
        """Return the claim of the connection that is answering a message, None if none is."""
        return self._deduplicator.find(self._conversation.opened.user_id, message_id)

    def find_same(self, message: MessageSend) -> MessageClaim | None:
        """Do as `find`.

        Raises:
            Conflict: that connection is answering another message with this id.
        """
        claim = self.find(message.id)
        if claim is not None:
            claim.check_same(self._conversation.opened.relationship_id, message.text)
        return claim

    def claim(self, message: MessageSend, *, stored_before: bool = False) -> MessageClaim:
        """Register that this connection answers a message.

        Args:
            stored_before: whether it was stored a moment before, in place of another one.
        """
        opened = self._conversation.opened
        claim = self._deduplicator.claim(
            opened.user_id, message.id, opened.relationship_id, message.text
        )
        claim.stored_before = stored_before
        return claim

    def release(self, claim: MessageClaim, reply_turn: int | None) -> None:
        """Release a claim unless that is done, and tell those who wait for it of the reply."""
        self._deduplicator.release(claim, reply_turn)

    async def release_stored(self, message: MessageSend) -> None:
        """Let another process answer a stored message that was not answered here.

        What it says is read in the background as if it were answered.
        """
        opened = self._conversation.opened
        try:
            await self._turns.release(opened, message.id)
            await self._background_worker.schedule_now(opened.relationship_id)
        except ForemindError as error:  # it may once the lease has expired
            _log.warning("turn.not_released", reason=error.code)
