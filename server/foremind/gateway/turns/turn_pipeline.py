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
from foremind.gateway.session_lore import SessionLore
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.answering import Answering, SessionCallbacks
from foremind.gateway.turns.last_exchange import SessionExchange
from foremind.gateway.turns.request_queue import IncomingMessage, RequestKey
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
        self._conversation = conversation
        self._prefetcher = prefetcher
        self._answering = answering = Answering(
            conversation, session_policy, lore, prefetcher, services, callbacks
        )
        self._replies = answering.replies
        self._queue = answering.queue
        self._last_exchange = SessionExchange(
            conversation, session_policy, services, answering, callbacks
        )

    @property
    def busy(self) -> bool:
        """True while a message is unanswered."""
        return self._queue.busy

    def _acknowledge_again(self, message_id: str, arrived: float) -> None:
        """Acknowledge a message in progress; if that was not done yet, it follows by itself."""
        claim = self._answering.find_claim(message_id)
        turn_id = claim.stored.result() if claim is not None and claim.accepted else None
        if claim is not None and turn_id is not None:
            self._answering.acknowledge(message_id, arrived, turn_id, kept=claim.kept)

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
        answered = self._answering.answered.find(message)
        if answered is not None:
            self._answering.acknowledge(message.id, arrived, answered.turn_id, kept=answered.kept)
            return
        first = self._answering.find_same(message)
        if self._queue.contains(key, message.text):
            self._acknowledge_again(message.id, arrived)
            return
        self._queue.check_room("id")
        self.stop_reply()
        if first is None:
            self._prefetcher.enter(message.text)
            self._replies.speculation.on_enter()
            claim = self._answering.claim(message)
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
        self._replies.drop_speculation()
        work = self._last_exchange.revise(revision, policy, arrived, key)
        self._queue.start(key, work, "revise", text)

    def choose(self, choice: ResponseChoose, policy: Policy) -> None:
        """Let another reply to the last message stand; returns at once.

        A reply in progress is stopped, and is one of those that can be chosen.

        Raises:
            Overloaded: too many messages of this session are unanswered.
        """
        self._queue.check_room("message_id")
        self.stop_reply()
        self._replies.drop_speculation()
        work = self._last_exchange.choose(choice, policy)
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

    def drop_history(self, erasures: int | None = None, *, went_back: bool = False) -> None:
        """Drop what is cached of the conversation; see `Answering.drop_history`."""
        self._answering.drop_history(erasures, went_back=went_back)

    def drop_speculation(self) -> None:
        """Drop all speculative work: what it is made of has changed."""
        self._replies.drop_speculation()

    async def roll_over_if_idle(self, policy: Policy) -> None:
        """Begin the next session if this one was idle; see `Answering.roll_over_if_idle`."""
        await self._answering.roll_over_if_idle(policy)

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
