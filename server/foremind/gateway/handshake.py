"""`session.open` and `session.update`: authentication, and which session a client gets."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import structlog

from foremind.auth.authority import require_scope
from foremind.auth.principal import Principal
from foremind.cards.card_fields import greetings_of
from foremind.cluster.ring import relationship_key
from foremind.domain.companion import Companion
from foremind.domain.errors import Interrupted, InvalidMessage, NotAllowed, RateLimited
from foremind.domain.policy import Policy, policy_for
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.turn_request import SessionChoice
from foremind.domain.user import UTC, PlayerHints, not_understood, read_hints
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.flow_control import AddressSlot
from foremind.gateway.protocol.client_messages import Resume, SessionOpen, SessionUpdate
from foremind.gateway.protocol.server_events import TurnView
from foremind.gateway.scene_session import SceneSession
from foremind.gateway.session import Session
from foremind.gateway.session_client import SessionClient
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_registry import PendingSession, SessionRegistry
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.prompt_language import prompt_language
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import load_ages

_RESUME_EXPECTED = "resume: expected the session_id and the seq of an event of a session"

_log = structlog.get_logger("foremind.gateway")


class Redirected(Exception):
    """Another gateway serves the session, at `url`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Handshake:
    """Opens, resumes and renews sessions.

    While a session waits for the database, a `PendingSession` collects the announcements for it.
    Its place is reserved before anything is read, and after the last read nothing is awaited
    before the client is sent `session.opened`.
    """

    def __init__(self, services: SessionServices, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry

    async def open(
        self,
        message: SessionOpen,
        token: str | None,
        listener: EventListener,
        address_slot: AddressSlot,
    ) -> Session | SceneSession:
        """Return the session that the client is now connected to; `session.opened` is sent.

        Args:
            token: a token that came with the connection instead of the message.
            address_slot: the connection's slot at its address.

        Raises:
            Redirected: another gateway serves it, and the client follows.
            NotAuthenticated, NotAllowed, NotFound: the client may not open the session.
            InvalidMessage: a field is wrong.
            Overloaded, RateLimited, Draining, Interrupted, StorageUnavailable: it may retry.
        """
        authority, registry = self._services.authority, self._registry
        principal = authority.authenticate_session(
            message.token or token,
            None if message.user is None else (message.user.id, message.user.name),
            message.companion,
        )
        if message.world is not None:
            return await self._join(principal, message, message.world, listener, address_slot)
        if not message.companion:
            raise InvalidMessage(
                "companion: expected a slug, or world and scene", param="companion"
            )
        resume = _resume_of(message)
        hints = read_hints(message.time_zone, message.language)
        if resume is None and message.resume is not None:
            hints = replace(hints, warnings=(*hints.warnings, not_understood(_RESUME_EXPECTED)))
        self._check_lockout(principal)
        self._check_owner(principal, message, resume)
        with registry.opening(principal) as pending:
            await authority.check_revoked(principal)
            address_slot.identify(host=principal.allows("host"))
            companion = await self._services.stores.companions.find_open(message.companion)
            _check_greeting(message, companion)
            pending.check()
            known = self._find(resume, pending, message.companion)
            if known is not None and resume is not None:
                return await self._resume(known, message, hints, resume, pending, listener)
            registry.reserve(pending)
            async with registry.read_slots:
                return await self._begin(message, hints, resume, companion, pending, listener)

    async def _join(
        self,
        principal: Principal,
        message: SessionOpen,
        world: str,
        listener: EventListener,
        address_slot: AddressSlot,
    ) -> SceneSession:
        """Let a player join a scene of a world.

        Raises:
            InvalidMessage: no scene is named.
            NotFound: there is no such world.
        """
        if message.scene is None:
            raise InvalidMessage("scene: expected the scene that is joined", param="scene")
        registry = self._registry
        self._check_lockout(principal)
        with registry.opening(principal) as pending:
            await self._services.authority.check_revoked(principal)
            address_slot.identify(host=principal.allows("host"))
            pending.check()
            registry.reserve(pending)
            window = SceneSession(
                self._services,
                registry.scenes,
                principal,
                world,
                message.scene,
                listener,
                sentences=message.sentences is True,
                contexts=message.contexts is not False,
            )
            registry.add_window(window, pending)
            try:
                await window.open()
                pending.check()
            except BaseException:
                registry.remove_window(window)
                raise
        _log.info("scene.joined", session_id=window.id)
        return window

    async def reload_history(self, session: Session) -> None:
        """Load the history of a session that dropped it while nobody was connected."""
        if not session.knows_history:
            async with self._registry.read_slots:
                await session.read_history()

    async def update(self, session: Session | SceneSession, message: SessionUpdate) -> None:
        """Apply `session.update`: a fresh token, a state patch, what is reported.

        In a scene there is no state: what is the case there is an event.

        Raises:
            InvalidMessage: there is nothing to do, or a field is wrong.
            NotAuthenticated: the token is wrong, expired or revoked.
            NotAllowed: the token belongs to another user, or lacks the companion or scope.
            Draining, NotFound, StorageUnavailable: the client may retry.
        """
        if (message.token, message.state, message.contexts, message.sentences) == (None,) * 4:
            raise InvalidMessage(
                "token: expected a token, a state, contexts or sentences", param="token"
            )
        if isinstance(session, SceneSession):
            if message.state is not None:
                raise InvalidMessage("state: expected none in a scene", param="state")
            if message.token is not None:
                await self._renew(session, "", message.token)
            session.update(message)
            return
        if message.token is not None:
            await self._renew(session.client, session.companion, message.token)
        if message.state is not None:
            require_scope(session.principal, "memory:write")
            await session.change_state(message.state)
        if message.contexts is not None:
            session.client.wants_contexts = message.contexts
        if message.sentences is not None:
            session.client.wants_sentences = message.sentences
        session.send_updated(message.event_id)

    def _check_owner(
        self, principal: Principal, message: SessionOpen, resume: Resume | None
    ) -> None:
        """Redirect a client that follows to the owner, unless it can resume without a gap here.

        One that was redirected already is served: the gateways differ on the owner for a moment, or
        the client cannot reach it.
        """
        if not message.follow or message.redirected:
            return
        owner = self._registry.membership.owner_elsewhere(
            relationship_key(principal.user_id, message.companion)
        )
        if owner is None:
            return
        known = None if resume is None else self._registry.find(resume.session_id, resume.seq)
        if (
            resume is None
            or known is None
            or not known.client.can_replay_after(resume.seq)
            or self._registry.draining
        ):
            raise Redirected(owner.url)

    def _check_lockout(self, principal: Principal) -> None:
        budget = self._registry.user_budget(principal.user_id)
        lockout_s = budget.lockout_s(self._services.runtime.clock.monotonic())
        if lockout_s:
            raise RateLimited(
                f"Too many messages before; retry in {lockout_s:.0f} s.", retry_after_s=lockout_s
            )

    async def _renew(self, session: SessionClient | SceneSession, slug: str, token: str) -> None:
        """Continue a session under another token of its user.

        Args:
            slug: of the companion whose session it is; "" in a scene.

        Raises:
            InvalidMessage: the server runs open.
            NotAuthenticated: the token is wrong, expired or revoked.
            NotAllowed: the token belongs to another user, or does not allow the companion.
            Draining, StorageUnavailable: the client may retry.
        """
        if self._services.runtime.settings.open_mode:
            raise InvalidMessage("token: this server does not use tokens", param="token")
        authority = self._services.authority
        principal = authority.verify_token(token)
        require_scope(principal, "chat")
        allowed = not slug or principal.may_open(slug)
        if principal.user_id != session.principal.user_id or not allowed:
            raise NotAllowed(
                "token: expected a token of this session's user that allows its companion",
                param="token",
            )
        with self._registry.opening(principal) as pending:
            await authority.check_revoked(principal)
            pending.check()
            session.renew(replace(principal, name=session.principal.name))
        _log.info("session.renewed")

    async def _resume(
        self,
        session: Session,
        message: SessionOpen,
        hints: PlayerHints,
        resume: Resume,
        pending: PendingSession,
        listener: EventListener,
    ) -> Session:
        """Resume a session of this process; without a replay if events are missing."""
        if session.client.has_newer(listener):  # its client has given this one up, and is back
            raise Interrupted("A newer connection has resumed the session; connect again.")
        session.client.renew(pending.principal)
        _apply(message, session)
        if message.greeting is not None:
            session.choose_greeting(message.greeting)
        if session.resume(listener, resume.seq, hints.warnings):
            _log.info("session.resumed", session_id=session.id)
            return session
        turns = await self._read_turns(session, pending)
        session.connect(listener, turns, hints.warnings)
        session.answer_last()
        return session

    async def _begin(
        self,
        message: SessionOpen,
        hints: PlayerHints,
        resume: Resume | None,
        companion: Companion,
        pending: PendingSession,
        listener: EventListener,
    ) -> Session:
        """Begin a session, or continue one that this process has no events of."""
        session = await open_session(
            self._services,
            pending.principal,
            companion,
            hints.time_zone or UTC,
            message.consent,
            language=hints.language_tag,
            known_id=None if resume is None else resume.session_id,
        )
        _apply(message, session)
        session.choose_greeting(message.greeting or 0)
        resumes = resume is not None and resume.session_id == session.id
        if resume is not None and resumes:
            session.client.continue_after(resume.seq)
            await session.announce_takeover()
        turns = await self._read_turns(session, pending)
        session.connect(listener, turns, hints.warnings)
        self._registry.add(session, pending)
        if resumes:
            session.answer_last()
        _log.info("session.opened", session_id=session.id, companion=message.companion)
        return session

    async def _read_turns(self, session: Session, pending: PendingSession) -> list[TurnView]:
        """Read the newest turns; repeat if some are erased meanwhile."""
        while True:
            turns = await session.read_recent_turns()
            pending.check()
            erasures = pending.take_erasures(session.relationship_id)
            if not erasures:
                return turns
            for erasure in erasures:
                session.forget(erasure)

    def _find(
        self, resume: Resume | None, pending: PendingSession, companion: str
    ) -> Session | None:
        """Return the session to resume, if this process has it.

        Raises:
            NotAllowed: it belongs to another user, or is with another companion.
        """
        session = None if resume is None else self._registry.find(resume.session_id, resume.seq)
        if session is None:
            return None
        owner = (session.principal.user_id, session.companion)
        if owner != (pending.principal.user_id, companion):
            raise NotAllowed(
                "resume.session_id: expected a session of this user with this companion",
                param="resume.session_id",
            )
        return session


def _resume_of(message: SessionOpen) -> Resume | None:
    """Return the session to resume, None if there is none, or it is not told as was expected."""
    try:
        return msgspec.convert(message.resume, Resume, strict=False)  # which takes 9.0 for 9
    except msgspec.ValidationError:
        return None


def _apply(message: SessionOpen, session: Session) -> None:
    """Record what the client of a session does, and what it wants."""
    session.follows, session.stays = bool(message.follow), bool(message.redirected)
    session.client.wants_contexts = message.contexts is not False
    session.client.wants_sentences = message.sentences is True


def _check_greeting(message: SessionOpen, companion: Companion) -> None:
    """Check that the companion has the greeting that is asked for.

    Raises:
        InvalidMessage: it has not.
    """
    greetings = len(greetings_of(companion))
    if message.greeting is not None and message.greeting >= greetings:
        raise InvalidMessage(
            f"greeting: expected a number from 0 to {greetings - 1}", param="greeting"
        )


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
