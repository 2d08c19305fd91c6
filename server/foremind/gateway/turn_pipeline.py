"""What happens at Enter: store the message, answer it, store the reply, in order of arrival."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import uuid4

import structlog
from cachetools import LRUCache

from foremind.domain.announcements import ReplyStored
from foremind.domain.companion import Companion
from foremind.domain.errors import Conflict, ForemindError, Overloaded, StorageUnavailable
from foremind.domain.policy import Policy
from foremind.domain.prefetch import Trigger
from foremind.domain.turn import AnswerElsewhere, InForce, Speaker, StoredTurn
from foremind.gateway.chat_history import split_sentences
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.deduplication import RequestKey, TurnInProgress
from foremind.gateway.flow_control import MAX_WAITING_MESSAGES
from foremind.gateway.gated_reply import GatedReply, ReplyResult
from foremind.gateway.protocol.decoding import DecodingProblem, cause_of
from foremind.gateway.protocol.messages import (
    Event,
    MessageAccepted,
    MessageEdit,
    MessageSend,
    ResponseChoose,
    ResponseChosen,
    Revision,
    SpeculativeWork,
)
from foremind.gateway.reply_generation import ReplyGeneration, RunningTurn
from foremind.gateway.revisions import RevisedMessage, SessionRevisions
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.layout import PastTurn
from foremind.retrieval.attribution import used_memories
from foremind.runtime.offload import run_or_offload
from foremind.runtime.supervision import begin
from foremind.storage.revocation_store import TokenIdentity
from foremind.storage.turn_store import ANOTHER_TEXT
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter, Prefetcher

_POLL_S = 0.5  # between two checks whether another process has answered, or the database is back
_STORE_WITHIN_S = 20.0  # a reply that was sent; meanwhile, messages after it wait
_MAX_ANSWERED = 256  # answered messages that are recognised without the database

_log = structlog.get_logger("foremind.gateway")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SessionCallbacks:
    """How the pipeline reports to its session.

    Attributes:
        emit: sends an event to the client.
        fail: sends an error about a message.
        on_context: called with a context at Enter, of which the client may not know yet.
        read_reply: loads and reports a reply that another connection received.
        undelivered_reply: returns what to announce of a stored reply if nobody is connected.
        token: returns what the session's token may be revoked by.
        policy_of: returns the settings in force for a message.
        reflects: returns whether a reply made with a companion and a context reflects all that was
            in force when its message was stored; what it lacks is known here then.
        companion: returns the companion with the settings in force.
        on_reply: called with each reply that is about to be sent.
    """

    emit: Callable[[Event], None]
    fail: Callable[[ForemindError, DecodingProblem], None]
    on_context: Callable[[str, ContextAtEnter], None]
    read_reply: Callable[[int], Awaitable[None]]
    undelivered_reply: Callable[[int], ReplyStored | None]
    token: Callable[[], Awaitable[TokenIdentity | None]]
    policy_of: Callable[[MessageSend], Policy]
    reflects: Callable[[InForce, Companion, PreparedContext | None], Awaitable[bool]]
    companion: Callable[[], Companion]
    on_reply: Callable[[RunningTurn], None]


@dataclass(frozen=True, slots=True)
class _AnsweredMessage:
    text_hash: int
    turn_id: int
    kept: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that waits for its end; `text_hash` is that of the message it sends, if any."""

    task: "asyncio.Task[None]"
    text_hash: int | None = None


class TurnPipeline:
    """Answers the messages of one session, one at a time, each of them once.

    Args:
        retrieval_scope: returns whose memories are searched for a message under some settings.
        revisions: changes the last exchange.
    """

    def __init__(
        self,
        conversation: LiveConversation,
        replies: ReplyGeneration,
        prefetcher: Prefetcher,
        services: SessionServices,
        callbacks: SessionCallbacks,
        retrieval_scope: Callable[[Policy, str], RetrievalScope],
        revisions: SessionRevisions,
    ) -> None:
        self._conversation = conversation
        self._revisions = revisions
        self._replies = replies
        self._prefetcher = prefetcher
        self._services = services
        self._callbacks = callbacks
        self._retrieval_scope = retrieval_scope
        self._one_at_a_time = asyncio.Lock()
        self._waiting: dict[RequestKey, _Waiting] = {}
        #: Those of the waiting requests that another connection answers.
        self._following: set[RequestKey] = set()
        self._answered: LRUCache[str, _AnsweredMessage] = LRUCache(_MAX_ANSWERED)
        self._newest: RequestKey | None = None  # the request that was made last

    @property
    def busy(self) -> bool:
        """True while a message is unanswered."""
        return bool(self._waiting)

    def send(self, message: MessageSend, policy: Policy, arrived: float) -> None:
        """Answer a message that arrived at monotonic time `arrived`; returns at once.

        Args:
            policy: the settings in force for this turn.

        Raises:
            Overloaded: too many messages of this session are unanswered.
            Conflict: another message has the same id.
        """
        answered = self._answered.get(message.id)
        if answered is not None:
            _check_same(answered.text_hash, message)
            self._acknowledge_duplicate(message.id, answered.turn_id, arrived, answered.kept)
            return
        opened = self._conversation.opened
        first = self._services.deduplicator.find(opened.user_id, message.id)
        if first is not None:
            first.check_same(opened.relationship_id, message.text)
        key: RequestKey = ("message", message.id)
        if self._is_waiting(key, message):
            return  # in progress: its own message.accepted follows
        self._check_room("id")
        self.stop_reply()
        if first is None:
            self._prefetcher.enter(message.text)
            self._replies.speculation.on_enter()
            claim = self._claim(message, key)
            work = self._answer(message, policy, arrived, claim)
            task = begin(work, "answer")
        else:
            self._prefetcher.clear()
            self._following.add(key)
            work = self._follow(message, policy, arrived, first, key)
            task = begin(work, "follow")
        self._wait_for(key, _Waiting(task, hash(message.text)))

    def revise(self, revision: Revision, policy: Policy, arrived: float) -> None:
        """Answer the last message anew, or another in its place; returns at once.

        A reply in progress is stopped, as by `send`.

        Args:
            policy: the settings in force for this turn.

        Raises:
            Overloaded: too many messages of this session are unanswered.
            Conflict: another message has the id of the edited one.
        """
        edit = revision if isinstance(revision, MessageEdit) else None
        key: RequestKey = ("message" if edit else "regenerate", revision.id)
        if self._is_waiting(key, edit):
            return  # in progress
        self._check_room("id")
        self.stop_reply()
        self._prefetcher.clear()
        self.drop_speculation()
        task = begin(self._revise(revision, policy, arrived, key), "revise")
        self._wait_for(key, _Waiting(task, hash(edit.text) if edit else None))

    def choose(self, choice: ResponseChoose, policy: Policy) -> None:
        """Let another reply to the last message stand; returns at once.

        A reply in progress is stopped, and is one of those that can be chosen.

        Raises:
            Overloaded: too many messages of this session are unanswered.
        """
        self._check_room("message_id")
        self.stop_reply()
        self.drop_speculation()
        task = begin(self._choose(choice, policy), "choose")
        self._wait_for(("choose", uuid4().hex), _Waiting(task))

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

    def drop_history(self, erasures: int | None = None) -> None:
        """Drop the history, which is loaded again with the next message.

        Args:
            erasures: the current number of erasures, if some happened. If it is higher than known,
                a reply in progress is stopped: it may contain erased text, and is neither stored
                nor sent any further.
        """
        self._conversation.history.drop()
        self._answered.clear()  # contains hashes of texts that may be erased
        self.drop_speculation()
        if erasures is not None and erasures > self._conversation.erasures:
            self._conversation.erasures = erasures
            self.stop_reply()

    def release_history(self) -> None:
        """Free memory while nobody is connected: unload what can be loaded again."""
        if not self.busy:
            self._conversation.history.drop()

    def lacks(self, message_id: str, speaker: Speaker) -> bool:
        """Return whether a turn stored elsewhere, or the reply to it, is missing here."""
        if ("message", message_id) in self._waiting:
            return False
        return self._conversation.history.lacks(message_id, speaker)

    def drop_speculation(self) -> None:
        """Drop all speculative work: it may contain erased text."""
        self._replies.speculation.reset()
        self._replies.next_prompt.drop()

    def cancel(self, response_id: str) -> bool:
        """Stop a reply; return False if it is not the one in progress."""
        return self._replies.cancel(response_id)

    def stop_reply(self) -> None:
        """Stop the reply in progress."""
        self._replies.stop()

    async def roll_over_if_idle(self, policy: Policy) -> None:
        """Begin the next session if this one was idle for longer than the policy allows.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        if await self._conversation.roll_over_if_idle(policy):
            self.drop_speculation()

    async def settle(self) -> None:
        """Wait until every message is answered, here or elsewhere, or has failed."""
        while self._waiting:
            await asyncio.wait([waiting.task for waiting in self._waiting.values()])

    async def close(self) -> None:
        """Stop generating, and wait until replies are stored as far as they were sent."""
        await self._replies.next_prompt.close()
        await self._replies.speculation.close()
        for key in self._following:
            self._waiting[key].task.cancel()
        while self._waiting:
            self.stop_reply()
            tasks = [waiting.task for waiting in self._waiting.values()]
            await asyncio.wait(tasks, timeout=0.05)

    def _check_room(self, param: str) -> None:
        if len(self._waiting) >= MAX_WAITING_MESSAGES:
            raise Overloaded(
                f"At most {MAX_WAITING_MESSAGES} messages may be unanswered.", param=param
            )

    def _is_waiting(self, key: RequestKey, message: MessageSend | MessageEdit | None) -> bool:
        """Return whether a request is in progress.

        Raises:
            Conflict: it sends another text.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        if waiting.text_hash is not None and message is not None:
            _check_same(waiting.text_hash, message)
        return True

    def _wait_for(self, key: RequestKey, waiting: _Waiting) -> None:
        self._newest = key
        self._waiting[key] = waiting
        waiting.task.add_done_callback(lambda task: self._end_waiting(key, task))

    def _end_waiting(self, key: RequestKey, task: "asyncio.Task[None] | None") -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.task is task:  # otherwise it was sent again meanwhile
            del self._waiting[key]
            self._following.discard(key)

    async def _revise(
        self, revision: Revision, policy: Policy, arrived: float, key: RequestKey
    ) -> None:
        """Withdraw what a revision replaces, and answer its message, before any later one."""
        async with self._one_at_a_time:
            revised = await self._report_failure(self._revised(revision, policy), revision)
            if revised is None:
                return
            message = revised.message
            first = self._services.deduplicator.find(self._conversation.opened.user_id, message.id)
            if first is None:
                in_progress = self._claim(message, key, stored_before=revised.stored_now)
                reply_turn = await self._answer_claimed(message, policy, arrived, in_progress)
                if reply_turn is None and not in_progress.elsewhere:
                    await self._restore(message.id, revised.withdrawn, policy)
        if first is not None:
            self._following.add(key)
            await self._follow(message, policy, arrived, first, key)
        else:
            await self._conclude(message, policy, arrived, in_progress, reply_turn)

    async def _revised(self, revision: Revision, policy: Policy) -> RevisedMessage:
        await self.roll_over_if_idle(policy)
        self._conversation.touch()
        revised = await self._revisions.revise(revision, policy)
        self.drop_history()
        opened, message = self._conversation.opened, revised.message
        first = self._services.deduplicator.find(opened.user_id, message.id)
        if first is not None and not revised.stored_now:
            first.check_same(opened.relationship_id, message.text)
        return revised

    async def _restore(self, message_id: str, index: int | None, policy: Policy) -> None:
        """Let the reply stand again in whose place none was made, if there was one."""
        if index is None:
            return
        try:
            event = await self._revisions.restore(message_id, index, policy)
        except ForemindError as error:  # something was forgotten meanwhile, or the database is away
            _log.warning("reply.not_restored", reason=error.code)
            return
        self.drop_history()
        self._callbacks.emit(event)

    async def _choose(self, choice: ResponseChoose, policy: Policy) -> None:
        async with self._one_at_a_time:
            event = await self._report_failure(self._chosen(choice, policy), choice)
            if event is not None:
                self.drop_history()
                self._callbacks.emit(event)

    async def _chosen(self, choice: ResponseChoose, policy: Policy) -> ResponseChosen:
        await self.roll_over_if_idle(policy)
        self._conversation.touch()
        return await self._revisions.choose(choice.message_id, choice.index, policy)

    async def _report_failure(
        self, work: Coroutine[Any, Any, Result], message: Revision | ResponseChoose
    ) -> Result | None:
        """Return what some work returns; None if it failed, which is reported to the client."""
        try:
            return await work
        except ForemindError as error:
            self._callbacks.fail(error, cause_of(message))
        except Exception as error:  # a defect must not end the session
            _log.exception("revision.failed", reason=type(error).__name__)
            failed = ForemindError("The message could not be changed.", param="message_id")
            self._callbacks.fail(failed, cause_of(message))
        return None

    def _claim(
        self, message: MessageSend, key: RequestKey, *, stored_before: bool = False
    ) -> TurnInProgress:
        """Register that this connection answers a message, for the request of a key.

        Args:
            stored_before: whether it was stored a moment before, in place of another one.
        """
        opened = self._conversation.opened
        turn = self._services.deduplicator.begin(
            opened.user_id, message.id, opened.relationship_id, message.text
        )
        turn.key, turn.stored_before = key, stored_before
        return turn

    async def _follow(
        self,
        message: MessageSend,
        policy: Policy,
        arrived: float,
        first: TurnInProgress | None,
        key: RequestKey,
    ) -> None:
        """Report on a message that another connection is answering.

        If it could not be stored there, it is answered here.
        """
        while first is not None:
            await asyncio.wait({first.stored})
            turn_id = first.stored.result()
            if turn_id is not None:
                await self._await_other_connection(message, arrived, turn_id, first)
                return
            first = self._services.deduplicator.find(self._conversation.opened.user_id, message.id)
        self._following.discard(key)
        await self._answer(message, policy, arrived, self._claim(message, key))

    async def _await_other_connection(
        self, message: MessageSend, arrived: float, turn_id: int, first: TurnInProgress
    ) -> None:
        self._add_remote_message(message, turn_id)
        self._acknowledge_duplicate(message.id, turn_id, arrived, first.kept)
        await asyncio.wait({first.replied})
        reply_turn = first.replied.result()
        if reply_turn is not None:
            self._mark_answered(message, turn_id, first.kept)
            await self._callbacks.read_reply(reply_turn)

    async def _answer(
        self, message: MessageSend, policy: Policy, arrived: float, in_progress: TurnInProgress
    ) -> None:
        async with self._one_at_a_time:
            reply_turn = await self._answer_claimed(message, policy, arrived, in_progress)
        await self._conclude(message, policy, arrived, in_progress, reply_turn)

    async def _answer_claimed(
        self, message: MessageSend, policy: Policy, arrived: float, in_progress: TurnInProgress
    ) -> int | None:
        """Answer a message, alone; return the turn id of the reply, None if it has none here."""
        try:
            with structlog.contextvars.bound_contextvars(message_id=message.id):
                return await self._answer_or_fail(message, policy, arrived, in_progress)
        except BaseException:
            self._end_claim(message, in_progress, None)
            raise

    async def _conclude(
        self,
        message: MessageSend,
        policy: Policy,
        arrived: float,
        in_progress: TurnInProgress,
        reply_turn: int | None,
    ) -> None:
        """Wait for the reply of another process, if one answers; if that died, answer here."""
        abandoned = False
        try:
            if in_progress.elsewhere:
                reply_turn, abandoned = await self._await_other_process(message, in_progress)
        finally:
            self._end_claim(message, in_progress, reply_turn)
        if abandoned:
            self._following.discard(in_progress.key)
            again = self._claim(message, in_progress.key)
            await self._answer(message, policy, arrived, again)

    def _end_claim(
        self, message: MessageSend, in_progress: TurnInProgress, reply_turn: int | None
    ) -> None:
        if not in_progress.replied.done():
            user_id = self._conversation.opened.user_id
            self._services.deduplicator.end(user_id, message.id, reply_turn)

    async def _answer_or_fail(
        self, message: MessageSend, policy: Policy, arrived: float, in_progress: TurnInProgress
    ) -> int | None:
        reply_turn: int | None = None
        try:
            reply_turn = await self._commit_and_reply(message, policy, arrived, in_progress)
        except ForemindError as error:
            self._callbacks.fail(error, cause_of(message))
        except Exception as error:  # a defect must not end the session
            _log.exception("answer.failed", reason=type(error).__name__)
            self._callbacks.fail(
                ForemindError("The message could not be answered.", param="id"),
                cause_of(message),
            )
        if reply_turn is None and not in_progress.elsewhere and message.id not in self._answered:
            # From here on it may be sent again, and is then answered after this.
            self._end_claim(message, in_progress, None)
            if in_progress.key == ("message", message.id):  # nothing is restored then
                self._end_waiting(in_progress.key, asyncio.current_task())
            await self._release(message)
        return reply_turn

    async def _await_other_process(
        self, message: MessageSend, turn: TurnInProgress
    ) -> tuple[int | None, bool]:
        """Wait for the reply of another process.

        Returns:
            The turn id of the reply, None if there is none; and whether to answer here instead,
            because that process has died and nothing else was said since. A reply that failed
            there is tried again when the message is sent again.
        """
        turn_id = turn.stored.result()
        assert turn_id is not None
        clock, turns = self._services.runtime.clock, self._services.stores.turns
        relationship_id = self._conversation.opened.relationship_id
        answer = AnswerElsewhere(None, under_way=True, abandoned=False)
        try:
            while answer.under_way and answer.reply is None:  # at most for the lease of the turn
                await clock.sleep(_POLL_S)
                answer = await turns.find_answer(relationship_id, turn_id, clock.now())
        except ForemindError:
            self.drop_history()  # whether it was answered is read with the next message
            return None, False
        if answer.reply is not None:
            self._mark_answered(message, turn_id, turn.kept)
            await self._callbacks.read_reply(answer.reply)
            return answer.reply, False
        return None, answer.abandoned and self._newest == turn.key

    async def _commit_and_reply(
        self, message: MessageSend, policy: Policy, arrived: float, in_progress: TurnInProgress
    ) -> int | None:
        """Store the message while its context is fetched and the model begins the reply.

        Returns:
            The turn id of the reply; None if another connection answers, or the reply is empty.
        """
        clock, conversation = self._services.runtime.clock, self._conversation
        relationship_id = conversation.opened.relationship_id
        if await self._services.freshness.ensure(relationship_id):
            await self._services.live_settings.settled(relationship_id)
            policy = self._callbacks.policy_of(message)
        await self.roll_over_if_idle(policy)
        conversation.touch()
        erasures = conversation.erasures  # noted before anything is gathered for the reply
        commit = begin(
            self._services.stores.turns.commit_message(
                conversation.opened,
                message.id,
                message.text,
                clock.now(),
                kept=message.remember,
                needs_consent=policy.consent != "assumed",
                token=await self._callbacks.token(),
            ),
            "commit-message",
        )
        reply: GatedReply | None = None
        try:
            companion = self._callbacks.companion()
            context, reply, work = await self._begin_reply(message, policy)
            ready_s = clock.monotonic() - arrived
            stored = await commit
            if in_progress.stored_before:
                stored = replace(stored, duplicate=False)
            in_progress.kept = stored.kept
            in_progress.stored.set_result(stored.id)
            if stored.answered or stored.elsewhere:
                self._replies.discard(reply)
                self._leave_to_other(message, stored, in_progress)
                self._acknowledge_duplicate(message.id, stored.id, arrived, stored.kept)
                return None
            if stored.in_force is not None and not await self._callbacks.reflects(
                stored.in_force, companion, context.context
            ):
                # Something changed, perhaps in another process, that no announcement has told yet.
                self._replies.discard(reply)
                erasures, policy = conversation.erasures, self._callbacks.policy_of(message)
                context, reply, work = await self._begin_reply(message, policy)
                ready_s = clock.monotonic() - arrived
            said = PastTurn("user", message.text, stored.id, message.id)
            await split_sentences(said)
        except BaseException:
            # A message that is not stored must not be answered, nor one whose reply may reflect
            # less than was in force. The commit is not cancelled: if it succeeds after all, the
            # client's retry finds the message stored.
            if reply is not None:
                self._replies.discard(reply)
            await asyncio.gather(commit, return_exceptions=True)
            raise
        self._conversation.add_turn(said)
        self._accept(message, stored, context, ready_s, work)
        return await self._deliver(RunningTurn(message, stored, reply, policy, arrived, erasures))

    async def _begin_reply(
        self, message: MessageSend, policy: Policy
    ) -> tuple[ContextAtEnter, GatedReply, SpeculativeWork]:
        """Fetch the context of a message, and begin the reply behind its gate."""
        context = await self._prefetcher.context_at_enter(
            message.text, lambda: self._retrieval_scope(policy, message.id)
        )
        await self._conversation.load(message.id)
        reply, work = self._replies.begin(message, context, policy)
        return context, reply, work

    def _leave_to_other(
        self, message: MessageSend, stored: StoredTurn, in_progress: TurnInProgress
    ) -> None:
        """Record that a stored message was or is being answered elsewhere."""
        if stored.answered:
            self._mark_answered(message, stored.id, stored.kept)
            return
        in_progress.elsewhere = True
        self._following.add(in_progress.key)  # later messages need not wait for it
        self._add_remote_message(message, stored.id)

    def _add_remote_message(self, message: MessageSend, turn_id: int) -> None:
        turn = PastTurn("user", message.text, turn_id, message.id)
        self._conversation.history.add_remote(turn)

    async def _release(self, message: MessageSend) -> None:
        """Let another process answer a message that was not answered here."""
        try:
            await self._services.stores.turns.release(self._conversation.opened, message.id)
        except ForemindError as error:  # it may once the lease has expired
            _log.warning("turn.not_released", reason=error.code)

    def _accept(
        self,
        message: MessageSend,
        stored: StoredTurn,
        at_enter: ContextAtEnter,
        ready_s: float,
        work: SpeculativeWork,
    ) -> None:
        """Report that the message is stored and its context ready."""
        services, context = self._services, at_enter.context
        if context is not None and stored.kept:
            services.after_reply.ingester.cache_turn_vector(stored.id, context.vector)
        services.after_reply.background_worker.wake()  # to ingest it
        services.runtime.metrics.contexts.labels(at_enter.outcome).inc()
        services.runtime.metrics.stage_seconds.labels("ready").observe(ready_s)
        self._callbacks.on_context(message.text, at_enter)
        self._callbacks.emit(
            MessageAccepted(
                id=message.id,
                turn_id=str(stored.id),
                duplicate=stored.duplicate,
                context=at_enter.outcome,
                ready_ms=round(ready_s * 1000, 3),
                ahead=work,
                remembered=stored.kept,
            )
        )
        _log.info(
            "message.accepted",
            turn_id=stored.id,
            chars=len(message.text),
            context=at_enter.outcome,
            ahead=work,
            memories=len(context.memories) if context else 0,
            ready_ms=round(ready_s * 1000, 3),
        )

    async def _deliver(self, turn: RunningTurn) -> int | None:
        """Send and store the reply; return its turn id, None if it is not stored."""
        conversation = self._conversation
        self._callbacks.on_reply(turn)
        result = await self._replies.send(turn, superseded=self._newer_waiting())
        turn_id: int | None = None
        if turn.erasures == conversation.erasures and result.text:
            turn_id = await self._store_reply(turn, result)
        if turn.erasures != conversation.erasures:  # the text may repeat what was erased
            result = ReplyResult("cancelled", "", result.first_token_at, None)
        self._replies.finish(turn, result)
        if not self._newer_waiting():
            self._replies.next_prompt.on_conversation()
        return turn_id

    async def _store_reply(self, turn: RunningTurn, result: ReplyResult) -> int | None:
        """Store a reply, unless the database knows of an erasure since its prompt was assembled."""
        try:
            turn_id = await self._commit_reply(turn, result)
        except ForemindError as error:
            # The client has received it; only the stored copy is missing.
            _log.error("reply.not_stored", turn_id=turn.stored.id, reason=error.code)
            self._conversation.history.add(PastTurn("companion", result.text, None))
            return None
        self._mark_answered(turn.message, turn.stored.id, turn.stored.kept)
        if turn_id is None:
            self.drop_history()
        else:
            self._conversation.add_turn(PastTurn("companion", result.text, turn_id))
        return turn_id

    async def _commit_reply(self, turn: RunningTurn, result: ReplyResult) -> int | None:
        services, conversation = self._services, self._conversation
        opened, prompt = conversation.opened, turn.reply.prompt
        turn_id = await self._insert_reply(turn, result)
        if turn_id is not None:
            now = conversation.touch()
            services.after_reply.access_counts.count_access(
                opened.relationship_id, prompt.records, now
            )
            used = await run_or_offload(
                len(result.text), lambda: used_memories(result.text, prompt.memories)
            )
            await services.after_reply.ingester.mark_used(opened.relationship_id, used)
            services.after_reply.background_worker.wake()
        return turn_id

    async def _insert_reply(self, turn: RunningTurn, result: ReplyResult) -> int | None:
        """Store a reply; while the database is away, wait for it to come back, for some seconds."""
        services, clock = self._services, self._services.runtime.clock
        ended, given_up_at = clock.now(), clock.monotonic() + _STORE_WITHIN_S
        while True:
            try:
                return await services.stores.turns.commit_reply(
                    self._conversation.opened,
                    turn.stored.id,
                    result.status,
                    result.text,
                    ended,
                    ingested=turn.reply.model.is_generative,
                    kept=turn.stored.kept,
                    erasures=turn.erasures,
                    undelivered_reply=self._callbacks.undelivered_reply,
                )
            except StorageUnavailable:
                if clock.monotonic() >= given_up_at:
                    raise
            await clock.sleep(_POLL_S)

    def _newer_waiting(self) -> bool:
        """Return whether another message waits to be answered here."""
        return len(self._waiting) - len(self._following) > 1

    def _mark_answered(self, message: MessageSend, turn_id: int, kept: bool) -> None:
        self._answered[message.id] = _AnsweredMessage(hash(message.text), turn_id, kept)

    def _acknowledge_duplicate(
        self, message_id: str, turn_id: int, arrived: float, kept: bool
    ) -> None:
        """Acknowledge a message that was or is being answered elsewhere."""
        elapsed_s = self._services.runtime.clock.monotonic() - arrived
        self._callbacks.emit(
            MessageAccepted(
                id=message_id,
                turn_id=str(turn_id),
                duplicate=True,
                context="miss",
                ready_ms=round(elapsed_s * 1000, 3),
                remembered=kept,
            )
        )


def _check_same(text_hash: int, message: MessageSend | MessageEdit) -> None:
    """Check that a message sent again has the same text.

    Raises:
        Conflict: it has not.
    """
    if text_hash != hash(message.text):
        raise Conflict(ANOTHER_TEXT, param="id")
