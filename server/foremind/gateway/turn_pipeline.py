"""Right of Enter: commit, reply, store. One message at a time, in the order they came."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial

import structlog
from cachetools import LRUCache

from foremind.background.post_reply import PostReplyBehaviours
from foremind.background.worker import BackgroundWorker
from foremind.domain.announcements import ReplyStored
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion
from foremind.domain.errors import Conflict, ForemindError, Overloaded
from foremind.domain.policy import LayerPolicy, Policy
from foremind.domain.turn import OpenedSession, Speaker, StoredTurn, Turn
from foremind.gateway.chat_history import ChatHistory, without_summarised
from foremind.gateway.deduplication import Deduplicator, TurnInProgress
from foremind.gateway.gated_reply import GatedReply, ReplyResult
from foremind.gateway.live_state import LiveState
from foremind.gateway.protocol.decoding import DecodingProblem, cause_of, error_body
from foremind.gateway.protocol.messages import (
    BehaviourDone,
    DoneAhead,
    Event,
    MessageAccepted,
    MessageSend,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseTimings,
)
from foremind.gateway.speculation import SpeculativeGeneration
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.assembly import MOST_TURNS, AssembledPrompt, assemble, newest_held
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import StandingLayers, state_section
from foremind.llm.prompt.token_counter import counter_for
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.access_counts import AccessCounts
from foremind.retrieval.attribution import used_in
from foremind.runtime.metrics import Metrics
from foremind.runtime.offload import aside
from foremind.runtime.supervision import begin
from foremind.storage.turn_store import ANOTHER_TEXT, TurnStore
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter, Prefetcher, Trigger

MAX_WAITING = 4  # messages of one session that are not answered yet
_LOOK_S = 0.5  # between two looks at whether another process has answered
_SETTLED_IDS = 256  # answered message ids that are remembered without asking the database

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class Participants:
    """Who talks, in which session."""

    opened: OpenedSession
    user_name: str
    time_zone: tzinfo


@dataclass(frozen=True, slots=True)
class _RunningTurn:
    """A message that is stored, and the reply under way to it.

    `erasures` is how often something had been erased before anything was gathered for the reply.
    """

    message: MessageSend
    stored: StoredTurn
    reply: GatedReply
    policy: Policy
    arrived: float
    erasures: int


@dataclass(frozen=True, slots=True)
class _StoredReply:
    """A message that is answered."""

    text_hash: int
    turn_id: int


class TurnPipeline:
    """Answers the messages of one session.

    Args:
        history: what was said so far; None, it is still to be read.
        companion: with whom, as of now.
        policy: the settings in force, as of now.
        subject: whose memories are searched, under which settings.
        state: what goes on in the session.
        emit: sends an event to the client.
        unheard: what others are told of a reply's turn, where nobody is connected to hear it.
        read_reply: takes in, and tells of, a reply that another connection heard.
        answering: what is being answered over every connection.
        fail: sends an error that answers a message.
        on_context: called with a context that the client has not been told of.
        on_turn: called with each turn as it is stored, for other windows of the session.
    """

    def __init__(
        self,
        parties: Participants,
        history: list[PastTurn] | None,
        *,
        watcher: Prefetcher,
        curation: BackgroundWorker,
        afterwards: PostReplyBehaviours,
        voices: ChatModels,
        turns: TurnStore,
        rememberer: MemoryIngester,
        uses: AccessCounts,
        clock: Clock,
        metrics: Metrics,
        companion: Callable[[], Companion],
        policy: Callable[[], Policy],
        subject: Callable[[Policy], RetrievalScope],
        state: LiveState,
        emit: Callable[[Event], None],
        unheard: Callable[[int], ReplyStored | None],
        read_reply: Callable[[int], Awaitable[None]],
        answering: Deduplicator,
        fail: Callable[[ForemindError, DecodingProblem], None],
        on_context: Callable[[str, ContextAtEnter], None],
        on_turn: Callable[[PastTurn], None],
    ) -> None:
        self._parties = parties
        self._past = ChatHistory(
            history, lambda turns: newest_held(turns, policy().layers.context_tokens)
        )
        self._watcher = watcher
        self._curation = curation
        self._afterwards = afterwards
        self._voices = voices
        self._turns = turns
        self._rememberer = rememberer
        self._uses = uses
        self._clock = clock
        self._metrics = metrics
        self._companion = companion
        self._subject = subject
        self._state = state
        self._emit = emit
        self._unheard = unheard
        self._read_reply = read_reply
        self._answering = answering
        self._fail = fail
        self._on_context = on_context
        self._active_at = parties.opened.active_at or clock.now()
        self._on_turn = on_turn
        self._erasures = parties.opened.erasures  # of which this session has heard
        self._one_at_a_time = asyncio.Lock()
        self._waiting: dict[str, asyncio.Task[None]] = {}
        #: Of these, those that are answered over another connection.
        self._following: set[str] = set()
        self._settled: LRUCache[str, _StoredReply] = LRUCache(_SETTLED_IDS)
        self._reply: GatedReply | None = None
        self._ahead = SpeculativeGeneration(
            lambda: voices.ahead_of(policy().voice),
            self._assembled_ahead,
            self._heard,
            clock,
            metrics,
        )

    @property
    def busy(self) -> bool:
        """True while a message is not answered yet."""
        return bool(self._waiting)

    def send(self, message: MessageSend, policy: Policy, arrived: float) -> None:
        """Answer a message that arrived at monotonic time `arrived`; returns at once.

        Args:
            policy: the settings in force for this turn.

        Raises:
            Overloaded: too many messages of this session wait for their answer.
            Conflict: its id is that of another message.
        """
        settled = self._settled.get(message.id)
        if settled is not None:
            _check_same(settled.text_hash, message)
            self._emit(self._accepted(message.id, settled.turn_id, arrived))
            return
        opened = self._parties.opened
        first = self._answering.find(opened.user_id, message.id)
        if first is not None:
            first.check_same(opened.relationship_id, message.text)
        if message.id in self._waiting:
            return  # being answered: its own message.accepted is on the way
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded(
                f"At most {MAX_WAITING} messages may wait for their answer.", param="id"
            )
        self.hush()
        if first is None:
            self._watcher.enter(message.text)
            self._ahead.entered()
            task = begin(self._answer(message, policy, arrived, self._claim(message)), "answer")
        else:
            self._watcher.clear()
            self._following.add(message.id)
            task = begin(self._follow(message, policy, arrived, first), "follow")
        self._waiting[message.id] = task
        task.add_done_callback(lambda task: self._over(message.id, task))

    def typed(self, text: str) -> None:
        """The draft now reads `text`; empty, it was given up."""
        if not self.busy:
            self._ahead.typed(text)

    def prepared(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        """A context is there for the draft: the model may do something ahead."""
        if not self.busy and self._past.known and self._state.known:
            self._ahead.ready(draft, context, trigger)

    @property
    def knows_history(self) -> bool:
        """Whether what was said so far is there, and need not be read."""
        return self._past.known

    async def read_history(self, message_id: str | None = None) -> None:
        """Read what was said so far, unless it is known; anew, where it changes meanwhile.

        Args:
            message_id: of the message under way, which may be stored by now: no past of its own.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        await self._past.read(self._stored, message_id)

    def forget_history(self, erasures: int | None = None) -> None:
        """Drop what was said so far; what is left of it is read again with the next message.

        Where more was erased than was known (`erasures`), a reply under way is stopped: it may be
        made of that, and is neither kept nor told any further.
        """
        self._past.drop()
        self._settled.clear()  # by what it was is no longer to be known
        self.forget_ahead()
        if erasures is not None and erasures > self._erasures:
            self._erasures = erasures
            self.hush()

    def rest(self) -> None:
        """Nobody is connected: hold nothing that can be read again when somebody is."""
        if not self.busy:
            self._past.drop()

    def heard_elsewhere(self, turn: PastTurn) -> bool:
        """Take in a turn of this session that came about over another connection.

        False where it was known.
        """
        return self._past.hear(turn)

    def lacks(self, message_id: str, speaker: Speaker) -> bool:
        """Tell whether a turn that was stored elsewhere, or the reply to it, is not known here."""
        return message_id not in self._waiting and self._past.lacks(message_id, speaker)

    def forget_ahead(self) -> None:
        """Drop what the model read or said ahead: it may hold what is forgotten."""
        self._ahead.forget()

    def cancel(self, response_id: str) -> bool:
        """Stop a reply; False where it is not being spoken."""
        if self._reply is None or self._reply.id != response_id:
            return False
        self._reply.cancel()
        return True

    def hush(self) -> None:
        """Stop the reply under way."""
        if self._reply is not None:
            self._reply.cancel()

    async def close(self) -> None:
        """Stop speaking, store what was said, and wait until that is done."""
        await self._ahead.close()
        for message_id in self._following:
            self._waiting[message_id].cancel()
        while self._waiting:
            self.hush()
            await asyncio.wait(self._waiting.values(), timeout=0.05)

    def _over(self, message_id: str, task: "asyncio.Task[None] | None") -> None:
        if self._waiting.get(message_id) is task:  # else it came again meanwhile
            self._waiting.pop(message_id, None)
            self._following.discard(message_id)

    def _claim(self, message: MessageSend) -> TurnInProgress:
        opened = self._parties.opened
        return self._answering.begin(
            opened.user_id, message.id, opened.relationship_id, message.text
        )

    async def _follow(
        self, message: MessageSend, policy: Policy, arrived: float, first: TurnInProgress | None
    ) -> None:
        """Tell what becomes of a message that is being answered over another connection.

        Where it could not be stored there, it is answered here.
        """
        while first is not None:
            await asyncio.wait({first.stored})
            turn_id = first.stored.result()
            if turn_id is not None:
                await self._hear_elsewhere(message, arrived, turn_id, first)
                return
            first = self._answering.find(self._parties.opened.user_id, message.id)
        self._following.discard(message.id)
        await self._answer(message, policy, arrived, self._claim(message))

    async def _hear_elsewhere(
        self, message: MessageSend, arrived: float, turn_id: int, first: TurnInProgress
    ) -> None:
        self.heard_elsewhere(PastTurn("user", message.text, turn_id, message.id))
        self._emit(self._accepted(message.id, turn_id, arrived))
        await asyncio.wait({first.replied})
        reply_turn = first.replied.result()
        if reply_turn is not None:
            self._settle(message, turn_id)
            await self._read_reply(reply_turn)

    async def _answer(
        self, message: MessageSend, policy: Policy, arrived: float, under_way: TurnInProgress
    ) -> None:
        reply_turn: int | None = None
        try:
            async with self._one_at_a_time:
                with structlog.contextvars.bound_contextvars(message_id=message.id):
                    reply_turn = await self._answered(message, policy, arrived, under_way)
            if under_way.elsewhere:
                reply_turn = await self._hear_another_process(message, under_way.stored.result())
        finally:
            self._end(message, under_way, reply_turn)

    def _end(self, message: MessageSend, under_way: TurnInProgress, reply_turn: int | None) -> None:
        if not under_way.replied.done():
            self._answering.end(self._parties.opened.user_id, message.id, reply_turn)

    async def _answered(
        self, message: MessageSend, policy: Policy, arrived: float, under_way: TurnInProgress
    ) -> int | None:
        reply_turn: int | None = None
        try:
            reply_turn = await self._commit_and_reply(message, policy, arrived, under_way)
        except ForemindError as error:
            self._fail(error, cause_of(message))
        except Exception as error:  # a defect here must not take the session along
            _log.exception("answer.failed", reason=type(error).__name__)
            self._fail(
                ForemindError("The message could not be answered.", param="id"),
                cause_of(message),
            )
        if reply_turn is None and not under_way.elsewhere and message.id not in self._settled:
            # It may be sent again from here on, and is then answered after this.
            self._end(message, under_way, None)
            self._over(message.id, asyncio.current_task())
            await self._release(message)
        return reply_turn

    async def _hear_another_process(self, message: MessageSend, turn_id: int | None) -> int | None:
        """Wait for the reply that another process gives; return its turn, if there is one.

        Where there is none, the message is answered when it comes again.
        """
        assert turn_id is not None
        bond_id = self._parties.opened.relationship_id
        under_way, reply_turn = True, None
        try:
            while under_way and reply_turn is None:  # at most as long as a turn is claimed
                await self._clock.sleep(_LOOK_S)
                reply_turn, under_way = await self._turns.answer_elsewhere(
                    bond_id, turn_id, self._clock.now()
                )
        except ForemindError:
            self.forget_history()  # whether it was answered is read with the next message
            return None
        if reply_turn is not None:
            self._settle(message, turn_id)
            await self._read_reply(reply_turn)
        return reply_turn

    async def _commit_and_reply(
        self, message: MessageSend, policy: Policy, arrived: float, under_way: TurnInProgress
    ) -> int | None:
        """Store the message while its context is fetched and the model begins to answer.

        Return the turn of the reply, None where it was answered before or nothing was said.
        """
        await self._go_on(policy)
        parties = self._parties
        erasures = self._erasures  # before anything is gathered for the reply
        commit = begin(
            self._turns.commit_message(
                parties.opened,
                message.id,
                message.text,
                self._clock.now(),
                kept=message.remember,
            ),
            "commit-message",
        )
        reply: GatedReply | None = None
        try:
            taken = await self._watcher.take(message.text, lambda: self._subject(policy))
            await self.read_history(message.id)
            await self._state.read()
            reply, ahead = self._begin(message, taken, policy)
            ready = self._clock.monotonic()
            stored = await commit
        except BaseException:
            # Without a stored message nothing may be answered. The commit runs to its own end:
            # if it succeeds after all, the client's retry finds the message stored.
            if reply is not None:
                self._give_up(reply)
            await asyncio.gather(commit, return_exceptions=True)
            raise
        under_way.stored.set_result(stored.id)
        if stored.answered:
            self._give_up(reply)
            self._settle(message, stored.id)
            self._emit(self._accepted(message.id, stored.id, arrived))
            return None
        if stored.elsewhere:
            self._give_up(reply)
            under_way.elsewhere = True
            self._following.add(message.id)  # whatever comes next need not wait for it
            self.heard_elsewhere(PastTurn("user", message.text, stored.id, message.id))
            self._emit(self._accepted(message.id, stored.id, arrived))
            return None
        self._note(message, stored, taken, ready - arrived, ahead)
        return await self._speak(_RunningTurn(message, stored, reply, policy, arrived, erasures))

    def _give_up(self, reply: GatedReply) -> None:
        """Drop a reply that nobody is to hear, with its prompt: what is in it may be forgotten."""
        reply.cancel()
        self._reply = None

    async def _go_on(self, policy: Policy) -> None:
        """Begin the next session where nothing was said for longer than one lives.

        The connection stays as it is, and so does the id by which its client knows it.
        """
        await self.begin_anew_if_over(policy)
        self._active_at = self._clock.now()

    async def begin_anew_if_over(self, policy: Policy) -> None:
        """Begin the next session where the time of this one is over.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        now = self._clock.now()
        if now - self._active_at > policy.layers.session:
            before = self._parties.opened
            opened = await self._turns.go_on(before, now, policy.layers.session)
            if opened.session_id != before.session_id:
                self._parties = replace(self._parties, opened=opened)
                self._past.drop()
                self._state.move_to(opened.session_id)
                self.forget_ahead()
            self._active_at = now

    async def _release(self, message: MessageSend) -> None:
        """Let another process answer what was not answered here, if it is stored at all."""
        try:
            await self._turns.release(self._parties.opened, message.id)
        except ForemindError as error:  # then it may once the claim is over
            _log.warning("turn.not_released", reason=error.code)

    def _stored(self) -> Awaitable[list[Turn]]:
        """Ask for what is stored of the session that goes on."""
        opened = self._parties.opened
        return self._turns.working(opened.relationship_id, opened.session_id, MOST_TURNS)

    def _say(self, turn: PastTurn) -> None:
        """Take in a turn that came about here, and tell other windows of it."""
        self._past.add(turn)
        self._on_turn(turn)

    def _begin(
        self, message: MessageSend, taken: ContextAtEnter, policy: Policy
    ) -> tuple[GatedReply, DoneAhead]:
        """Begin the reply, or take over the one that was made ahead."""
        fresh = self._assembled(
            message.text, taken.standing, taken.context, policy.layers, message.id
        )
        assembled = self._ahead.lay(fresh)
        assembled.prompt.messages()  # laid out now, so that ready means ready
        reply, ahead = self._ahead.take(assembled, self._voices.server_of(policy.voice))
        if reply is None:
            voice = self._voices.voice_of(policy.voice)
            reply = GatedReply(voice, assembled, self._heard, self._clock)
        self._reply = reply
        return reply, ahead

    def _assembled_ahead(self, draft: str, context: PreparedContext) -> AssembledPrompt:
        return self._assembled(draft, context.standing, context, context.validity.layers)

    def _assembled(
        self,
        text: str,
        standing: StandingLayers,
        context: PreparedContext | None,
        policy: LayerPolicy,
        message_id: str | None = None,
    ) -> AssembledPrompt:
        """Put together the prompt that a message leads to, which may have come before."""
        parties = self._parties
        past = self._past.but_for(message_id)
        now_going_on = state_section(self._state.value, counter_for(policy.tokenizer))
        return assemble(
            self._companion(),
            policy,
            user_name=parties.user_name,
            standing={**standing.sections, "state": now_going_on},
            recalled={} if context is None else context.recalled,
            memories=() if context is None else context.memories,
            history=without_summarised(past, standing.summarised_turn_id),
            message=text,
            opening=not past,
            now=self._clock.now().astimezone(parties.time_zone),
        )

    def _heard(self, piece: str) -> None:
        if self._reply is not None:
            self._emit(ResponseDelta(response_id=self._reply.id, delta=piece))

    def _note(
        self,
        message: MessageSend,
        stored: StoredTurn,
        taken: ContextAtEnter,
        ready_s: float,
        ahead: DoneAhead,
    ) -> None:
        """Tell the client and the metrics that the message is safe and its context ready."""
        self._say(PastTurn("user", message.text, stored.id, message.id))
        if taken.context is not None and message.remember:
            self._rememberer.hand_over(stored.id, taken.context.vector)
        self._metrics.contexts.labels(taken.outcome).inc()
        self._metrics.stage_seconds.labels("ready").observe(ready_s)
        self._on_context(message.text, taken)
        self._emit(
            MessageAccepted(
                id=message.id,
                turn_id=str(stored.id),
                duplicate=stored.duplicate,
                context=taken.outcome,
                ready_ms=round(ready_s * 1000, 3),
                ahead=ahead,
                remembered=message.remember,
            )
        )
        _log.info(
            "message.accepted",
            turn_id=stored.id,
            chars=len(message.text),
            context=taken.outcome,
            ahead=ahead,
            memories=len(taken.context.memories) if taken.context else 0,
            ready_ms=round(ready_s * 1000, 3),
        )

    async def _speak(self, exchange: _RunningTurn) -> int | None:
        reply, erasures = exchange.reply, exchange.erasures
        self._emit(ResponseCreated(response_id=reply.id, message_id=exchange.message.id))
        if self._newer_waits() or erasures != self._erasures:
            reply.cancel()  # a newer message waits already, or something was forgotten meanwhile
        if erasures == self._erasures:
            reply.open_gate()
        result = await reply.result()
        self._reply = None
        turn_id: int | None = None
        if erasures == self._erasures and result.text:
            turn_id = await self._keep(exchange, result)
        if erasures != self._erasures:  # what was said may be made of what is forgotten
            result = ReplyResult("cancelled", "", result.first_token_at, None)
        self._finish(exchange, result)
        if result.status == "completed":
            self._run_afterwards(exchange, result)
        return turn_id

    async def _keep(self, exchange: _RunningTurn, result: ReplyResult) -> int | None:
        """Store a reply, unless the database knows that something was forgotten meanwhile."""
        try:
            turn_id = await self._store_reply(exchange, result)
        except ForemindError as error:
            # It was said all the same; only the record of it is missing.
            _log.error("reply.not_stored", turn_id=exchange.stored.id, reason=error.code)
            self._past.add(PastTurn("companion", result.text, None))
            return None
        self._settle(exchange.message, exchange.stored.id)
        if turn_id is None:
            self.forget_history()
        else:
            self._say(PastTurn("companion", result.text, turn_id))
        return turn_id

    async def _store_reply(self, exchange: _RunningTurn, result: ReplyResult) -> int | None:
        opened, prompt = self._parties.opened, exchange.reply.prompt
        turn_id = await self._turns.commit_reply(
            opened,
            exchange.stored.id,
            result.status,
            result.text,
            self._clock.now(),
            judged=exchange.reply.voice.says_new_things,
            kept=exchange.message.remember,
            erasures=exchange.erasures,
            unheard=self._unheard,
        )
        if turn_id is not None:
            self._active_at = self._clock.now()
            self._uses.note(opened.relationship_id, prompt.records, self._active_at)
            used = await aside(len(result.text), lambda: used_in(result.text, prompt.memories))
            await self._rememberer.refresh(opened.relationship_id, used)
            self._curation.look()
        return turn_id

    def _newer_waits(self) -> bool:
        """Tell whether another message waits to be answered here."""
        return len(self._waiting) - len(self._following) > 1

    def _run_afterwards(self, exchange: _RunningTurn, result: ReplyResult) -> None:
        message = exchange.message
        said = [PastTurn("user", message.text), PastTurn("companion", result.text)]
        # This session may be over by the time that the model has room, and hears nothing then.
        whose = self._parties.opened.relationship_id
        check = partial(self._voices.forgets.check, whose, exchange.erasures)

        def done(name: str, text: str) -> None:
            if exchange.erasures == self._erasures:
                self._emit(BehaviourDone(message_id=message.id, name=name, text=text))

        for behaviour in exchange.reply.afterwards:
            self._afterwards.run(behaviour, exchange.policy.voice, said, check, done)

    def _finish(self, exchange: _RunningTurn, result: ReplyResult) -> None:
        arrived = exchange.arrived
        total = self._clock.monotonic() - arrived
        first = None if result.first_token_at is None else result.first_token_at - arrived
        self._metrics.responses.labels(result.status).inc()
        self._metrics.stage_seconds.labels("reply").observe(total)
        if first is not None:
            self._metrics.stage_seconds.labels("first_token").observe(first)
        self._emit(
            ResponseDone(
                response_id=exchange.reply.id,
                status=result.status,
                text=result.text,
                timings=ResponseTimings(
                    first_token_ms=None if first is None else round(first * 1000, 3),
                    total_ms=round(total * 1000, 3),
                ),
                error=None if result.error is None else error_body(result.error, DecodingProblem()),
            )
        )
        _log.info("response.done", status=result.status, chars=len(result.text))

    def _settle(self, message: MessageSend, turn_id: int) -> None:
        self._settled[message.id] = _StoredReply(hash(message.text), turn_id)

    def _accepted(self, message_id: str, turn_id: int, arrived: float) -> MessageAccepted:
        """Acknowledge again a message that was answered before."""
        return MessageAccepted(
            id=message_id,
            turn_id=str(turn_id),
            duplicate=True,
            context="miss",
            ready_ms=round((self._clock.monotonic() - arrived) * 1000, 3),
        )


def _check_same(text_hash: int, message: MessageSend) -> None:
    """Check that a message that comes again says what it said.

    Raises:
        Conflict: it does not.
    """
    if text_hash != hash(message.text):
        raise Conflict(ANOTHER_TEXT, param="id")
