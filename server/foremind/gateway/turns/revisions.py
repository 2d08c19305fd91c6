"""Requests to change the last exchange: each waits its turn, is reported, and answered."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from foremind.domain.errors import ForemindError
from foremind.domain.policy import Policy
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.protocol.client_messages import ResponseChoose, Revision
from foremind.gateway.protocol.decoding import cause_of
from foremind.gateway.protocol.server_events import ResponseChosen
from foremind.gateway.turns.answering import Answering
from foremind.gateway.turns.last_exchange import RevisedMessage, SessionExchange
from foremind.gateway.turns.message_claims import MessageClaims
from foremind.gateway.turns.request_queue import RequestQueue
from foremind.gateway.turns.requests import IncomingMessage, RequestKey
from foremind.gateway.turns.session_caches import SessionCaches
from foremind.gateway.turns.session_callbacks import SessionCallbacks

_log = structlog.get_logger("foremind.gateway")

Result = TypeVar("Result")


class SessionRevisions:
    """Changes the last exchange of one session, between two messages, and answers it."""

    def __init__(
        self,
        conversation: LiveConversation,
        exchange: SessionExchange,
        answering: Answering,
        queue: RequestQueue,
        claims: MessageClaims,
        caches: SessionCaches,
        callbacks: SessionCallbacks,
    ) -> None:
        self._conversation = conversation
        self._exchange = exchange
        self._answering = answering
        self._queue = queue
        self._claims = claims
        self._caches = caches
        self._callbacks = callbacks

    async def revise(
        self, revision: Revision, policy: Policy, arrived: float, key: RequestKey
    ) -> None:
        """Withdraw what a revision replaces, and answer its message, before any later one."""
        async with self._queue.one_at_a_time:
            revised = await self._report_failure(self._revise(revision, policy), revision)
            if revised is None:
                return
            incoming = IncomingMessage(revised.message, policy, arrived, key)
            first = self._claims.find(revised.message.id)
            if first is None:
                claim = self._claims.claim(revised.message, stored_before=revised.stored_now)
                outcome = await self._answering.answer_alone(incoming, claim)
                if outcome.answered != "elsewhere" and outcome.reply_turn is None:
                    await self._restore(revised.message.id, revised.withdrawn, policy)
        if first is not None:
            self._queue.follow(key)
            await self._answering.follow(incoming, first)
        else:
            await self._answering.conclude(incoming, claim, outcome)

    async def choose(self, choice: ResponseChoose, policy: Policy) -> None:
        """Let another reply to the last message stand."""
        async with self._queue.one_at_a_time:
            event = await self._report_failure(self._choose(choice, policy), choice)
            if event is not None:
                self._caches.drop_history()
                self._callbacks.emit(event)

    async def _revise(self, revision: Revision, policy: Policy) -> RevisedMessage:
        await self._caches.roll_over_if_idle(policy)
        self._conversation.touch()
        revised = await self._exchange.revise(revision, policy)
        self._caches.drop_history()
        if not revised.stored_now:
            self._claims.find_same(revised.message)
        return revised

    async def _choose(self, choice: ResponseChoose, policy: Policy) -> ResponseChosen:
        await self._caches.roll_over_if_idle(policy)
        self._conversation.touch()
        return await self._exchange.choose(choice.message_id, choice.index, policy)

    async def _restore(self, message_id: str, index: int | None, policy: Policy) -> None:
        """Let the reply stand again in whose place none was made, if there was one."""
        if index is None:
            return
        try:
            event = await self._exchange.restore(message_id, index, policy)
        except ForemindError as error:  # something was forgotten meanwhile, or the database is away
            _log.warning("reply.not_restored", reason=error.code)
            return
        self._caches.drop_history()
        self._callbacks.emit(event)

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
