"""Sending a reply, and storing what was sent of it."""

from dataclasses import replace

import structlog

from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.gated_reply import ReplyResult
from foremind.gateway.reply_generation import ReplyGeneration, RunningTurn
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.request_queue import RequestQueue
from foremind.gateway.turns.session_caches import SessionCaches
from foremind.gateway.turns.session_callbacks import SessionCallbacks
from foremind.llm.prompt.layout import PastTurn
from foremind.retrieval.attribution import used_memories
from foremind.runtime.offload import run_or_offload
from foremind.text.pin_requests import text_to_pin

_POLL_S = 0.5  # between two checks whether the database is back
_STORE_WITHIN_S = 20.0  # a reply that was sent; meanwhile, messages after it wait

_log = structlog.get_logger("foremind.gateway")


class ReplyDelivery:
    """Sends and stores the replies of one session."""

    def __init__(
        self,
        conversation: LiveConversation,
        replies: ReplyGeneration,
        queue: RequestQueue,
        caches: SessionCaches,
        services: SessionServices,
        callbacks: SessionCallbacks,
    ) -> None:
        self._conversation = conversation
        self._replies = replies
        self._queue = queue
        self._caches = caches
        self._services = services
        self._callbacks = callbacks

    async def deliver(self, turn: RunningTurn) -> int | None:
        """Send and store the reply; return its turn id, None if it is not stored."""
        conversation = self._conversation
        self._callbacks.on_reply(turn)
        result = await self._replies.send(turn, superseded=self._queue.newer_waiting)
        turn_id: int | None = None
        if turn.erasures == conversation.erasures and result.text:
            whole = replace(result, text=conversation.begun + result.text)
            turn_id = await self._store(turn, whole)
        if turn.erasures != conversation.erasures:  # the text may repeat what was erased
            result = ReplyResult("cancelled", "", result.first_token_at, None)
        self._replies.finish(turn, result)
        if not self._queue.newer_waiting:
            self._replies.next_prompt.on_conversation()
        return turn_id

    async def _store(self, turn: RunningTurn, result: ReplyResult) -> int | None:
        """Store a reply, unless the database knows of an erasure since its prompt was assembled."""
        try:
            pins = text_to_pin(turn.message.text) is not None
            turn_id = await self._insert(turn, result, urgent=pins)
            if turn_id is not None:
                if turn.reply.model.is_generative and turn.stored.kept:  # it waits for ingest
                    self._services.after_reply.ingester.cache_turn(turn_id, result.text)
                await self._have_read(turn, result, turn_id, pins=pins)
        except ForemindError as error:
            # The client has received it; only the stored copy is missing.
            _log.error("reply.not_stored", turn_id=turn.stored.id, reason=error.code)
            self._conversation.history.add(PastTurn("companion", result.text, None))
            return None
        if turn_id is None:
            self._caches.drop_history()
            return None
        self._caches.answered.add(turn.message, turn.stored.id, kept=turn.stored.kept)
        self._conversation.add_turn(PastTurn("companion", result.text, turn_id))
        return turn_id

    async def _insert(self, turn: RunningTurn, result: ReplyResult, *, urgent: bool) -> int | None:
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
                    origin=self._callbacks.origin,
                    urgent=urgent,
                )
            except StorageUnavailable:
                if clock.monotonic() >= given_up_at:
                    raise
            await clock.sleep(_POLL_S)

    async def _have_read(
        self, turn: RunningTurn, result: ReplyResult, turn_id: int, *, pins: bool
    ) -> None:
        """Count what a stored reply was made of, and have the exchange ingested.

        Args:
            pins: something in it is to be pinned, and read at once.
        """
        prompt, after_reply = turn.reply.prompt, self._services.after_reply
        relationship_id, worker = (
            self._conversation.opened.relationship_id,
            after_reply.background_worker,
        )
        now = self._conversation.touch()
        after_reply.access_counts.count_access(relationship_id, prompt.records, now)
        used = await run_or_offload(
            len(result.text), lambda: used_memories(result.text, prompt.memories)
        )
        if not turn.stored.kept:  # it is not ingested
            await after_reply.ingester.mark_used(relationship_id, used)
            return
        worker.ingest_soon(relationship_id, (turn.stored.id, turn_id), used)
        if pins:
            worker.wake(relationship_id)
