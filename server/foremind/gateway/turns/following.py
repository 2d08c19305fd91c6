"""Following the answer that another connection gives, of this process or of another one."""

import asyncio

from foremind.domain.errors import ForemindError
from foremind.domain.turn import AnswerElsewhere, StoredTurn
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.deduplication import MessageClaim
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.acceptance import Acceptance
from foremind.gateway.turns.message_claims import MessageClaims
from foremind.gateway.turns.request_queue import RequestQueue
from foremind.gateway.turns.requests import IncomingMessage
from foremind.gateway.turns.session_caches import SessionCaches
from foremind.gateway.turns.session_callbacks import SessionCallbacks
from foremind.llm.prompt.layout import PastTurn

_POLL_S = 0.5  # between two checks whether another process has answered


class Following:
    """Waits for the replies to messages of one session that others answer, and reports them."""

    def __init__(
        self,
        conversation: LiveConversation,
        queue: RequestQueue,
        claims: MessageClaims,
        caches: SessionCaches,
        acceptance: Acceptance,
        services: SessionServices,
        callbacks: SessionCallbacks,
    ) -> None:
        self._conversation = conversation
        self._queue = queue
        self._claims = claims
        self._caches = caches
        self._acceptance = acceptance
        self._services = services
        self._callbacks = callbacks

    async def connection(self, incoming: IncomingMessage, first: MessageClaim | None) -> bool:
        """Report on a message that another connection is answering.

        Args:
            first: the claim of that connection.

        Returns:
            Whether it was stored there; otherwise it is to be answered here.
        """
        while first is not None:
            await asyncio.wait({first.stored})
            turn_id = first.stored.result()
            if turn_id is not None:
                await self._await_connection(incoming, turn_id, first)
                return True
            first = self._claims.find(incoming.message.id)
        self._queue.unfollow(incoming.key)
        return False

    async def _await_connection(
        self, incoming: IncomingMessage, turn_id: int, first: MessageClaim
    ) -> None:
        self._take_over(incoming, turn_id, kept=first.kept)
        await asyncio.wait({first.replied})
        reply_turn = first.replied.result()
        if reply_turn is not None:
            self._caches.answered.add(incoming.message, turn_id, kept=first.kept)
            await self._callbacks.read_reply(reply_turn)

    def leave(self, incoming: IncomingMessage, stored: StoredTurn) -> None:
        """Acknowledge a stored message that was or is being answered elsewhere."""
        if stored.answered:
            self._caches.answered.add(incoming.message, stored.id, kept=stored.kept)
            self._acknowledge(incoming, stored.id, kept=stored.kept)
        else:
            self._queue.follow(incoming.key)  # later messages need not wait for it
            self._take_over(incoming, stored.id, kept=stored.kept)

    def _take_over(self, incoming: IncomingMessage, turn_id: int, *, kept: bool) -> None:
        """Add a message that is being answered elsewhere, and acknowledge it."""
        message = incoming.message
        turn = PastTurn("user", message.text, turn_id, message.id)
        self._conversation.history.add_remote(turn)
        self._acknowledge(incoming, turn_id, kept=kept)

    def _acknowledge(self, incoming: IncomingMessage, turn_id: int, *, kept: bool) -> None:
        self._acceptance.acknowledge(incoming.message.id, incoming.arrived, turn_id, kept=kept)

    async def process(
        self, incoming: IncomingMessage, claim: MessageClaim
    ) -> tuple[int | None, bool]:
        """Wait for the reply of another process.

        Args:
            claim: that of this connection, which stored the message or found it stored.

        Returns:
            The turn id of the reply, None if there is none; and whether to answer here instead,
            because that process has died and nothing else was said since. A reply that failed
            there is tried again when the message is sent again.
        """
        clock, turns = self._services.runtime.clock, self._services.stores.turns
        relationship_id = self._conversation.opened.relationship_id
        turn_id = claim.stored.result()
        assert turn_id is not None
        answer = AnswerElsewhere(None, under_way=True, abandoned=False)
        try:
            while answer.under_way and answer.reply is None:  # at most for the lease of the turn
                await clock.sleep(_POLL_S)
                answer = await turns.find_answer(relationship_id, turn_id, clock.now())
        except ForemindError:
            self._caches.drop_history()  # whether it was answered is read with the next message
            return None, False
        if answer.reply is not None:
            self._caches.answered.add(incoming.message, turn_id, kept=claim.kept)
            await self._callbacks.read_reply(answer.reply)
            return answer.reply, False
        return None, answer.abandoned and self._queue.is_newest(incoming.key)
