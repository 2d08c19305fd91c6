"""The lore of one session: its contexts depend on the conversation, if there is a lorebook."""

from dataclasses import replace
from functools import partial

import msgspec

from foremind.domain.policy import Policy
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.session_policy import SessionPolicy
from foremind.llm.prompt.character import macro_values
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.draft_lore import DraftLore, lore_for, mark_of
from foremind.typeahead.lorebooks import Lorebooks, has_lorebook

_UNKNOWN = (-1, 0)  # the mark of a history that is not loaded: no context was made after it


class SessionLore:
    """Extends the retrieval scope of a session by what its drafts activate of the lorebook."""

    def __init__(
        self,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        lorebooks: Lorebooks,
    ) -> None:
        self._conversation = conversation
        self._session_policy = session_policy
        self._lorebooks = lorebooks

    def retrieval_scope(
        self, policy: Policy | None = None, message_id: str | None = None
    ) -> RetrievalScope:
        """Return whose memories are searched, and the cache key of the contexts.

        Args:
            policy: the settings of a turn; by default those of the session.
            message_id: the message in progress, which is no part of the conversation before it.
        """
        scope = self._session_policy.retrieval_scope(policy)
        if not has_lorebook(self._session_policy.companion):
            return scope
        history = self._conversation.history
        mark = mark_of(history.without(message_id)) if history.known else _UNKNOWN
        return replace(
            scope,
            cache_key=msgspec.structs.replace(scope.cache_key, history=mark),
            lore=partial(self._lore, policy or self._session_policy.policy, message_id),
        )

    async def for_next_draft(self) -> DraftLore:
        """Return what is active before the next message is typed."""
        return await self.retrieval_scope().lore("")

    async def _lore(self, policy: Policy, message_id: str | None, draft: str) -> DraftLore:
        """Return what a draft activates.

        Raises:
            StorageUnavailable: the conversation could not be read.
        """
        conversation, companion = self._conversation, self._session_policy.companion
        await conversation.read_history(message_id)
        return await lore_for(
            self._lorebooks,
            companion,
            policy.layers,
            macro_values(
                companion,
                conversation.participants.user_name,
                str(conversation.opened.session_id),
            ),
            conversation.history.without(message_id),
            draft,
        )
