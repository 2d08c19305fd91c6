"""What a player changes of the last exchange of one session: its message, or the reply to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from foremind.auth.principal import Principal
from foremind.domain.errors import NotFound
from foremind.domain.policy import Policy
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.protocol.client_messages import (
    MessageEdit,
    MessageSend,
    ResponseRegenerate,
    Revision,
)
from foremind.gateway.protocol.server_events import ResponseChosen
from foremind.gateway.protocol.views import turn_view
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.memory.exchange_changes import ExchangeOwner
from foremind.storage.database import DatabaseConnection


class _Choose(Protocol):
    async def __call__(
        self, owner: ExchangeOwner, message_id: str, index: int, *, ingested: bool
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class RevisedMessage:
    """The message that is answered after a revision.

    Attributes:
        stored_now: it was stored in place of another one.
        withdrawn: the index of the reply that stood and can be chosen again; None if none did.
    """

    message: MessageSend
    stored_now: bool = False
    withdrawn: int | None = None


class SessionExchange:
    """Changes the last exchange of one session, while none of its messages is being answered.

    Afterwards nothing that this process caches is older than the change.

    Args:
        principal: returns who requests it.
        origin: by which other processes know the window.
    """

    def __init__(
        self,
        conversation: LiveConversation,
        services: SessionServices,
        session_policy: SessionPolicy,
        principal: Callable[[], Principal],
        origin: str,
    ) -> None:
        self._origin = origin
        self._conversation = conversation
        self._services = services
        self._session_policy = session_policy
        self._principal = principal

    async def revise(self, revision: Revision, policy: Policy) -> RevisedMessage:
        """Withdraw what a revision replaces; return the message that is to be answered.

        Raises:
            InvalidMessage: it does not name the last message.
            ForemindError: as `ExchangeChanges`.
        """
        if isinstance(revision, MessageEdit):
            revised = await self._edit(revision, policy)
        else:
            revised = await self._regenerate(revision, policy)
        await self._follow_change()
        return revised

    async def choose(self, message_id: str, index: int, policy: Policy) -> ResponseChosen:
        """Let one of the replies to the last message stand; return the event that says so.

        Raises:
            InvalidMessage: there is no such reply, or the message is not the last one.
            ForemindError: as `ExchangeChanges`.
        """
        return await self._let_stand(self._services.exchanges.choose, message_id, index, policy)

    async def restore(self, message_id: str, index: int, policy: Policy) -> ResponseChosen:
        """Let a reply stand again, unless another window chose one; do otherwise as `choose`."""
        return await self._let_stand(self._services.exchanges.restore, message_id, index, policy)

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

    async def _edit(self, edit: MessageEdit, policy: Policy) -> RevisedMessage:
        services, opened = self._services, self._conversation.opened
        now = services.runtime.clock.now()
        token = await services.authority.token_identity(self._principal())

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
        return RevisedMessage(message, stored_now=stored)

    async def _regenerate(self, request: ResponseRegenerate, policy: Policy) -> RevisedMessage:
        before = await self._services.exchanges.withdraw_reply(
            self._owner(policy), request.message_id, request.id
        )
        message = MessageSend(
            before.message_id, before.text, request.settings, before.kept, request.event_id
        )
        if before.reply is None:
            return RevisedMessage(message)
        earlier = [reply for reply in before.others if reply.position < before.reply.position]
        return RevisedMessage(message, withdrawn=len(earlier))

    def _owner(self, policy: Policy) -> ExchangeOwner:
        participants = self._conversation.participants
        return ExchangeOwner(
            participants.opened,
            (participants.user_name, self._session_policy.companion.name),
            self._principal().user_id,  # for the audit trail
            policy.storage.read_in_exchange,
            policy.consent != "assumed",
            self._origin,
        )

    async def _follow_change(self) -> None:
        """Have every cache and session of this process drop what was withdrawn.

        Announcements do that too, but a moment later, and the reply begins now.
        """
        await self._services.freshness.reconcile([self._conversation.opened.relationship_id])
