"""What happens at Enter: store the message, answer it, store the reply, in order of arrival."""

from uuid import uuid4

from foremind.domain.policy import Policy
from foremind.domain.prefetch import Trigger
from foremind.domain.turn import Speaker
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.protocol.client_messages import (
    MessageEdit,
    MessageSend,
    ResponseChoose,
    Revision,
)
from foremind.gateway.reply_generation import ReplyGeneration
from foremind.gateway.session_lore import SessionLore
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.acceptance import Acceptance
from foremind.gateway.turns.answering import Answering
from foremind.gateway.turns.following import Following
from foremind.gateway.turns.last_exchange import SessionExchange
from foremind.gateway.turns.message_claims import MessageClaims
from foremind.gateway.turns.message_commit import MessageCommit
from foremind.gateway.turns.reply_delivery import ReplyDelivery
from foremind.gateway.turns.reply_freshness import ReplyFreshness
from foremind.gateway.turns.reply_start import ReplyStart
from foremind.gateway.turns.request_queue import RequestQueue
from foremind.gateway.turns.requests import IncomingMessage, RequestKey
from foremind.gateway.turns.revisions import SessionRevisions
from foremind.gateway.turns.session_caches import SessionCaches
from foremind.gateway.turns.session_callbacks import SessionCallbacks
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import Prefetcher


class TurnPipeline:
    """Answers the messages of one session, one at a time, each of them once."""

    def __init__(
        self,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        lore: SessionLore,
        prefetcher: Prefetcher,
        services: SessionServices,
        callbacks: SessionCallbacks,
    ) -> None:
        clock, principal = services.runtime.clock, callbacks.principal
        replies = ReplyGeneration(conversation, services, session_policy, lore, callbacks.emit)
        exchange = SessionExchange(
            conversation, services, session_policy, principal, callbacks.origin
        )
        self._conversation = conversation
        self._replies = replies
        self._prefetcher = prefetcher
        self._queue = queue = RequestQueue()
        self._claims = claims = MessageClaims(conversation, services)
        #: What is cached of the conversation.
        self.caches = caches = SessionCaches(conversation, replies)
        self._acceptance = acceptance = Acceptance(services, callbacks)
        self._answering = Answering(
            queue,
            claims,
            MessageCommit(
                conversation,
                ReplyStart(conversation, session_policy, lore, prefetcher, replies, clock),
                ReplyFreshness(conversation, session_policy, services, caches),
                caches,
                session_policy,
                services,
                principal,
            ),
            acceptance,
            Following(conversation, queue, claims, caches, acceptance, services, callbacks),
            ReplyDelivery(conversation, replies, queue, caches, services, callbacks),
            callbacks,
        )
        self._revisions = SessionRevisions(
            conversation, exchange, self._answering, queue, claims, caches, callbacks
        )

    @property
    def busy(self) -> bool:
        """True while a message is unanswered."""
        return self._queue.busy

    def _acknowledge_again(self, message_id: str, arrived: float) -> None:
        """Acknowledge a message in progress; if that was not done yet, it follows by itself."""
        claim = self._claims.find(message_id)
        turn_id = claim.stored.result() if claim is not None and claim.accepted else None
        if claim is not None and turn_id is not None:
            self._acceptance.acknowledge(message_id, arrived, turn_id, kept=claim.kept)

    def send(self, message: MessageSend, policy: Policy, arrived: float) -> None:
        """Answer a message that arrived at monotonic time `arrived`; returns at once.

        Args:
            policy: the settings in force for this turn.

        Raises:
            Overloaded: too many messages of this session are unanswered.
            Conflict: another message has the same id.
        """
        key: RequestKey = ("message", message.id)
        incoming = IncomingMessage(message, policy, arrived, key)
        answered = self.caches.answered.find(message)
        if answered is not None:
            self._acceptance.acknowledge(message.id, arrived, answered.turn_id, kept=answered.kept)
            return
        first = self._claims.find_same(message)
        if self._queue.contains(key, message.text):
            self._acknowledge_again(message.id, arrived)
            return
        self._queue.check_room("id")
        self.stop_reply()
        if first is None:
            self._prefetcher.enter(message.text)
            self._replies.speculation.on_enter()
            claim = self._claims.claim(message)
            work = self._answering.answer(incoming, claim)
            self._queue.start(key, work, "answer", message.text)
        else:
            self._prefetcher.clear()
            self._queue.follow(key)
            work = self._answering.follow(incoming, first)
            self._queue.start(key, work, "follow", message.text)

    def revise(self, revision: Revision, policy: Policy, arrived: float) -> None:
        """Answer the last message anew, or another in its place; returns at once.

        A reply in progress is stopped, as by `send`.

        Args:
            policy: the settings in force for this turn.

        Raises:
            Overloaded: too many messages of this session are unanswered.
            Conflict: another message has the id of the edited one.
        """
        text = revision.text if isinstance(revision, MessageEdit) else None
        key: RequestKey = ("regenerate" if text is None else "message", revision.id)
        if self._queue.contains(key, text):
            answered_id = revision.message_id if text is None else revision.id
            self._acknowledge_again(answered_id, arrived)
            return
        self._queue.check_room("id")
        self.stop_reply()
        self._prefetcher.clear()
        self.caches.drop_speculation()
        work = self._revisions.revise(revision, policy, arrived, key)
        self._queue.start(key, work, "revise", text)

    def choose(self, choice: ResponseChoose, policy: Policy) -> None:
        """Let another reply to the last message stand; returns at once.

        A reply in progress is stopped, and is one of those that can be chosen.

        Raises:
            Overloaded: too many messages of this session are unanswered.
        """
        self._queue.check_room("message_id")
        self.stop_reply()
        self.caches.drop_speculation()
        work = self._revisions.choose(choice, policy)
        self._queue.start(("choose", uuid4().hex), work, "choose")

    def on_draft(self, text: str) -> None:
        """The draft is now `text`; an empty draft was discarded."""
        if not self.busy:
            self._replies.speculation.on_draft(text)

    def on_settled(self, draft: str) -> None:
        """The draft has settled: the model may read it before its context is ready."""
        if not self.busy:
            self._replies.speculation.on_settled(draft)

    def on_context(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        """A context is ready for the draft: the model may work speculatively."""
        if not self.busy and self._conversation.loaded:
            self._replies.speculation.on_context(draft, context, trigger)

    def on_opened(self) -> None:
        """A client is connected, and history and state are loaded."""
        if not self.busy:
            self._replies.next_prompt.on_conversation()

    def on_layers(self) -> None:
        """The relationship's layers changed."""
        if not self.busy:
            self._replies.next_prompt.on_layers()

    def release_history(self) -> None:
        """Free memory while nobody is connected: unload what can be loaded again."""
        if not self.busy:
            self._conversation.history.drop()

    def lacks(self, message_id: str, speaker: Speaker) -> bool:
        """Return whether a turn stored elsewhere, or the reply to it, is missing here."""
        if self._queue.contains(("message", message_id)):
            return False
        return self._conversation.history.lacks(message_id, speaker)

    def cancel(self, response_id: str) -> bool:
        """Stop a reply; return False if it is not the one in progress."""
        return self._replies.cancel(response_id)

    def stop_reply(self) -> None:
        """Stop the reply in progress."""
        self._replies.stop()

    async def settle(self) -> None:
        """Wait until every message is answered, here or elsewhere, or has failed."""
        await self._queue.settle()

    async def close(self) -> None:
        """Stop generating, and wait until replies are stored as far as they were sent."""
        await self._replies.next_prompt.close()
        await self._replies.speculation.close()
        await self._queue.close(self.stop_reply)
