"""The terms of a session: with whom, under which settings, as of which versions."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from foremind.domain.companion import Companion, RelationshipSettings
from foremind.domain.policy import Policy, laid_over, policy_for
from foremind.domain.setting_levels import in_force, settings_of_turn
from foremind.domain.turn import OpenedSession
from foremind.gateway.live_settings import SharedValue
from foremind.gateway.protocol.messages import Consented, MessageSend
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.token_counter import counter_for
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import CacheKey


class SessionPolicy:
    """The settings in force and the versions known, which others may change meanwhile.

    Args:
        companion: with whom; an edit is in force from the next look at it on.
        own: what the relationship has of its own, likewise.
    """

    def __init__(
        self,
        services: SessionServices,
        user_name: str,
        companion: SharedValue[Companion],
        own: SharedValue[RelationshipSettings],
        opened: OpenedSession,
        time_zone: ZoneInfo,
    ) -> None:
        self._services = services
        self._user_name = user_name
        self._shared_companion = companion
        self._shared_own = own
        self._user_id = opened.user_id
        self._relationship_id = opened.relationship_id
        self._memory_version = opened.memory_version
        self._layers_version = opened.layers_version
        self.time_zone = time_zone
        self._consented = opened.consented
        self._configure()

    @property
    def companion(self) -> Companion:
        """Whom the session is with, and the settings in force."""
        self._look()
        return self._companion

    @property
    def policy(self) -> Policy:
        """The settings in force."""
        self._look()
        return self._policy

    @property
    def model(self) -> str:
        """The name of the language model that answers; `offline` without one."""
        return self._services.voices.model_of(self.policy.voice)

    @property
    def consent(self) -> Consented:
        """Whether the user agreed to be remembered; `assumed` where the companion does not ask."""
        if self.policy.consent == "assumed":
            return "assumed"
        return "given" if self._consented else "missing"

    def consented(self, *, given: bool) -> None:
        """Learn that the user agreed to be remembered, or no longer does."""
        self._consented = given

    def observe_version(self, memory_version: int) -> None:
        """Learn the relationship's memory version; versions only rise."""
        self._memory_version = max(self._memory_version, memory_version)

    def observe_layers(self, layers_version: int) -> None:
        """Learn the version of the relationship's layers, likewise."""
        self._layers_version = max(self._layers_version, layers_version)

    def forget_layers(self) -> None:
        """Hold no version of the layers for the newest: something may have been missed."""
        self._layers_version = -1

    def policy_of(self, message: MessageSend, *, player: bool) -> Policy:
        """Return the settings in force for one turn.

        Args:
            player: it is sent by a player, who may set less than an operator.

        Raises:
            InvalidMessage: it has settings of its own that it may not have.
        """
        if message.settings is None:
            return self.policy
        server = self._services.settings
        wider = self.companion.settings
        operators = laid_over(self._plain.settings, self._own.operator) if player else None
        own = settings_of_turn(message.settings, wider, server, operators)
        return policy_for(own, server)

    def subject(self, policy: Policy | None = None) -> RetrievalScope:
        """Return whose memories a context is prepared from, and all that it depends on."""
        held = self._services.held.get(self._relationship_id)
        companion = self.companion
        policy = policy or self._policy
        return RetrievalScope(
            self._relationship_id,
            companion.id,
            self._user_name,
            CacheKey(
                memory_version=self._memory_version,
                layers_version=self._layers_version if held is None else held.version,
                companion_version=companion.version,
                model=self._services.voices.model_of(policy.voice),
                embedding=self._services.embedding,
                limits=policy.recall,
                layers=policy.layers,
                deleted=self._services.library.deleted(companion.id),
            ),
            self.time_zone,
            self._user_id,
        )

    def _look(self) -> None:
        """Take in what changed since the last look."""
        if (
            self._plain is not self._shared_companion.value
            or self._own is not self._shared_own.value
        ):
            before = self._policy.layers.tokenizer
            self._configure()
            tokenizer = self._policy.layers.tokenizer
            if tokenizer != before:
                self._services.held.count_by(self._relationship_id, counter_for(tokenizer))

    def _configure(self) -> None:
        """Lay the relationship's own settings over the companion's."""
        self._plain, self._own = self._shared_companion.value, self._shared_own.value
        server = self._services.settings
        settings = in_force(self._plain.settings, self._own, server)
        self._companion = replace(self._plain, settings=settings)
        self._policy = policy_for(settings, server)
