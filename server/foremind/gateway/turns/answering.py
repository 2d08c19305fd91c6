"""Answering a message: by whoever claimed it, alone in its session; failures are reported."""

import asyncio
from dataclasses import dataclass
from typing import Literal

import structlog

from foremind.domain.errors import ForemindError
from foremind.gateway.deduplication import MessageClaim
from foremind.gateway.protocol.decoding import cause_of
from foremind.gateway.reply_generation import RunningTurn
from foremind.gateway.turns.acceptance import Acceptance
from foremind.gateway.turns.following import Following
from foremind.gateway.turns.message_claims import MessageClaims
from foremind.gateway.turns.message_commit import MessageCommit
from foremind.gateway.turns.reply_delivery import ReplyDelivery
from foremind.gateway.turns.request_queue import RequestQueue
from foremind.gateway.turns.requests import IncomingMessage
from foremind.gateway.turns.session_callbacks import SessionCallbacks

_log = structlog.get_logger("foremind.gateway")


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


class Answering:
    """Answers the messages of one session, one at a time."""

    def __init__(
        self,
        queue: RequestQueue,
        claims: MessageClaims,
        commit: MessageCommit,
        acceptance: Acceptance,
        following: Following,
        delivery: ReplyDelivery,
        callbacks: SessionCallbacks,
    ) -> None:
        self._queue = queue
        self._claims = claims
        self._commit = commit
        self._acceptance = acceptance
        self._following = following
        self._delivery = delivery
        self._callbacks = callbacks

    async def answer(self, incoming: IncomingMessage, claim: MessageClaim) -> None:
        """Answer a claimed message, after those before it."""
        async with self._queue.one_at_a_time:
            outcome = await self.answer_alone(incoming, claim)
        await self.conclude(incoming, claim, outcome)

    async def follow(self, incoming: IncomingMessage, first: MessageClaim) -> None:
        """Report on a message that another connection has claimed.

        If it could not be stored there, it is answered here.
        """
        if not await self._following.connection(incoming, first):
            await self.answer(incoming, self._claims.claim(incoming.message))

    async def answer_alone(self, incoming: IncomingMessage, claim: MessageClaim) -> MessageOutcome:
        """Answer a claimed message, while no other of its session is; report a failure."""
        try:
            with structlog.contextvars.bound_contextvars(message_id=incoming.message.id):
                return await self._answer_or_fail(incoming, claim)
        except BaseException:
            self._claims.release(claim, None)
            raise

    async def conclude(
        self, incoming: IncomingMessage, claim: MessageClaim, outcome: MessageOutcome
    ) -> None:
        """Wait for the reply of another process, if one answers; if that died, answer here."""
        reply_turn, abandoned = outcome.reply_turn, False
        try:
            if outcome.answered == "elsewhere":
                reply_turn, abandoned = await self._following.process(incoming, claim)
        finally:
            self._claims.release(claim, reply_turn)
        if abandoned:
            self._queue.unfollow(incoming.key)
            await self.answer(incoming, self._claims.claim(incoming.message))

    async def _answer_or_fail(
        self, incoming: IncomingMessage, claim: MessageClaim
    ) -> MessageOutcome:
        message, outcome = incoming.message, MessageOutcome()
        try:
            outcome = await self._commit_and_reply(incoming, claim)
        except ForemindError as error:
            self._callbacks.fail(error, cause_of(message))
        except Exception as error:  # a defect must not end the session
            _log.exception("answer.failed", reason=type(error).__name__)
            failed = ForemindError("The message could not be answered.", param="id")
            self._callbacks.fail(failed, cause_of(message))
        if outcome.unanswered:
            # From here on it may be sent again, and is then answered after this.
            self._claims.release(claim, None)
            if incoming.key == ("message", message.id):  # nothing is restored then
                self._queue.end(incoming.key, asyncio.current_task())
            await self._claims.release_stored(message)
        return outcome

    async def _commit_and_reply(
        self, incoming: IncomingMessage, claim: MessageClaim
    ) -> MessageOutcome:
        committed = await self._commit.commit(incoming, claim)
        stored, started = committed.stored, committed.started
        if started is None:
            self._following.leave(incoming, stored)
            claim.accepted = True
            return MessageOutcome("before" if stored.answered else "elsewhere")
        self._acceptance.accept(incoming, stored, started)
        claim.accepted = True
        reply_turn = await self._delivery.deliver(
            RunningTurn(
                incoming.message,
                stored,
                started.reply,
                committed.policy,
                incoming.arrived,
                committed.erasures,
            )
        )
        return MessageOutcome(reply_turn=reply_turn)
