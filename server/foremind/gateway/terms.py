"""The terms of a session: with whom, under which settings, as of which versions."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from foremind.companions import Companion, CompanionSettings
from foremind.gateway.messages import MessageSend
from foremind.gateway.services import Services
from foremind.layers.held import RelationshipLayers
from foremind.policies import Policy, laid_over, policy_for, settings_of_users
from foremind.storage.turns import OpenedSession
from foremind.typeahead.prepare import Subject
from foremind.typeahead.prepared import Validity


class Terms:
    """The settings in force and the versions known, which others may change meanwhile."""

    def __init__(
        self,
        services: Services,
        user_name: str,
        companion: Companion,
        opened: OpenedSession,
        time_zone: ZoneInfo,
    ) -> None:
        self._services = services
        self._user_name = user_name
        self._plain_companion = companion
        self._relationship_id = opened.relationship_id
        self._memory_version = opened.memory_version
        self.time_zone = time_zone
        #: The name of the language model that answers; `offline` without one.
        self.model = services.voices.model_of(companion)
        self._configure(opened.settings)

    def observe_version(self, memory_version: int) -> None:
        """Learn the relationship's memory version; versions only rise."""
        self._memory_version = max(self._memory_version, memory_version)

    def policy_of(self, message: MessageSend) -> Policy:
        """Return the settings in force for one turn.

        Raises:
            InvalidMessage: it has settings of its own that it may not have.
        """
        self._held()
        if message.settings is None:
            return self.policy
        server = self._services.settings
        own = settings_of_users(message.settings, server)
        return policy_for(laid_over(self.companion.settings, own), server)

    def subject(self, policy: Policy | None = None) -> Subject:
        """Return whose memories a context is prepared from, and all that it depends on."""
        held = self._held()
        policy = policy or self.policy
        return Subject(
            self._relationship_id,
            self.companion.id,
            self._user_name,
            Validity(
                memory_version=self._memory_version,
                layers_version=-1 if held is None else held.version,
                companion_version=self.companion.version,
                model=self.model,
                embedding=self._services.embedding,
                limits=policy.recall,
                layers=policy.layers,
            ),
            self.time_zone,
        )

    def _held(self) -> RelationshipLayers | None:
        """Return what is held of the relationship, whose settings may have changed."""
        held = self._services.held.get(self._relationship_id)
        if held is not None and held.settings != self._own_settings:
            self._configure(held.settings)
        return held

    def _configure(self, own: CompanionSettings) -> None:
        """Lay the relationship's own settings over the companion's."""
        plain = self._plain_companion
        self._own_settings = own
        settings = laid_over(plain.settings, own)
        self.companion = plain if settings is plain.settings else replace(plain, settings=settings)
        self.policy = policy_for(self.companion.settings, self._services.settings)
