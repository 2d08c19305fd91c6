"""What a player changes of the last exchange of one session: its message, or the reply to it.

Each change waits its turn, and is reported; a message that it leaves unanswered is then answered.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog

from foremind.domain.errors import ForemindError, NotFound
from foremind.domain.policy import Policy
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.protocol.client_messages import (
    MessageEdit,
    MessageSend,
    ResponseChoose,
    ResponseRegenerate,
    Revision,
)
from foremind.gateway.protocol.server_events import ResponseChosen
from foremind.gateway.protocol.views import turn_view
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.answering import Answering, SessionCallbacks
from foremind.gateway.turns.request_queue import IncomingMessage, RequestKey
from foremind.memory.exchange_changes import ExchangeOwner
from foremind.storage.database import DatabaseConnection

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


class SessionExchange:
    """Changes the last exchange of one session between two messages, and answers it.

    Afterwards nothing that this process caches is older than the change.
    """

    def __init__(
        self,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        services: SessionServices,
        answering: Answering,
        callbacks: SessionCallbacks,
    ) -> None:
        self._conversation = conversation
        self._session_policy = session_policy
        self._services = services
        self._answering = answering
        self._callbacks = callbacks

    async def revise(
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

    async def choose(self, choice: ResponseChoose, policy: Policy) -> None:
        """Let another reply to the last message stand."""
        async with self._answering.queue.one_at_a_time:
            event = await self._report_failure(self._choose(choice, policy), choice)
            if event is not None:
                self._answering.drop_history()
                self._callbacks.emit(event)

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
        self._callbacks.emit(event)

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
        token = await services.authority.token_identity(self._callbacks.principal())

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
        message = MessageSend(edit.id, edit.text, edit.settings, edit.remember, edit.event_id)
        return _RevisedMessage(message, stored_now=stored)

    async def _regenerate(self, request: ResponseRegenerate, policy: Policy) -> _RevisedMessage:
        before = await self._services.exchanges.withdraw_reply(
            self._owner(policy), request.message_id, request.id
        )
        message = MessageSend(
            before.message_id, before.text, request.settings, before.kept, request.event_id
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
            self._callbacks.principal().user_id,  # for the audit trail
            policy.storage.read_in_exchange,
            policy.consent != "assumed",
            self._callbacks.origin,
        )

    async def _follow_change(self) -> None:
        """Have every cache and session of this process drop what was withdrawn.

        Announcements do that too, but a moment later, and the reply begins now.
        """
        await self._services.freshness.reconcile([self._conversation.opened.relationship_id])
