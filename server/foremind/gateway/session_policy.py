"""The settings in force in a session, and the versions that its contexts depend on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple
from zoneinfo import ZoneInfo

from foremind.domain.companion import Companion
from foremind.domain.policy import Policy, overlay_settings, policy_for
from foremind.domain.settings.setting_levels import (
    decode_values,
    effective_settings,
    merge_turn_settings,
    read_settings,
    setting_origins,
)
from foremind.domain.settings.settings import RelationshipSettings
from foremind.domain.turn import OpenedSession
from foremind.gateway.live_settings import SharedValue
from foremind.gateway.protocol.client_messages import MessageSend, Revision
from foremind.gateway.protocol.server_events import ConsentStatus
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.token_counter import counter_for
from foremind.text.languages.language_files import ENGLISH
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import CacheKey


class _Versions(NamedTuple):
    memory: int
    layers: int
    document_deletions: int
    epoch: int


@dataclass(frozen=True, slots=True)
class _KnownScope:
    """The scope of the newest versions, and what it was made of."""

    companion: Companion
    policy: Policy
    versions: _Versions
    scope: RetrievalScope

    def is_of(self, companion: Companion, policy: Policy) -> bool:
        return self.companion is companion and self.policy is policy


class SessionPolicy:
    """The effective settings and known versions of one session; others may change both.

    Args:
        companion: the shared companion; edits apply from the next access on.
        overrides: the relationship's own settings, likewise.
        prompt_language: of the session's prompts.
    """

    def __init__(
        self,
        services: SessionServices,
        user_name: str,
        companion: SharedValue[Companion],
        overrides: SharedValue[RelationshipSettings],
        opened: OpenedSession,
        time_zone: ZoneInfo,
        prompt_language: str = ENGLISH,
    ) -> None:
        self._services = services
        self._user_name = user_name
        self._shared_companion = companion
        self._shared_overrides = overrides
        self._user_id = opened.user_id
        self._relationship_id = opened.relationship_id
        self._memory_version = opened.memory_version
        self._epoch = 0  # of the versions: they mean other contents after they went back
        self._layers_version = opened.layers_version
        self.time_zone = time_zone
        self.prompt_language = prompt_language
        self.language = opened.language or ENGLISH
        self._consented = opened.consented
        self._scope: _KnownScope | None = None
        self._resolve()

    @property
    def companion(self) -> Companion:
        """The session's companion, with the effective settings."""
        self._refresh()
        return self._companion

    @property
    def policy(self) -> Policy:
        """The settings in force."""
        self._refresh()
        return self._policy

    @property
    def model(self) -> str:
        """The name of the language model that answers; `offline` without one."""
        return self._services.chat_models.model_name_for(self.policy.chat_model)

    @property
    def consent(self) -> ConsentStatus:
        """The user's consent to be remembered; `assumed` if the companion does not require it."""
        if self.policy.consent == "assumed":
            return "assumed"
        return "given" if self._consented else "missing"

    def set_consent(self, *, given: bool) -> None:
        """Record that the user gave or withdrew consent to be remembered."""
        self._consented = given

    def observe_memory_version(self, memory_version: int) -> None:
        """Record the relationship's memory version; older versions are ignored."""
        self._memory_version = max(self._memory_version, memory_version)

    def observe_layers_version(self, layers_version: int) -> None:
        """Record the version of the relationship's layers, likewise."""
        self._layers_version = max(self._layers_version, layers_version)

    def go_back(self, memory_version: int) -> None:
        """Record that the database may have lost commits: nothing prepared before counts."""
        self._epoch += 1
        self._memory_version = memory_version
        self.forget_layers_version()

    def forget_layers_version(self) -> None:
        """Reset the layers version to unknown: a change may have been missed."""
        self._layers_version = -1

    def policy_of(self, message: MessageSend | Revision, *, player: bool) -> Policy:
        """Return the settings in force for one turn.

        Args:
            player: whether a player sent it, who may override less than an operator.

        Raises:
            InvalidMessage: a setting may not be overridden in a message.
        """
        if message.settings is None:
            return self.policy
        server = self._services.runtime.settings
        companion_settings = self.companion.settings
        bounds = overlay_settings(self._base.settings, self._overrides.operator) if player else None
        settings = merge_turn_settings(message.settings, companion_settings, server, bounds)
        return policy_for(settings, server)

    def settings_of(
        self, message: MessageSend | Revision
    ) -> Callable[[], dict[str, dict[str, object]]]:
        """Return what shows the settings in force for one turn, also when others are by then."""
        self._refresh()
        companion, overrides = self._base.settings, self._overrides
        server, raw = self._services.runtime.settings, message.settings

        def shown() -> dict[str, dict[str, object]]:
            turn = None if raw is None else read_settings(decode_values(raw))
            return setting_origins(companion, overrides, server, turn)

        return shown

    def retrieval_scope(self, policy: Policy | None = None) -> RetrievalScope:
        """Return whose memories are searched, and the cache key of the contexts.

        It is made anew only where something in it changed.

        Args:
            policy: the settings of a turn; by default those of the session.
        """
        context = self._services.context
        companion = self.companion
        policy = policy or self._policy
        layers = context.layer_cache.get(self._relationship_id)
        versions = _Versions(
            self._memory_version,
            self._layers_version if layers is None else layers.version,
            context.library.deletion_count(companion.id),
            self._epoch,
        )
        known = self._scope
        if known is None or known.versions != versions or not known.is_of(companion, policy):
            known = self._scope = _KnownScope(
                companion, policy, versions, self._new_scope(companion, policy, versions)
            )
        return known.scope

    def _new_scope(
        self, companion: Companion, policy: Policy, versions: _Versions
    ) -> RetrievalScope:
        return RetrievalScope(
            self._relationship_id,
            companion.id,
            self._user_name,
            CacheKey(
                epoch=versions.epoch,
                memory_version=versions.memory,
                layers_version=versions.layers,
                companion_version=companion.version,
                model=self._services.chat_models.model_name_for(policy.chat_model),
                embedding=self._services.context.embedder.manifest.fingerprint,
                recall_policy=policy.recall,
                layer_policy=policy.layers,
                document_deletions=versions.document_deletions,
                language=self.prompt_language,
            ),
            self.time_zone,
            self._user_id,
            language=self.language,
        )

    def _refresh(self) -> None:
        """Resolve the settings again if the companion or the overrides changed."""
        if (
            self._base is not self._shared_companion.value
            or self._overrides is not self._shared_overrides.value
        ):
            before = self._policy.layers.tokenizer
            self._resolve()
            tokenizer = self._policy.layers.tokenizer
            if tokenizer != before:
                self._services.context.layer_cache.set_token_counter(
                    self._relationship_id, counter_for(tokenizer)
                )

    def _resolve(self) -> None:
        """Apply the relationship's overrides to the companion's settings."""
        self._base, self._overrides = self._shared_companion.value, self._shared_overrides.value
        server = self._services.runtime.settings
        settings = effective_settings(self._base.settings, self._overrides, server)
        self._companion = replace(self._base, settings=settings)
        self._policy = policy_for(settings, server)
