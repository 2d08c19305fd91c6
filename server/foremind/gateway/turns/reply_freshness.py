"""Whether a reply that began before its message was stored reflects what was in force then."""

from foremind.cluster.missed_changes import outdates_reply
from foremind.domain.companion import Companion
from foremind.domain.turn import InForce
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.session_caches import SessionCaches
from foremind.llm.prompt.token_counter import counter_for
from foremind.typeahead.context_cache import CacheKey, PreparedContext


class ReplyFreshness:
    """Compares what the replies of one session are made of with the database."""

    def __init__(
        self,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        services: SessionServices,
        caches: SessionCaches,
    ) -> None:
        self._conversation = conversation
        self._session_policy = session_policy
        self._services = services
        self._caches = caches

    async def ensure(self) -> None:
        """Compare what is cached of the relationship with the database, if that is due.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        relationship_id = self._conversation.opened.relationship_id
        if await self._services.freshness.ensure(relationship_id):
            await self._services.live_settings.settled(relationship_id)

    async def reflects(
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
        freshness, conversation = self._services.freshness, self._conversation
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
            self._caches.drop_history()
            changed = True
        await self._services.live_settings.settled(relationship_id)
        changed |= companion is not self._session_policy.companion
        if changed:
            count = counter_for(self._session_policy.policy.layers.tokenizer)
            language = self._session_policy.prompt_language
            await self._services.context.layer_cache.load(relationship_id, count, language)
        return not changed


def _is_older(key: CacheKey, in_force: InForce) -> bool:
    """Return whether a context was made of older memories or layers than were in force. Pure."""
    versions = in_force.versions.relationship
    return (
        key.memory_version < versions.memory_version or key.layers_version < versions.layers_version
    )
