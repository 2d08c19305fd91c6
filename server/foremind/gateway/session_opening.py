"""Opening a session: what it is made of is read from the database, and loaded into caches."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from foremind.auth.principal import Principal
from foremind.domain.companion import Companion
from foremind.domain.policy import Policy, policy_for
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.turn_request import SessionChoice
from foremind.gateway.event_stream import EventStream
from foremind.gateway.session import Session
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.prompt_language import prompt_language
from foremind.text.languages.language_files import ENGLISH
from foremind.text.time_ago import load_ages


async def open_session(
    services: SessionServices,
    principal: Principal,
    companion: Companion,
    time_zone: ZoneInfo,
    consent: bool | None = None,
    choice: SessionChoice = "current",
    earlier: Sequence[PastTurn] = (),
    language: str | None = None,
    known_id: str | None = None,
) -> Session:
    """Open a session for an authenticated principal, without a connection yet.

    Args:
        consent: whether the user agrees to be remembered, None if not stated.
        choice: which stored session to continue, or to begin one.
        earlier: what was said before its turns; not stored.
        language: the player's, if stated; else the one that was stated last.
        known_id: of the window that its client wants to resume.

    Raises:
        StorageUnavailable: the database did not answer.
    """
    changes = services.live_settings.changes
    policy = await _policy(services, principal, companion)
    await services.chat_models.prepare(policy.chat_model)
    opened = await services.stores.turns.open_session(
        principal.effective_user_id,
        principal.name,
        companion.id,
        services.runtime.clock.now(),
        time_zone.key,
        timedelta(0) if choice == "new" else policy.layers.session,
        consent,
        choice if isinstance(choice, UUID) else None,
        language,
    )
    await services.freshness.ensure(opened.relationship_id)
    language_of_prompts = await prompt_language(
        services.stores.turns, opened.language, opened.relationship_id, opened.session_id
    )
    await _load_context(services, opened.relationship_id, companion, policy, language_of_prompts)
    stream = EventStream(services.runtime.settings.resume_s, services.runtime.clock)
    session_policy = SessionPolicy(
        services,
        principal.name,
        await services.live_settings.companion(companion),
        await services.live_settings.settings(opened.relationship_id, opened.settings, changes),
        opened,
        time_zone,
        language_of_prompts,
    )
    return Session(services, principal, session_policy, opened, None, stream, earlier, known_id)


async def _policy(services: SessionServices, principal: Principal, companion: Companion) -> Policy:
    """Return the settings in force before the session is opened."""
    overrides = await services.stores.relationships.settings_with_companion(
        principal.effective_user_id, companion.id
    )
    settings = effective_settings(companion.settings, overrides, services.runtime.settings)
    return policy_for(settings, services.runtime.settings)


async def _load_context(
    services: SessionServices,
    relationship_id: int,
    companion: Companion,
    policy: Policy,
    language: str,
) -> None:
    """Load what contexts are made of; the index goes on loading meanwhile."""
    services.context.index.load(relationship_id)
    count = counter_for(policy.layers.tokenizer)
    await services.context.layer_cache.load(relationship_id, count, language)
    if language != ENGLISH:
        await asyncio.to_thread(load_ages, language)
    await services.context.library.load(companion.id)
