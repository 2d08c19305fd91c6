"""Storing a message, while its context is fetched and the model begins the reply."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from foremind.auth.principal import Principal
from foremind.domain.policy import Policy
from foremind.domain.turn import StoredTurn
from foremind.gateway.chat_history import split_sentences
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.deduplication import MessageClaim
from foremind.gateway.protocol.client_messages import MessageSend
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.reply_freshness import ReplyFreshness
from foremind.gateway.turns.reply_start import ReplyStart, StartedReply
from foremind.gateway.turns.requests import IncomingMessage
from foremind.gateway.turns.session_caches import SessionCaches
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.supervision import begin


@dataclass(frozen=True, slots=True)
class CommittedMessage:
    """A stored message.

    Attributes:
        started: its reply, behind its gate; None if another connection has answered it or does.
        policy: the settings in force for its turn.
        erasures: the number of erasures known before anything was gathered for the reply.
    """

    stored: StoredTurn
    started: StartedReply | None
    policy: Policy
    erasures: int


class MessageCommit:
    """Stores the messages of one session, and begins the replies to them.

    Args:
        principal: returns whose session it is.
    """

    def __init__(
        self,
        conversation: LiveConversation,
        reply_start: ReplyStart,
        freshness: ReplyFreshness,
        caches: SessionCaches,
        session_policy: SessionPolicy,
        services: SessionServices,
        principal: Callable[[], Principal],
    ) -> None:
        self._conversation = conversation
        self._reply_start = reply_start
        self._freshness = freshness
        self._caches = caches
        self._services = services
        self._session_policy = session_policy
        self._principal = principal

    async def commit(self, incoming: IncomingMessage, claim: MessageClaim) -> CommittedMessage:
        """Store a message while its context is fetched and the model begins the reply.

        Raises:
            ForemindError: it is not stored, or could not be answered.
        """
        message = incoming.message
        await self._freshness.ensure()
        await self._caches.roll_over_if_idle(incoming.policy)
        policy = self._policy_of(message)  # of this moment, as what the reply is made of
        self._conversation.touch()
        erasures = self._conversation.erasures  # noted before anything is gathered for the reply
        commit = begin(
            self._services.stores.turns.commit_message(
                self._conversation.opened,
                message.id,
                message.text,
                self._services.runtime.clock.now(),
                kept=message.remember,
                needs_consent=policy.consent != "assumed",
                token=await self._services.authority.token_identity(self._principal()),
            ),
            "commit-message",
        )
        started: StartedReply | None = None
        try:
            started = await self._reply_start.start(message, policy)
            stored = await commit
            if claim.stored_before:
                stored = replace(stored, duplicate=False)
            claim.kept = stored.kept
            claim.stored.set_result(stored.id)
            if stored.answered or stored.elsewhere:
                self._reply_start.discard(started)
                return CommittedMessage(stored, None, policy, erasures)
            if stored.in_force is not None and not await self._freshness.reflects(
                stored.in_force, started.companion, started.at_enter.context
            ):
                # Something changed, perhaps in another process, that no announcement has told yet.
                self._reply_start.discard(started)
                erasures = self._conversation.erasures
                policy = self._policy_of(message)
                started = await self._reply_start.start(message, policy)
            said = PastTurn("user", message.text, stored.id, message.id)
            await split_sentences(said)
        except BaseException:
            # A message that is not stored must not be answered, nor one whose reply may reflect
            # less than was in force. The commit is not cancelled: if it succeeds after all, the
            # client's retry finds the message stored.
            if started is not None:
                self._reply_start.discard(started)
            await asyncio.gather(commit, return_exceptions=True)
            raise
        self._conversation.add_turn(said)
        return CommittedMessage(stored, started, policy, erasures)

    def _policy_of(self, message: MessageSend) -> Policy:
        return self._session_policy.policy_of(message, player=not self._principal().admin)
