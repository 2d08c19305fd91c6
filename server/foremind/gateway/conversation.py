"""Right of Enter: commit, reply, store. One message at a time, in the order they came."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo

import structlog
from cachetools import LRUCache

from foremind.clock import Clock
from foremind.companions import Companion, Policy
from foremind.errors import ForemindError, Overloaded
from foremind.gateway.decode import error_body
from foremind.gateway.messages import (
    Event,
    MessageAccepted,
    MessageSend,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseTimings,
)
from foremind.gateway.reply import Reply, ReplyResult
from foremind.generation.prompt import PastTurn, prompt_for
from foremind.generation.voices import Voices
from foremind.memory.ranking import Recalled
from foremind.memory.remember import Rememberer
from foremind.memory.usage import used_in
from foremind.metrics import Metrics
from foremind.storage.turns import OpenedSession, StoredTurn, TurnStore
from foremind.typeahead.watcher import DraftWatcher, Taken

MAX_WAITING = 4  # messages of one session that are not answered yet
_SETTLED_IDS = 256  # answered message ids that are remembered without asking the database

_log = structlog.get_logger("foremind.conversation")


@dataclass(frozen=True, slots=True)
class Parties:
    """Who talks with whom, under which settings."""

    opened: OpenedSession
    user_name: str
    companion: Companion
    policy: Policy
    time_zone: tzinfo


class Conversation:
    """Answers the messages of one session.

    Args:
        emit: sends an event to the client.
        fail: sends an error that answers the client's `event_id`.
        on_context: called with a context that the client has not been told of.
    """

    def __init__(
        self,
        parties: Parties,
        history: list[PastTurn],
        *,
        watcher: DraftWatcher,
        voices: Voices,
        turns: TurnStore,
        rememberer: Rememberer,
        clock: Clock,
        metrics: Metrics,
        emit: Callable[[Event], None],
        fail: Callable[[ForemindError, str | None], None],
        on_context: Callable[[str, Taken], None],
    ) -> None:
        self._parties = parties
        self._history = deque(history, maxlen=parties.policy.history_turns)
        self._watcher = watcher
        self._voices = voices
        self._turns = turns
        self._rememberer = rememberer
        self._clock = clock
        self._metrics = metrics
        self._emit = emit
        self._fail = fail
        self._on_context = on_context
        self._history_known = True
        self._one_at_a_time = asyncio.Lock()
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._settled: LRUCache[str, int] = LRUCache(_SETTLED_IDS)
        self._reply: Reply | None = None

    @property
    def busy(self) -> bool:
        """True while a message is not answered yet."""
        return bool(self._waiting)

    def send(self, message: MessageSend, arrived: float) -> None:
        """Answer a message that arrived at monotonic time `arrived`; returns at once.

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
        if self._reply is not None:
            self._reply.cancel()
        self._watcher.enter(message.text)
        task = asyncio.create_task(self._answer(message, arrived), name="answer")
        self._waiting[message.id] = task
        task.add_done_callback(lambda _: self._waiting.pop(message.id, None))

    def forget_history(self) -> None:
        """Drop what was said so far; what is left of it is read again with the next message."""
        self._history.clear()
        self._history_known = False

    def cancel(self, response_id: str) -> bool:
        """Stop a reply; False where it is not being spoken."""
        if self._reply is None or self._reply.id != response_id:
            return False
        self._reply.cancel()
        return True

    async def close(self) -> None:
        """Stop speaking, store what was said, and wait until that is done."""
        while self._waiting:
            if self._reply is not None:
                self._reply.cancel()
            await asyncio.wait(self._waiting.values(), timeout=0.05)

    async def _answer(self, message: MessageSend, arrived: float) -> None:
        async with self._one_at_a_time:
            with structlog.contextvars.bound_contextvars(message_id=message.id):
                try:
                    await self._commit_and_reply(message, arrived)
                except ForemindError as error:
                    self._fail(error, message.event_id)
                except Exception as error:  # a defect here must not take the session along
                    _log.exception("answer.failed", reason=type(error).__name__)
                    self._fail(
                        ForemindError("The message could not be answered.", param="id"),
                        message.event_id,
                    )

    async def _commit_and_reply(self, message: MessageSend, arrived: float) -> None:
        """Store the message while its context is fetched and the model begins to answer."""
        parties = self._parties
        commit = asyncio.create_task(
            self._turns.commit_message(parties.opened, message.id, message.text, self._clock.now()),
            name="commit-message",
        )
        reply: Reply | None = None
        try:
            taken = await self._watcher.take(message.text)
            if not self._history_known:
                await self._read_history(message.id)
            ready = self._clock.monotonic()
            reply = self._begin(message, taken)
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
        self._note(message, stored, taken, ready - arrived)
        await self._speak(message, stored, reply, arrived)

    async def _read_history(self, message_id: str) -> None:
        limit = self._parties.policy.history_turns
        past = await self._turns.recent(self._parties.opened.relationship_id, limit + 1)
        # The message under way may be stored by now; it is not its own past.
        self._history.extend(
            PastTurn(turn.speaker, turn.content) for turn in past if turn.message_id != message_id
        )
        self._history_known = True

    def _begin(self, message: MessageSend, taken: Taken) -> Reply:
        parties = self._parties
        memories: tuple[Recalled, ...] = taken.context.memories if taken.context else ()
        prompt = prompt_for(
            parties.companion,
            parties.policy,
            user_name=parties.user_name,
            memories=memories,
            history=tuple(self._history),
            message=message.text,
            now=self._clock.now().astimezone(parties.time_zone),
        )
        reply = Reply(self._voices.voice_of(parties.companion), prompt, self._heard, self._clock)
        self._reply = reply
        return reply

    def _heard(self, piece: str) -> None:
        if self._reply is not None:
            self._emit(ResponseDelta(response_id=self._reply.id, delta=piece))

    def _note(self, message: MessageSend, stored: StoredTurn, taken: Taken, ready_s: float) -> None:
        """Tell the client and the metrics that the message is safe and its context ready."""
        self._history.append(PastTurn("user", message.text))
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
            )
        )
        _log.info(
            "message.accepted",
            turn_id=stored.id,
            chars=len(message.text),
            context=taken.outcome,
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
            self._history.append(PastTurn("companion", result.text))
            await self._store_reply(stored, reply, result)
            self._settled[message.id] = stored.id
        self._finish(reply, result, arrived)

    async def _store_reply(self, stored: StoredTurn, reply: Reply, result: ReplyResult) -> None:
        try:
            await self._turns.commit_reply(
                self._parties.opened,
                stored.id,
                result.status,
                result.text,
                self._clock.now(),
                judged=reply.voice.says_new_things,
            )
            used = used_in(result.text, reply.prompt.memories)
            await self._rememberer.refresh(self._parties.opened.relationship_id, used)
        except ForemindError as error:
            # It was said all the same; only the record of it is missing.
            _log.error("reply.not_stored", turn_id=stored.id, reason=error.code)

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
