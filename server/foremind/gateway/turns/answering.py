"""Answering a message: it is claimed, stored and answered, alone in its session, and followed.

Read from the top: a message is answered here (`answer`), unless another connection has claimed it
(`follow`). Its commit and the beginning of its reply run at once (`_commit`); once it is stored,
that is reported (`_accept`), and the reply is sent and stored (`_deliver`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import structlog

from foremind.cluster.missed_changes import outdates_reply
from foremind.domain.companion import Companion
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.domain.policy import Policy
from foremind.domain.turn import (
    AnswerElsewhere,
    InForce,
    MadePrompt,
    SpeculativeWork,
    StoredTurn,
)
from foremind.gateway.conversation import LiveConversation, SessionLore, split_sentences
from foremind.gateway.event_builders import duplicate_accepted, message_accepted
from foremind.gateway.gated_reply import GatedReply, ReplyResult
from foremind.gateway.protocol.client_messages import MessageSend, ResponseChoose, Revision
from foremind.gateway.protocol.decoding import cause_of
from foremind.gateway.reply_generation import ReplyGeneration, RunningTurn
from foremind.gateway.session_client import SessionClient
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.request_queue import (
    AnsweredMessages,
    IncomingMessage,
    MessageClaim,
    RequestQueue,
)
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.quoted_lines import has_tags
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.access_counts import used_memories
from foremind.runtime.supervision import begin, run_or_offload
from foremind.text.pin_requests import text_to_pin
from foremind.typeahead.context_cache import CacheKey, PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter, Prefetcher

_FOLLOW_POLL_S = 0.5  # between two checks whether another process has answered
_STORE_POLL_S = 0.5  # between two checks whether the database is back
_STORE_WITHIN_S = 20.0  # a reply that was sent; meanwhile, messages after it wait

_log = structlog.get_logger("foremind.gateway")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """What became of a message.

    Attributes:
        answered: where it is answered: `before`, on any connection; `elsewhere`, by another
            process, which may not have done it yet; otherwise `here`, if at all.
        reply_turn: the turn id of the reply stored here, None without one.
    """

    answered: Literal["here", "before", "elsewhere"] = "here"
    reply_turn: int | None = None

    @property
    def unanswered(self) -> bool:
        """Whether it failed here, or has an empty reply."""
        return self.answered == "here" and self.reply_turn is None


@dataclass(frozen=True, slots=True)
class _StartedReply:
    """A reply behind its gate, and what it was made of.

    Attributes:
        companion: with the settings that were in force before anything was gathered.
        work: what was done for it before Enter.
        ready_at: the monotonic time at which the model was asked.
        removals: the number of removals known before anything was gathered.
        settings: returns those in force, by name.
    """

    reply: GatedReply
    companion: Companion
    at_enter: ContextAtEnter
    work: SpeculativeWork
    ready_at: float
    removals: int
    settings: Callable[[], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class _CommittedMessage:
    """A stored message.

    Attributes:
        started: its reply, behind its gate; None if another connection has answered it or does.
        policy: the settings in force for its turn.
        erasures: the number of erasures known before anything was gathered for the reply.
    """

    stored: StoredTurn
    started: _StartedReply | None
    policy: Policy
    erasures: int


class Answering:
    """Answers the messages of one session, one at a time.

    Args:
        report_turn: loads and reports a reply that another connection received.
    """

    def __init__(
        self,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        lore: SessionLore,
        prefetcher: Prefetcher,
        services: SessionServices,
        client: SessionClient,
        report_turn: Callable[[int], Awaitable[None]],
    ) -> None:
        self.conversation = conversation
        self.session_policy = session_policy
        self._lore = lore
        self.prefetcher = prefetcher
        self.services = services
        self.client = client
        self._report_turn = report_turn
        #: Called with each reply that is about to be sent; set by whoever needs its prompt.
        self.on_reply: Callable[[RunningTurn], None] = lambda _: None
        self._clock = services.runtime.clock
        self.replies = ReplyGeneration(conversation, services, session_policy, lore, client)
        self.queue = RequestQueue()
        self.answered = AnsweredMessages()

    async def answer(self, incoming: IncomingMessage, claim: MessageClaim) -> None:
        """Answer a claimed message, after those before it."""
        async with self.queue.one_at_a_time:
            outcome = await self.answer_alone(incoming, claim)
        await self.conclude(incoming, claim, outcome)

    async def answer_alone(self, incoming: IncomingMessage, claim: MessageClaim) -> MessageOutcome:
        """Answer a claimed message, while no other of its session is; report a failure."""
        try:
            with structlog.contextvars.bound_contextvars(message_id=incoming.message.id):
                return await self._answer_or_fail(incoming, claim)
        except BaseException:
            self._release(claim, None)
            raise

    async def conclude(
        self, incoming: IncomingMessage, claim: MessageClaim, outcome: MessageOutcome
    ) -> None:
        """Wait for the reply of another process, if one answers; if that died, answer here."""
        reply_turn, abandoned = outcome.reply_turn, False
        try:
            if outcome.answered == "elsewhere":
                reply_turn, abandoned = await self._follow_process(incoming, claim)
        finally:
            self._release(claim, reply_turn)
        if abandoned:
            self.queue.unfollow(incoming.key)
            await self.answer(incoming, self.claim(incoming.message))

    async def follow(self, incoming: IncomingMessage, first: MessageClaim | None) -> None:
        """Report on a message that another connection of this process has claimed.

        If it could not be stored there, it is answered here.
        """
        while first is not None:
            await asyncio.wait({first.stored})
            turn_id = first.stored.result()
            if turn_id is not None:
                self._take_over(incoming, turn_id, kept=first.kept)
                await asyncio.wait({first.replied})
                reply_turn = first.replied.result()
                if reply_turn is not None:
                    self.answered.add(incoming.message, turn_id, kept=first.kept)
                    await self._report_turn(reply_turn)
                return
            first = self.find_claim(incoming.message.id)
        self.queue.unfollow(incoming.key)
        await self.answer(incoming, self.claim(incoming.message))

    async def report_failure(
        self,
        work: Coroutine[Any, Any, Result],
        message: MessageSend | Revision | ResponseChoose,
        defect: str,
        failed: ForemindError,
    ) -> Result | None:
        """Return what some work returns; None if it failed, which is reported to the client.

        Args:
            defect: how a defect is logged, which must not end the session.
            failed: what the client is told of one.
        """
        try:
            return await work
        except ForemindError as error:
            self.client.fail_message(error, cause_of(message))
        except Exception as error:
            _log.exception(defect, reason=type(error).__name__)
            self.client.fail_message(failed, cause_of(message))
        return None

    # What is cached of the conversation

    def drop_history(self, erasures: int | None = None, *, went_back: bool = False) -> None:
        """Drop the history, which is loaded again with the next message.

        Args:
            erasures: the current number of erasures, if some happened. If it is higher than known,
                a reply in progress is stopped: it may contain erased text, and is neither stored
                nor sent any further.
            went_back: a lower number counts, too: the database lost the last ones.
        """
        self.conversation.history.drop()
        self.answered.clear()  # contains hashes of texts that may be erased
        self.replies.drop_speculation()
        known = self.conversation.erasures
        if erasures is not None and (erasures > known or (went_back and erasures < known)):
            self.conversation.erasures = erasures
            self.replies.stop()

    async def roll_over_if_idle(self, policy: Policy) -> None:
        """Begin the next session if this one was idle for longer than the policy allows.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        if await self.conversation.roll_over_if_idle(policy):
            self.replies.drop_speculation()

    # Claims: a message is answered by whoever has claimed it

    def find_claim(self, message_id: str) -> MessageClaim | None:
        """Return the claim of the connection that is answering a message, None if none is."""
        return self.services.deduplicator.find(self.conversation.opened.user_id, message_id)

    def find_same(self, message: MessageSend) -> MessageClaim | None:
        """Do as `find_claim`.

        Raises:
            Conflict: that connection is answering another message with this id.
        """
        claim = self.find_claim(message.id)
        if claim is not None:
            claim.check_same(self.conversation.opened.relationship_id, message.text)
        return claim

    def claim(self, message: MessageSend, *, stored_before: bool = False) -> MessageClaim:
        """Register that this connection answers a message.

        Args:
            stored_before: whether it was stored a moment before, in place of another one.
        """
        opened = self.conversation.opened
        claim = self.services.deduplicator.claim(
            opened.user_id, message.id, opened.relationship_id, message.text
        )
        claim.stored_before = stored_before
        return claim

    def _release(self, claim: MessageClaim, reply_turn: int | None) -> None:
        """Release a claim unless that is done, and tell those who wait for it of the reply."""
        self.services.deduplicator.release(claim, reply_turn)

    async def _release_stored(self, message: MessageSend) -> None:
        """Let another process answer a stored message that was not answered here.

        What it says is read in the background as if it were answered.
        """
        opened, services = self.conversation.opened, self.services
        try:
            await services.stores.turns.release(opened, message.id)
            await services.after_reply.background_worker.schedule_now(opened.relationship_id)
        except ForemindError as error:  # it may once the lease has expired
            _log.warning("turn.not_released", reason=error.code)

    # Here: commit, accept, deliver

    async def _answer_or_fail(
        self, incoming: IncomingMessage, claim: MessageClaim
    ) -> MessageOutcome:
        message = incoming.message
        failed = ForemindError("The message could not be answered.", param="id")
        work = self._commit_and_reply(incoming, claim)
        outcome = await self.report_failure(work, message, "answer.failed", failed)
        outcome = outcome or MessageOutcome()
        if outcome.unanswered:
            # From here on it may be sent again, and is then answered after this.
            self._release(claim, None)
            if incoming.key == ("message", message.id):  # nothing is restored then
                self.queue.end(incoming.key, asyncio.current_task())
            await self._release_stored(message)
        return outcome

    async def _commit_and_reply(
        self, incoming: IncomingMessage, claim: MessageClaim
    ) -> MessageOutcome:
        committed = await self._commit(incoming, claim)
        stored, started = committed.stored, committed.started
        if started is None:
            self._leave(incoming, stored)
            claim.accepted = True
            return MessageOutcome("before" if stored.answered else "elsewhere")
        self._accept(incoming, stored, started)
        claim.accepted = True
        reply_turn = await self._deliver(
            RunningTurn(
                incoming.message,
                stored,
                started.reply,
                committed.policy,
                incoming.arrived,
                committed.erasures,
                started.removals,
                started.settings,
            )
        )
        return MessageOutcome(reply_turn=reply_turn)

    async def _commit(self, incoming: IncomingMessage, claim: MessageClaim) -> _CommittedMessage:
        """Store a message while its context is fetched and the model begins the reply.

        Raises:
            ForemindError: it is not stored, or could not be answered.
        """
        message, relationship_id = incoming.message, self.conversation.opened.relationship_id
        if await self.services.freshness.ensure(relationship_id):
            await self.services.live_settings.settled(relationship_id)
        await self.roll_over_if_idle(incoming.policy)
        policy = self._policy_of(message)  # of this moment, as what the reply is made of
        self.conversation.touch()
        erasures = self.conversation.erasures  # noted before anything is gathered for the reply
        commit = begin(
            self.services.stores.turns.commit_message(
                self.conversation.opened,
                message.id,
                message.text,
                self._clock.now(),
                kept=message.remember,
                needs_consent=policy.consent != "assumed",
                token=await self.services.authority.token_identity(self.client.principal),
            ),
            "commit-message",
        )
        started: _StartedReply | None = None
        try:
            started = await self._start_reply(message, policy)
            stored = await commit
            if claim.stored_before:
                stored = replace(stored, duplicate=False)
            claim.kept = stored.kept
            claim.stored.set_result(stored.id)
            if stored.answered or stored.elsewhere:
                self.replies.discard(started.reply)
                return _CommittedMessage(stored, None, policy, erasures)
            if stored.in_force is not None and not await self._reflects(
                stored.in_force, started.companion, started.at_enter.context
            ):
                # Something changed, perhaps in another process, that no announcement has told yet.
                self.replies.discard(started.reply)
                erasures = self.conversation.erasures
                policy = self._policy_of(message)
                started = await self._start_reply(message, policy)
            said = PastTurn("user", message.text, stored.id, message.id)
            await split_sentences(said)
        except BaseException:
            # A message that is not stored must not be answered, nor one whose reply may reflect
            # less than was in force. The commit is not cancelled: if it succeeds after all, the
            # client's retry finds the message stored.
            if started is not None:
                self.replies.discard(started.reply)
            await asyncio.gather(commit, return_exceptions=True)
            raise
        self.conversation.add_turn(said)
        return _CommittedMessage(stored, started, policy, erasures)

    def _policy_of(self, message: MessageSend) -> Policy:
        player = not self.client.principal.admin
        return self.session_policy.policy_of(message, player=player)

    async def _start_reply(self, message: MessageSend, policy: Policy) -> _StartedReply:
        """Fetch the context of a message, and begin the reply behind its gate.

        Raises:
            ForemindError: the context or the conversation could not be read.
        """
        companion = self.session_policy.companion
        settings = self.session_policy.settings_of(message)
        removals = self.services.freshness.removals(self.conversation.opened.relationship_id)
        at_enter = await self.prefetcher.context_at_enter(
            message.text, lambda: self._lore.retrieval_scope(policy, message.id)
        )
        await self.conversation.load(message.id)
        reply, work = self.replies.begin(message, at_enter, policy)
        ready_at = self._clock.monotonic()
        return _StartedReply(reply, companion, at_enter, work, ready_at, removals, settings)

    async def _reflects(
        self, in_force: InForce, companion: Companion, context: PreparedContext | None
    ) -> bool:
        """Return whether a reply reflects all that was in force when its message was stored.

        What it lacks is known here then, so that another one does.

        Args:
            companion: with the settings that it was made under.
            context: that it was made of.

        Raises:
            ForemindError: it could not be read.
        """
        freshness, conversation = self.services.freshness, self.conversation
        relationship_id = conversation.opened.relationship_id
        missed = await freshness.observe(in_force.versions)
        changed = outdates_reply(missed, trusted=freshness.trusted)
        if context is not None and not freshness.trusted:
            # What was announced may still have been read meanwhile.
            changed |= _is_older(context.cache_key, in_force)
        if conversation.state.version != in_force.state_version:  # 0 if it was deleted
            conversation.state.invalidate()
            changed = True
        if not conversation.history.reaches(in_force.previous_turn_id):
            self.drop_history()
            changed = True
        await self.services.live_settings.settled(relationship_id)
        changed |= companion is not self.session_policy.companion
        if changed:
            count = counter_for(self.session_policy.policy.layers.tokenizer)
            language = self.session_policy.prompt_language
            await self.services.context.layer_cache.load(relationship_id, count, language)
        return not changed

    def _accept(
        self, incoming: IncomingMessage, stored: StoredTurn, started: _StartedReply
    ) -> None:
        """Report that a message is stored and its context ready."""
        message, at_enter = incoming.message, started.at_enter
        services, context = self.services, at_enter.context
        ready_s = started.ready_at - incoming.arrived
        if context is not None and stored.kept:
            services.after_reply.ingester.cache_turn(stored.id, message.text, context.vector)
        services.runtime.metrics.contexts.labels(at_enter.outcome).inc()
        services.runtime.metrics.stage_seconds.labels("ready").observe(ready_s)
        if context is not None:
            self.client.send_context(message.text, context, at_enter.trigger)
        self.client.emit(
            message_accepted(message.id, stored, at_enter.outcome, ready_s, started.work)
        )
        _log.info(
            "message.accepted",
            turn_id=stored.id,
            chars=len(message.text),
            context=at_enter.outcome,
            ahead=started.work,
            memories=len(context.memories) if context else 0,
            ready_ms=round(ready_s * 1000, 3),
        )

    async def _deliver(self, turn: RunningTurn) -> int | None:
        """Send and store the reply; return its turn id, None if it is not stored."""
        conversation = self.conversation
        self.on_reply(turn)
        result = await self.replies.send(turn, superseded=self.queue.newer_waiting)
        turn_id: int | None = None
        used: list[int] = []
        if turn.erasures == conversation.erasures and result.text:
            whole = replace(result, text=conversation.begun + result.text)
            prompt = turn.reply.prompt
            used = await run_or_offload(
                sum(map(len, (whole.text, *prompt.said))),
                lambda: used_memories(whole.text, prompt.memories, prompt.said),
            )
            turn_id = await self._store(turn, whole, used)
        if turn.erasures != conversation.erasures:  # the text may repeat what was erased
            result, used = ReplyResult("cancelled", "", result.first_token_at, None), []
        self.replies.finish(turn, result, used)
        if not self.queue.newer_waiting:
            self.replies.next_prompt.on_conversation()
        return turn_id

    async def _store(
        self, turn: RunningTurn, result: ReplyResult, used: Sequence[int]
    ) -> int | None:
        """Store a reply, unless the database knows of an erasure since its prompt was assembled."""
        try:
            pins = text_to_pin(turn.message.text) is not None
            turn_id = await self._insert(turn, result, urgent=pins)
            if turn_id is not None:
                if _is_remembered(turn, result) and turn.stored.kept:  # it waits for ingest
                    self.services.after_reply.ingester.cache_turn(turn_id, result.text)
                await self._have_read(turn, turn_id, used, pins=pins)
        except ForemindError as error:
            # The client has received it; only the stored copy is missing.
            _log.error("reply.not_stored", turn_id=turn.stored.id, reason=error.code)
            self.conversation.history.add(PastTurn("companion", result.text, None))
            return None
        if turn_id is None:
            self.drop_history()
            return None
        self.answered.add(turn.message, turn.stored.id, kept=turn.stored.kept)
        self.conversation.add_turn(PastTurn("companion", result.text, turn_id))
        return turn_id

    async def _insert(self, turn: RunningTurn, result: ReplyResult, *, urgent: bool) -> int | None:
        """Store a reply; while the database is away, wait for it to come back, for some seconds."""
        ended, given_up_at = self._clock.now(), self._clock.monotonic() + _STORE_WITHIN_S
        prompt = await self._kept_prompt(turn)
        while True:
            try:
                return await self.services.stores.turns.commit_reply(
                    self.conversation.opened,
                    turn.stored.id,
                    result.status,
                    result.text,
                    ended,
                    ingested=_is_remembered(turn, result),
                    kept=turn.stored.kept,
                    erasures=turn.erasures,
                    origin=self.client.origin,
                    urgent=urgent,
                    prompt=prompt,
                )
            except StorageUnavailable:
                if self._clock.monotonic() >= given_up_at:
                    raise
            await self._clock.sleep(_STORE_POLL_S)

    async def _kept_prompt(self, turn: RunningTurn) -> MadePrompt | None:
        """Return what is stored of a reply's prompt; None if some of it is stored nowhere else."""
        if not self.conversation.is_stored:
            return None
        chars = sum(len(message["content"]) for message in turn.reply.prompt.messages())
        return await run_or_offload(chars, lambda: turn.kept_prompt)

    async def _have_read(
        self, turn: RunningTurn, turn_id: int, used: Sequence[int], *, pins: bool
    ) -> None:
        """Count what a stored reply was made of, and have the exchange ingested.

        Args:
            used: the ids of the memories that it uses.
            pins: something in it is to be pinned, and read at once.
        """
        prompt, after_reply = turn.reply.prompt, self.services.after_reply
        relationship_id = self.conversation.opened.relationship_id
        now = self.conversation.touch()
        after_reply.access_counts.count_access(relationship_id, prompt.records, now)
        if not turn.stored.kept:  # it is not ingested
            await after_reply.ingester.mark_used(relationship_id, used)
            return
        worker = after_reply.background_worker
        worker.ingest_soon(relationship_id, (turn.stored.id, turn_id), used)
        if pins:
            worker.wake(relationship_id)

    # Elsewhere: the message is acknowledged, and its reply read once it is there

    def acknowledge(self, message_id: str, arrived: float, turn_id: int, *, kept: bool) -> None:
        """Acknowledge a message that was or is being answered, here or elsewhere.

        Args:
            arrived: the monotonic time at which it arrived again.
        """
        elapsed_s = self._clock.monotonic() - arrived
        self.client.emit(duplicate_accepted(message_id, turn_id, elapsed_s, kept=kept))

    def _leave(self, incoming: IncomingMessage, stored: StoredTurn) -> None:
        """Acknowledge a stored message that was or is being answered elsewhere."""
        if stored.answered:
            message = incoming.message
            self.answered.add(message, stored.id, kept=stored.kept)
            self.acknowledge(message.id, incoming.arrived, stored.id, kept=stored.kept)
        else:
            self.queue.follow(incoming.key)  # later messages need not wait for it
            self._take_over(incoming, stored.id, kept=stored.kept)

    def _take_over(self, incoming: IncomingMessage, turn_id: int, *, kept: bool) -> None:
        """Add a message that is being answered elsewhere, and acknowledge it."""
        message = incoming.message
        turn = PastTurn("user", message.text, turn_id, message.id)
        self.conversation.history.add_remote(turn)
        self.acknowledge(message.id, incoming.arrived, turn_id, kept=kept)

    async def _follow_process(
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
        turns, relationship_id = (
            self.services.stores.turns,
            self.conversation.opened.relationship_id,
        )
        turn_id = claim.stored.result()
        assert turn_id is not None
        answer = AnswerElsewhere(None, under_way=True, abandoned=False)
        try:
            while answer.under_way and answer.reply is None:  # at most for the lease of the turn
                await self._clock.sleep(_FOLLOW_POLL_S)
                answer = await turns.find_answer(relationship_id, turn_id, self._clock.now())
        except ForemindError:
            self.drop_history()  # whether it was answered is read with the next message
            return None, False
        if answer.reply is not None:
            self.answered.add(incoming.message, turn_id, kept=claim.kept)
            await self._report_turn(answer.reply)
            return answer.reply, False
        return None, answer.abandoned and self.queue.is_newest(incoming.key)


def _is_remembered(turn: RunningTurn, result: ReplyResult) -> bool:
    """Return whether a reply may be a memory: no fixed phrase, loop or part of a prompt. Pure."""
    said = not result.looped and not has_tags(result.text)
    return turn.reply.model.is_generative and said


def _is_older(key: CacheKey, in_force: InForce) -> bool:
    """Return whether a context was made of older memories or layers than were in force. Pure."""
    versions = in_force.versions.relationship
    return (
        key.memory_version < versions.memory_version or key.layers_version < versions.layers_version
    )
