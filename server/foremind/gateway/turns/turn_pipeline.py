"""What happens at Enter: store the message, answer it, store the reply, in order of arrival."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import structlog

from foremind.domain.errors import ForemindError, NotFound
from foremind.domain.policy import Policy
from foremind.domain.turn import Speaker, Trigger
from foremind.gateway.event_builders import turn_view
from foremind.gateway.protocol.client_messages import (
    MessageEdit,
    MessageSend,
    ResponseChoose,
    ResponseRegenerate,
    Revision,
)
from foremind.gateway.protocol.server_events import ResponseChosen
from foremind.gateway.reply_generation import RunningTurn
from foremind.gateway.turns.answering import Answering
from foremind.gateway.turns.request_queue import IncomingMessage, RequestKey
from foremind.memory.exchange_changes import ExchangeOwner
from foremind.storage.database import DatabaseConnection
from foremind.typeahead.context_cache import PreparedContext

_log = structlog.get_logger("foremind.gateway")

Result = TypeVar("Result")


class _Choose(Protocol):
    async def __call__(
        self, owner: ExchangeOwner, message_id: str, index: int, *, ingested: bool
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class _RevisedMessage:
    """The message that is answered after a revision.

    Attributes:
        stored_now: it was stored in place of another one.
        withdrawn: the index of the reply that stood and can be chosen again; None if none did.
    """

    message: MessageSend
    stored_now: bool = False
    withdrawn: int | None = None


class TurnPipeline:
    """Answers the messages of one session, one at a time, each of them once."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._replies, self._queue = answering.replies, answering.queue
        self._conversation, self._session_policy = answering.conversation, answering.session_policy
        self._services, self._client = answering.services, answering.client
        self._prefetcher = answering.prefetcher

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
        work = self._answer_revised(revision, policy, arrived, key)
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
        work = self._let_choice_stand(choice, policy)
        self._queue.start(("choose", uuid4().hex), work, "choose")

    def watch_replies(self, watcher: Callable[[RunningTurn], None]) -> None:
        """Have each reply that is about to be sent passed to a watcher."""
        self._answering.on_reply = watcher

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

    # Changes of the last exchange, made between two messages: afterwards nothing that this process
    # caches is older than the change.

    async def _answer_revised(
        self, revision: Revision, policy: Policy, arrived: float, key: RequestKey
    ) -> None:
        """Withdraw what a revision replaces, and answer its message, before any later one."""
        async with self._answering.queue.one_at_a_time:
            revised = await self._report_failure(self._revise(revision, policy), revision)
            if revised is None:
                return
            incoming = IncomingMessage(revised.message, policy, arrived, key)
            first = self._answering.find_claim(revised.message.id)
            if first is None:
                claim = self._answering.claim(revised.message, stored_before=revised.stored_now)
                outcome = await self._answering.answer_alone(incoming, claim)
                if outcome.answered != "elsewhere" and outcome.reply_turn is None:
                    await self._restore(revised.message.id, revised.withdrawn, policy)
        if first is not None:
            self._answering.queue.follow(key)
            await self._answering.follow(incoming, first)
        else:
            await self._answering.conclude(incoming, claim, outcome)

    async def _let_choice_stand(self, choice: ResponseChoose, policy: Policy) -> None:
        """Let another reply to the last message stand."""
        async with self._answering.queue.one_at_a_time:
            event = await self._report_failure(self._choose(choice, policy), choice)
            if event is not None:
                self._answering.drop_history()
                self._client.emit(event)

    async def _revise(self, revision: Revision, policy: Policy) -> _RevisedMessage:
        await self._answering.roll_over_if_idle(policy)
        self._conversation.touch()
        if isinstance(revision, MessageEdit):
            revised = await self._edit(revision, policy)
        else:
            revised = await self._regenerate(revision, policy)
        await self._follow_change()
        self._answering.drop_history()
        if not revised.stored_now:
            self._answering.find_same(revised.message)
        return revised

    async def _choose(self, choice: ResponseChoose, policy: Policy) -> ResponseChosen:
        await self._answering.roll_over_if_idle(policy)
        self._conversation.touch()
        choose = self._services.exchanges.choose
        return await self._let_stand(choose, choice.message_id, choice.index, policy)

    async def _restore(self, message_id: str, index: int | None, policy: Policy) -> None:
        """Let the reply stand again in whose place none was made, unless another was chosen."""
        if index is None:
            return
        try:
            restore = self._services.exchanges.restore
            event = await self._let_stand(restore, message_id, index, policy)
        except ForemindError as error:  # something was forgotten meanwhile, or the database is away
            _log.warning("reply.not_restored", reason=error.code)
            return
        self._answering.drop_history()
        self._client.emit(event)

    async def _report_failure(
        self, work: Coroutine[Any, Any, Result], message: Revision | ResponseChoose
    ) -> Result | None:
        failed = ForemindError("The message could not be changed.", param="message_id")
        return await self._answering.report_failure(work, message, "revision.failed", failed)

    async def _let_stand(
        self, choose: _Choose, message_id: str, index: int, policy: Policy
    ) -> ResponseChosen:
        services = self._services
        model = services.chat_models.chat_model_for(policy.chat_model)
        turn_id = await choose(self._owner(policy), message_id, index, ingested=model.is_generative)
        await self._follow_change()
        relationship_id = self._conversation.opened.relationship_id
        turn = await services.stores.turns.find(relationship_id, turn_id)
        if turn is None:
            raise NotFound("index: this reply was erased", param="index")
        services.after_reply.background_worker.wake(relationship_id)  # to ingest it
        return ResponseChosen(message_id=message_id, turn=turn_view(turn))

    async def _edit(self, edit: MessageEdit, policy: Policy) -> _RevisedMessage:
        services, opened = self._services, self._conversation.opened
        now = services.runtime.clock.now()
        token = await services.authority.token_identity(self._client.principal)

        async def insert(connection: DatabaseConnection) -> None:
            await services.stores.turns.insert_message(
                connection,
                opened,
                edit.id,
                edit.text,
                now,
                kept=edit.remember,
                needs_consent=policy.consent != "assumed",
                token=token,
            )

        stored = await services.exchanges.edit(
            self._owner(policy), edit.message_id, edit.id, insert
        )
        message = MessageSend(
            edit.id, edit.text, edit.settings, edit.remember, event_id=edit.event_id
        )
        return _RevisedMessage(message, stored_now=stored)

    async def _regenerate(self, request: ResponseRegenerate, policy: Policy) -> _RevisedMessage:
        before = await self._services.exchanges.withdraw_reply(
            self._owner(policy), request.message_id, request.id
        )
        message = MessageSend(
            before.message_id, before.text, request.settings, before.kept, event_id=request.event_id
        )
        if before.reply is None:
            return _RevisedMessage(message)
        earlier = [reply for reply in before.others if reply.position < before.reply.position]
        return _RevisedMessage(message, withdrawn=len(earlier))

    def _owner(self, policy: Policy) -> ExchangeOwner:
        participants = self._conversation.participants
        return ExchangeOwner(
            participants.opened,
            (participants.user_name, self._session_policy.companion.name),
            self._client.principal.user_id,  # for the audit trail
            policy.storage.read_in_exchange,
            policy.consent != "assumed",
            self._client.origin,
        )

    async def _follow_change(self) -> None:
        """Have every cache and session of this process drop what was withdrawn.

        Announcements do that too, but a moment later, and the reply begins now.
        """
        await self._services.freshness.reconcile([self._conversation.opened.relationship_id])
