"""Right of Enter: commit, reply, store. One message at a time, in the order they came."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import structlog
from cachetools import LRUCache

from foremind.clock import Clock
from foremind.companions import Companion
from foremind.curation.afterwards import Afterwards
from foremind.curation.worker import Curation
from foremind.errors import ForemindError, Overloaded
from foremind.gateway.ahead import Ahead
from foremind.gateway.decode import error_body
from foremind.gateway.messages import (
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
from foremind.gateway.reply import Reply, ReplyResult
from foremind.generation.assembly import MOST_TURNS, Assembled, assemble
from foremind.generation.prompt import PastTurn
from foremind.generation.voices import Voices
from foremind.layers.held import HeldLayers, RelationshipLayers
from foremind.memory.remember import Rememberer
from foremind.memory.usage import used_in
from foremind.metrics import Metrics
from foremind.policies import LayerPolicy, Policy
from foremind.storage.turns import OpenedSession, ReplyStored, StoredTurn, TurnStore
from foremind.typeahead.prepare import Subject
from foremind.typeahead.prepared import PreparedContext
from foremind.typeahead.watcher import DraftWatcher, Taken, Trigger

MAX_WAITING = 4  # messages of one session that are not answered yet
_SETTLED_IDS = 256  # answered message ids that are remembered without asking the database

_log = structlog.get_logger("foremind.conversation")


@dataclass(frozen=True, slots=True)
class Parties:
    """Who talks, in which session."""

    opened: OpenedSession
    user_name: str
    time_zone: tzinfo


class Conversation:
    """Answers the messages of one session.

    Args:
        companion: with whom, as of now.
        subject: whose memories are searched, under which settings.
        emit: sends an event to the client.
        unheard: what others are told of a reply's turn, where nobody is connected to hear it.
        fail: sends an error that answers the client's `event_id`.
        on_context: called with a context that the client has not been told of.
    """

    def __init__(
        self,
        parties: Parties,
        history: list[PastTurn],
        *,
        watcher: DraftWatcher,
        held: HeldLayers,
        curation: Curation,
        afterwards: Afterwards,
        voices: Voices,
        turns: TurnStore,
        rememberer: Rememberer,
        clock: Clock,
        metrics: Metrics,
        companion: Callable[[], Companion],
        subject: Callable[[Policy], Subject],
        emit: Callable[[Event], None],
        unheard: Callable[[int], ReplyStored | None],
        fail: Callable[[ForemindError, str | None], None],
        on_context: Callable[[str, Taken], None],
    ) -> None:
        self._parties = parties
        self._history = history[-MOST_TURNS:]  # a deque would be larger
        self._watcher = watcher
        self._held = held
        self._curation = curation
        self._afterwards = afterwards
        self._voices = voices
        self._turns = turns
        self._rememberer = rememberer
        self._clock = clock
        self._metrics = metrics
        self._companion = companion
        self._subject = subject
        self._emit = emit
        self._unheard = unheard
        self._fail = fail
        self._on_context = on_context
        self._history_known = True
        self._one_at_a_time = asyncio.Lock()
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._settled: LRUCache[str, int] = LRUCache(_SETTLED_IDS)
        self._reply: Reply | None = None
        self._ahead = Ahead(
            lambda: voices.ahead_of(companion().settings),
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
        """
        if message.id in self._settled:
            self._emit(self._accepted(message.id, self._settled[message.id], arrived))
            return
        if message.id in self._waiting:
            return  # being answered: its own message.accepted is on the way
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded(f"At most {MAX_WAITING} messages may wait for their answer.")
        self.hush()
        self._watcher.enter(message.text)
        self._ahead.entered()
        task = asyncio.create_task(self._answer(message, policy, arrived), name="answer")
        self._waiting[message.id] = task
        task.add_done_callback(lambda _: self._waiting.pop(message.id, None))

    def typed(self, text: str) -> None:
        """The draft now reads `text`; empty, it was given up."""
        if not self.busy:
            self._ahead.typed(text)

    def prepared(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        """A context is there for the draft: the model may do something ahead."""
        if not self.busy and self._history_known:
            self._ahead.ready(draft, context, trigger)

    def forget_history(self) -> None:
        """Drop what was said so far; what is left of it is read again with the next message."""
        self._history.clear()
        self._history_known = False
        self.forget_ahead()

    def heard_elsewhere(self, turn: PastTurn) -> None:
        """Take in a turn of this session that came about over another connection."""
        if self._history_known and all(each.id != turn.id for each in self._history):
            self._add(turn)

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
        while self._waiting:
            self.hush()
            await asyncio.wait(self._waiting.values(), timeout=0.05)

    async def _answer(self, message: MessageSend, policy: Policy, arrived: float) -> None:
        async with self._one_at_a_time:
            with structlog.contextvars.bound_contextvars(message_id=message.id):
                try:
                    await self._commit_and_reply(message, policy, arrived)
                except ForemindError as error:
                    self._fail(error, message.event_id)
                except Exception as error:  # a defect here must not take the session along
                    _log.exception("answer.failed", reason=type(error).__name__)
                    self._fail(
                        ForemindError("The message could not be answered.", param="id"),
                        message.event_id,
                    )

    async def _commit_and_reply(self, message: MessageSend, policy: Policy, arrived: float) -> None:
        """Store the message while its context is fetched and the model begins to answer."""
        parties = self._parties
        commit = asyncio.create_task(
            self._turns.commit_message(parties.opened, message.id, message.text, self._clock.now()),
            name="commit-message",
        )
        reply: Reply | None = None
        try:
            taken = await self._watcher.take(message.text, lambda: self._subject(policy))
            if not self._history_known:
                await self._read_history(message.id)
            reply, ahead = self._begin(message, taken, policy)
            ready = self._clock.monotonic()
            stored = await commit
        except BaseException:
            # Without a stored message nothing may be answered. The commit runs to its own end:
            # if it succeeds after all, the client's retry finds the message stored.
            if reply is not None:
                reply.cancel()
            await asyncio.gather(commit, return_exceptions=True)
            raise
        if stored.answered:
            reply.cancel()
            self._settled[message.id] = stored.id
            self._emit(self._accepted(message.id, stored.id, arrived))
            return
        self._note(message, stored, taken, ready - arrived, ahead)
        await self._speak(message, stored, reply, arrived)

    async def _read_history(self, message_id: str) -> None:
        opened = self._parties.opened
        past = await self._turns.working(opened.relationship_id, opened.session_id, MOST_TURNS)
        # The message under way may be stored by now; it is not its own past.
        self._add(
            *(
                PastTurn(turn.speaker, turn.content, turn.id)
                for turn in past
                if turn.message_id != message_id
            )
        )
        self._history_known = True

    def _add(self, *turns: PastTurn) -> None:
        self._history += turns
        del self._history[:-MOST_TURNS]

    def _begin(self, message: MessageSend, taken: Taken, policy: Policy) -> tuple[Reply, DoneAhead]:
        """Begin the reply, or take over the one that was made ahead."""
        fresh = self._assembled(message.text, taken.context, policy.layers)
        assembled = self._ahead.lay(fresh)
        assembled.prompt.messages()  # laid out now, so that ready means ready
        reply, ahead = self._ahead.take(assembled)
        if reply is None:
            voice = self._voices.voice_of(self._companion())
            reply = Reply(voice, assembled, self._heard, self._clock)
        self._reply = reply
        return reply, ahead

    def _assembled_ahead(self, draft: str, context: PreparedContext) -> Assembled:
        return self._assembled(draft, context, context.validity.layers)

    def _assembled(
        self, text: str, context: PreparedContext | None, policy: LayerPolicy
    ) -> Assembled:
        """Put together the prompt that a message leads to."""
        parties = self._parties
        held = self._held.get(parties.opened.relationship_id)
        return assemble(
            self._companion(),
            policy,
            user_name=parties.user_name,
            standing={} if held is None else held.standing,
            recalled={} if context is None else context.recalled,
            memories=() if context is None else context.memories,
            history=without_summarised(self._history, held),
            message=text,
            opening=not self._history,
            now=self._clock.now().astimezone(parties.time_zone),
        )

    def _heard(self, piece: str) -> None:
        if self._reply is not None:
            self._emit(ResponseDelta(response_id=self._reply.id, delta=piece))

    def _note(
        self,
        message: MessageSend,
        stored: StoredTurn,
        taken: Taken,
        ready_s: float,
        ahead: DoneAhead,
    ) -> None:
        """Tell the client and the metrics that the message is safe and its context ready."""
        self._add(PastTurn("user", message.text, stored.id))
        if taken.context is not None:
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

    async def _speak(
        self, message: MessageSend, stored: StoredTurn, reply: Reply, arrived: float
    ) -> None:
        self._emit(ResponseCreated(response_id=reply.id, message_id=message.id))
        if len(self._waiting) > 1:
            reply.cancel()  # a newer message waits already
        reply.open_gate()
        result = await reply.result()
        self._reply = None
        if result.text:
            turn_id = await self._store_reply(stored, reply, result)
            self._add(PastTurn("companion", result.text, turn_id))
            self._settled[message.id] = stored.id
        self._finish(reply, result, arrived)
        if result.status == "completed":
            self._run_afterwards(message, reply, result)

    def _run_afterwards(self, message: MessageSend, reply: Reply, result: ReplyResult) -> None:
        exchange = [PastTurn("user", message.text), PastTurn("companion", result.text)]

        def done(name: str, text: str) -> None:
            self._emit(BehaviourDone(message_id=message.id, name=name, text=text))

        for each in reply.afterwards:
            self._afterwards.run(each, self._companion().settings, exchange, done)

    async def _store_reply(
        self, stored: StoredTurn, reply: Reply, result: ReplyResult
    ) -> int | None:
        turn_id: int | None = None
        try:
            turn_id = await self._turns.commit_reply(
                self._parties.opened,
                stored.id,
                result.status,
                result.text,
                self._clock.now(),
                judged=reply.voice.says_new_things,
                unheard=self._unheard,
            )
            used = used_in(result.text, reply.prompt.memories)
            await self._rememberer.refresh(self._parties.opened.relationship_id, used)
            self._curation.look()
        except ForemindError as error:
            # It was said all the same; only the record of it is missing.
            _log.error("reply.not_stored", turn_id=stored.id, reason=error.code)
        return turn_id

    def _finish(self, reply: Reply, result: ReplyResult, arrived: float) -> None:
        total = self._clock.monotonic() - arrived
        first = None if result.first_token_at is None else result.first_token_at - arrived
        self._metrics.responses.labels(result.status).inc()
        self._metrics.stage_seconds.labels("reply").observe(total)
        if first is not None:
            self._metrics.stage_seconds.labels("first_token").observe(first)
        self._emit(
            ResponseDone(
                response_id=reply.id,
                status=result.status,
                text=result.text,
                timings=ResponseTimings(
                    first_token_ms=None if first is None else round(first * 1000, 3),
                    total_ms=round(total * 1000, 3),
                ),
                error=None if result.error is None else error_body(result.error, None),
            )
        )
        _log.info("response.done", status=result.status, chars=len(result.text))

    def _accepted(self, message_id: str, turn_id: int, arrived: float) -> MessageAccepted:
        """Acknowledge again a message that was answered before."""
        return MessageAccepted(
            id=message_id,
            turn_id=str(turn_id),
            duplicate=True,
            context="miss",
            ready_ms=round((self._clock.monotonic() - arrived) * 1000, 3),
        )


def without_summarised(
    turns: Sequence[PastTurn], held: RelationshipLayers | None
) -> list[PastTurn]:
    """Return the turns that no summary holds."""
    upto = 0 if held is None else held.summarised_turn_id
    return [turn for turn in turns if turn.id is None or turn.id > upto]
