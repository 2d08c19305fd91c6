"""The beginning of a reply at Enter: its context, the conversation before it, and the model."""

from dataclasses import dataclass

from foremind.domain.clock import Clock
from foremind.domain.companion import Companion
from foremind.domain.policy import Policy
from foremind.domain.prefetch import SpeculativeWork
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.gated_reply import GatedReply
from foremind.gateway.protocol.client_messages import MessageSend
from foremind.gateway.reply_generation import ReplyGeneration
from foremind.gateway.session_lore import SessionLore
from foremind.gateway.session_policy import SessionPolicy
from foremind.typeahead.prefetcher import ContextAtEnter, Prefetcher


@dataclass(frozen=True, slots=True)
class StartedReply:
    """A reply behind its gate, and what it was made of.

    Attributes:
        companion: with the settings that were in force before anything was gathered.
        work: what was done for it before Enter.
        ready_at: the monotonic time at which the model was asked.
    """

    reply: GatedReply
    companion: Companion
    at_enter: ContextAtEnter
    work: SpeculativeWork
    ready_at: float


class ReplyStart:
    """Begins the replies of one session."""

    def __init__(
        self,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        lore: SessionLore,
        prefetcher: Prefetcher,
        replies: ReplyGeneration,
        clock: Clock,
    ) -> None:
        self._conversation = conversation
        self._session_policy = session_policy
        self._lore = lore
        self._prefetcher = prefetcher
        self._replies = replies
        self._clock = clock

    async def start(self, message: MessageSend, policy: Policy) -> StartedReply:
        """Fetch the context of a message, and begin the reply behind its gate.

        Raises:
            ForemindError: the context or the conversation could not be read.
        """
        companion = self._session_policy.companion
        at_enter = await self._prefetcher.context_at_enter(
            message.text, lambda: self._lore.retrieval_scope(policy, message.id)
        )
        await self._conversation.load(message.id)
        reply, work = self._replies.begin(message, at_enter, policy)
        return StartedReply(reply, companion, at_enter, work, self._clock.monotonic())

    def discard(self, started: StartedReply) -> None:
        """Stop a reply that nobody will receive."""
        self._replies.discard(started.reply)
