"""One open session: drafts before Enter, the conversation after it, and its announcements."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from cachetools import LRUCache
from msgspec.structs import replace

from foremind.auth.principal import Principal
from foremind.cluster.rendezvous import relationship_key
from foremind.domain.announcements import (
    LayersChanged,
    MemoryAnnouncement,
    ReplyStored,
    SessionTaken,
)
from foremind.domain.companion import Companion
from foremind.domain.errors import (
    ForemindError,
    InvalidMessage,
    NotAuthenticated,
    StorageUnavailable,
)
from foremind.domain.policy import Policy, policy_for
from foremind.domain.prefetch import Trigger
from foremind.domain.session_state import StatePatch
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.turn import OpenedSession
from foremind.domain.turn_request import SessionChoice
from foremind.gateway.conversation import LiveConversation, Participants
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.flow_control import limits_of
from foremind.gateway.live_state import LiveState
from foremind.gateway.protocol.decoding import DecodingProblem, error_body
from foremind.gateway.protocol.messages import (
    ClientMessage,
    DraftClear,
    DraftUpdate,
    ErrorEvent,
    Event,
    MessageAccepted,
    MessageEdit,
    MessageSend,
    ResponseCancel,
    ResponseChoose,
    ResponseRegenerate,
    Revision,
    SessionOpen,
    SessionOpened,
    SessionRedirect,
    SessionUpdate,
    SummaryAppliedEvent,
    TurnStored,
    TurnView,
)
from foremind.gateway.protocol.views import turn_view
from foremind.gateway.reply_generation import ReplyGeneration, RunningTurn
from foremind.gateway.session_events import (
    context_ready,
    memory_stored,
    session_opened,
    session_updated,
)
from foremind.gateway.session_lore import SessionLore
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.last_exchange import SessionExchange
from foremind.gateway.turns.session_callbacks import SessionCallbacks
from foremind.gateway.turns.turn_pipeline import TurnPipeline
from foremind.llm.prompt.character import greeting_of
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.token_counter import counter_for
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter, PrefetchCallbacks, Prefetcher

NOT_AUTHENTICATED = 4401
REPLACED = 4409
ELSEWHERE = 4421  # as HTTP's 421, Misdirected Request

_RECENT_TURNS = 30  # sent to the client when a session opens
_MAX_OWN_MESSAGES = 512  # message ids for which this session reports memory.stored
_MAX_UNSENT_TURNS = 512
_ABSENT = object()
_Said = TypeVar("_Said", MessageSend, MessageEdit)


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as operators see it; `busy` while it answers a message."""

    session_id: str
    user: str
    companion: str
    connected: bool
    busy: bool


class Session:
    """Handles the messages and announcements of one session without blocking.

    A session outlives its connection: events are buffered until a client resumes it.
    """

    def __init__(
        self,
        services: SessionServices,
        principal: Principal,
        session_policy: SessionPolicy,
        opened: OpenedSession,
        turns: list[PastTurn] | None,
        stream: EventStream,
        earlier: Sequence[PastTurn] = (),
    ) -> None:
        self._services = services
        self.principal = principal
        self._session_policy = session_policy
        self._opened = opened
        self._stream = stream
        #: Distinguishes this session's announcements from those of others with the same id.
        self.origin = uuid4().hex
        #: Monotonic time at which the connection was lost; None while connected.
        self.detached_at: float | None = services.runtime.clock.monotonic()
        #: Passes turns to other windows of this session; set by the registry.
        self.on_turn: Callable[[PastTurn], None] = lambda _: None
        #: Called with each reply that is about to be sent; set by whoever needs its prompt.
        self.on_reply: Callable[[RunningTurn], None] = lambda _: None
        #: Whether its client follows redirects; and whether it stays here, having been redirected.
        self.follows = self.stays = False
        self._active_at = services.runtime.clock.monotonic()
        #: Turns of other windows that were not reported to the client yet.
        self._unsent_turns: LRUCache[int, None] = LRUCache(_MAX_UNSENT_TURNS)
        self._own_messages: LRUCache[str, None] = LRUCache(_MAX_OWN_MESSAGES)
        #: Own messages that were accepted, and whose memory.stored is still to come.
        self._unscored: LRUCache[str, None] = LRUCache(_MAX_OWN_MESSAGES)
        self._state = LiveState(services.stores.states, opened.relationship_id, opened.session_id)
        self._conversation = LiveConversation(
            Participants(opened, principal.name, session_policy.time_zone),
            turns,
            self._state,
            lambda: session_policy.policy,
            services.stores.turns,
            services.runtime.clock,
            self._share_turn,
            earlier,
        )
        self._lore = SessionLore(self._conversation, session_policy, services.context.lorebooks)
        self._prefetcher = self._new_prefetcher()
        self._pipeline = self._new_pipeline()

    @classmethod
    async def open(
        cls,
        services: SessionServices,
        principal: Principal,
        companion: Companion,
        time_zone: ZoneInfo,
        consent: bool | None = None,
        choice: SessionChoice = "current",
        earlier: Sequence[PastTurn] = (),
    ) -> "Session":
        """Open a session for an authenticated principal, without a connection yet.

        Args:
            consent: whether the user agrees to be remembered, None if not stated.
            choice: which stored session to continue, or to begin one.
            earlier: what was said before its turns; not stored.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        changes = services.live_settings.changes
        overrides = await services.stores.relationships.settings_with_companion(
            principal.effective_user_id, companion.id
        )
        settings = effective_settings(companion.settings, overrides, services.runtime.settings)
        policy = policy_for(settings, services.runtime.settings)
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
        )
        await services.freshness.ensure(opened.relationship_id)
        services.context.index.load(opened.relationship_id)
        await services.context.layer_cache.load(
            opened.relationship_id, counter_for(policy.layers.tokenizer)
        )
        await services.context.library.load(companion.id)
        stream = EventStream(services.runtime.settings.resume_s, services.runtime.clock)
        session_policy = SessionPolicy(
            services,
            principal.name,
            await services.live_settings.companion(companion),
            await services.live_settings.settings(opened.relationship_id, opened.settings, changes),
            opened,
            time_zone,
        )
        return cls(services, principal, session_policy, opened, None, stream, earlier)

    @property
    def id(self) -> str:
        """The session's identifier."""
        return str(self._opened.session_id)

    @property
    def relationship_id(self) -> int:
        """The relationship whose memories this session uses."""
        return self._opened.relationship_id

    @property
    def companion(self) -> str:
        """The slug of the companion."""
        return self._session_policy.companion.slug

    @property
    def policy(self) -> Policy:
        """The settings in force."""
        return self._session_policy.policy

    @property
    def time_zone(self) -> ZoneInfo:
        """The player's time zone."""
        return self._session_policy.time_zone

    @property
    def busy(self) -> bool:
        """True while a message is unanswered."""
        return self._pipeline.busy

    @property
    def finished(self) -> bool:
        """True once every message is answered and scored, so that no event is to be expected."""
        return not self.busy and not self._unscored

    @property
    def key(self) -> bytes:
        """The key of its relationship, which says which gateway owns it."""
        return relationship_key(self.principal.effective_user_id, self.companion)

    def idle_s(self, now: float) -> float:
        """Return how long ago the client last sent something, or connected."""
        return now - self._active_at

    @property
    def knows_history(self) -> bool:
        """Whether the history is loaded, and need not be read at Enter."""
        return self._conversation.history.known

    async def settle(self) -> None:
        """Wait until every message is answered, here or elsewhere, or has failed."""
        await self._pipeline.settle()

    def snapshot(self) -> SessionSnapshot:
        """Return the session as operators see it."""
        return SessionSnapshot(
            self.id,
            self.principal.effective_user_id,
            self.companion,
            self.detached_at is None,
            self.busy,
        )

    async def read_recent_turns(self) -> list[TurnView]:
        """Load history and state, and return the newest turns for the client.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        await self._conversation.read_history()
        turns = await self._services.stores.turns.recent_turns(self.relationship_id, _RECENT_TURNS)
        await self._state.read()
        return [turn_view(turn) for turn in turns]

    async def read_history(self) -> None:
        """Load the history unless it is loaded."""
        with suppress(StorageUnavailable):  # then it is loaded with the next message
            await self._conversation.read_history()

    def connect(self, listener: EventListener, turns: list[TurnView]) -> None:
        """Attach a connection, and send it `session.opened` with the newest turns."""
        self._attach(listener)
        self._stream.emit(self._opened_event(turns))

    def resume(self, listener: EventListener, seq: int) -> bool:
        """Attach a connection that has every event up to `seq`, and send it those it missed.

        Return False, without any effect, if some of them are no longer buffered.
        """
        missed = self._stream.missed(seq)
        if missed is None:
            return False
        self._attach(listener)
        event = self._opened_event([], resumed=True)
        event.seq = seq
        self._stream.send_unnumbered(event)
        self._stream.replay(missed)
        return True

    def can_replay_after(self, seq: int) -> bool:
        """Return whether every event after `seq` is still buffered."""
        return self._stream.missed(seq) is not None

    def continue_after(self, seq: int) -> None:
        """Number events from here on: the client has events that this process never buffered."""
        self._stream.seq = seq

    async def announce_takeover(self) -> None:
        """Tell other processes that have this session that it is used here now."""
        await self._services.stores.turns.announce(SessionTaken(self.id, self.origin))

    def detach(self, listener: EventListener) -> None:
        """Handle the loss of a connection: replies continue, the draft is discarded."""
        if self._stream.listener is not listener:
            return
        self._stream.attach(None)
        self.detached_at = self._services.runtime.clock.monotonic()
        self._prefetcher.clear()
        self._pipeline.on_draft("")
        self._pipeline.release_history()

    def disconnect(self, code: int, reason: str) -> None:
        """Close the connection, if there is one, once its queue is sent."""
        if self._stream.listener is not None:
            self._stream.listener.close(code, reason)

    def redirect(self, url: str) -> None:
        """Tell the client which gateway serves this session now, and close the connection."""
        self._stream.emit(SessionRedirect(url=url))
        self.disconnect(ELSEWHERE, "served by another gateway")

    def renew(self, principal: Principal) -> None:
        """Continue under another token of the same user, which may allow less."""
        self.principal = principal
        if not principal.allows("memory:read"):
            self._stream.withhold_memories()

    def choose_greeting(self, number: int) -> None:
        """Let the conversation begin with another of the companion's greetings."""
        self._conversation.greeting = number

    def send_updated(self, event_id: str | None) -> None:
        """Confirm a `session.update`."""
        self._stream.emit(session_updated(self.principal, self._state.value, event_id))

    def handle(self, message: ClientMessage, arrived: float) -> None:
        """Handle a message that arrived at monotonic time `arrived`.

        Raises:
            RequestError, TemporaryError: to be sent to the client.
        """
        self._active_at = arrived
        match message:
            case DraftUpdate():
                self._prefetcher.update(message.text)
                self._pipeline.on_draft(message.text)
            case DraftClear():
                self._prefetcher.clear()
                self._pipeline.on_draft("")
            case MessageSend():
                self._send(message, arrived)
            case MessageEdit() | ResponseRegenerate():
                self._revise(message, arrived)
            case ResponseChoose():
                self._pipeline.choose(message, self._session_policy.policy)
            case ResponseCancel():
                if not self._pipeline.cancel(message.response_id):
                    raise InvalidMessage(
                        "response_id: expected the reply in progress", param="response_id"
                    )
            case SessionOpen() | SessionUpdate():
                raise InvalidMessage(
                    "type: this session is open already", param="type", code="already_open"
                )

    def _send(self, message: MessageSend, arrived: float) -> None:
        message = self._admit(message)
        self._pipeline.send(message, self._policy_of(message), arrived)

    def _revise(self, revision: Revision, arrived: float) -> None:
        if isinstance(revision, MessageEdit):
            revision = self._admit(revision)
        self._pipeline.revise(revision, self._policy_of(revision), arrived)

    def _admit(self, message: _Said) -> _Said:
        """Check what the player says, and return it as it may be remembered."""
        if not message.text.strip():
            raise InvalidMessage("text: expected text that is not blank", param="text")
        self._own_messages[message.id] = None
        if self._session_policy.consent == "missing":
            message = replace(message, remember=False)
        return message

    def _policy_of(self, message: MessageSend | Revision) -> Policy:
        return self._session_policy.policy_of(message, player=not self.principal.admin)

    def fail(self, error: ForemindError, cause: DecodingProblem) -> None:
        """Report an error about something that the client sent."""
        self._services.runtime.metrics.errors.labels(error.code).inc()
        self._stream.emit(ErrorEvent(error=error_body(error, cause)))

    async def change_state(self, patch: StatePatch) -> None:
        """Change the session state.

        Raises:
            InvalidMessage: there would be too many flags.
            NotFound: the session has ended.
            StorageUnavailable: nothing was changed.
        """
        await self._pipeline.roll_over_if_idle(self._session_policy.policy)
        await self._state.change(patch, self._services.runtime.clock.now())

    async def read_state(self) -> None:
        """Reload the state, which was changed elsewhere."""
        self._state.invalidate()
        with suppress(StorageUnavailable):  # then it is loaded with the next message
            await self._state.read()

    async def read_reply(self, turn_id: int) -> None:
        """Load and report a reply that another connection began."""
        try:
            turn = await self._services.stores.turns.find(self.relationship_id, turn_id)
        except StorageUnavailable:
            self._pipeline.drop_history()
            return
        if turn is not None:
            past = PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
            unsent = self._unsent_turns.pop(turn.id, _ABSENT) is not _ABSENT
            if self._conversation.history.add_remote(past) or unsent:
                self._stream.emit(TurnStored(turn=turn_view(turn)))

    def add_remote_turn(self, turn: PastTurn) -> None:
        """Add a turn from another window of this session."""
        if self._conversation.history.add_remote(turn) and turn.id is not None:
            self._unsent_turns[turn.id] = None
            self._pipeline.drop_speculation()  # its prompts lack this turn

    def on_turn_scored(self, announcement: MemoryAnnouncement) -> None:
        """Handle the scoring of a turn of this relationship, here or in another process."""
        if announcement.memory_version is not None:
            self.observe_memory_version(announcement.memory_version)
        message_id = announcement.message_id
        if (
            message_id is not None
            and message_id not in self._own_messages
            and self._pipeline.lacks(message_id, announcement.speaker)
        ):
            self._pipeline.drop_history()  # another process has a window of this session
        if announcement.speaker != "user" or message_id is None:
            return
        self._unscored.pop(message_id, None)
        if message_id in self._own_messages:
            self._stream.emit(memory_stored(announcement))

    def drop_history(self) -> None:
        """Drop history and state, which may have changed elsewhere; both are loaded again."""
        self._pipeline.drop_history()
        self._state.invalidate()
        self._unscored.clear()  # what they were scored may have been missed

    def observe_memory_version(self, memory_version: int) -> None:
        """Record a change of the relationship's memories, which makes contexts stale."""
        self._session_policy.observe_memory_version(memory_version)

    def set_consent(self, *, given: bool) -> None:
        """Record that the user gave or withdrew consent to be remembered."""
        self._session_policy.set_consent(given=given)

    def on_layers_changed(self, announcement: LayersChanged) -> None:
        """Handle a change of the relationship's records, here or in another process."""
        self._session_policy.observe_layers_version(announcement.layers_version)
        self._pipeline.on_layers()
        summary = announcement.summary
        if summary is not None:
            self._stream.emit(
                SummaryAppliedEvent(
                    messages=summary.messages, lines=summary.lines, made_by=summary.made_by
                )
            )

    def on_memories_erased(self, memory_version: int, erasures: int) -> None:
        """Drop everything cached that may contain erased text.

        Args:
            erasures: the number of erasures in this relationship so far.
        """
        self._session_policy.observe_memory_version(memory_version)
        self._drop_cached(erasures)

    def stop_reply(self) -> None:
        """Stop the reply in progress; what was generated so far is stored."""
        self._pipeline.stop_reply()

    def prune(self) -> None:
        """Drop expired events."""
        self._stream.prune()

    async def close(self) -> None:
        """End the session: stop prefetching and generating, store what was said, drop the rest.

        A closed session receives no announcements, hence no erasures.
        """
        try:
            await self._prefetcher.close()
            await self._pipeline.close()
        finally:
            self._drop_cached()

    def _new_prefetcher(self) -> Prefetcher:
        services, session_policy = self._services, self._session_policy
        return Prefetcher(
            services.context.builder,
            services.context.cache,
            self._lore.retrieval_scope,
            PrefetchCallbacks(self._on_settled, self._on_prepared),
            lambda: (session_policy.policy.pause_s, session_policy.policy.eager),
            services.runtime.settings.recall_timeout_s,
            services.runtime.clock,
            services.runtime.metrics,
        )

    def _new_pipeline(self) -> TurnPipeline:
        services, session_policy, stream = self._services, self._session_policy, self._stream
        replies = ReplyGeneration(
            self._conversation,
            services,
            lambda: session_policy.companion,
            lambda: session_policy.policy,
            self._lore,
            stream.emit,
        )
        callbacks = SessionCallbacks(
            emit=self._emit,
            fail=self._fail_message,
            on_context=self._on_context_at_enter,
            on_reply=self._report_reply,
            read_reply=self.read_reply,
            undelivered_reply=self._undelivered_reply,
            token=lambda: services.authority.token_identity(self.principal),
            policy_of=self._policy_of,
        )
        exchange = SessionExchange(
            self._conversation,
            services,
            lambda: session_policy.companion.name,
            lambda: self.principal.user_id,
            callbacks.token,
        )
        return TurnPipeline(
            self._conversation,
            session_policy,
            self._lore,
            replies,
            self._prefetcher,
            exchange,
            services,
            callbacks,
        )

    def _fail_message(self, error: ForemindError, cause: DecodingProblem) -> None:
        self.fail(error, cause)
        if isinstance(error, NotAuthenticated):  # revoked, and that was not announced yet
            self.disconnect(NOT_AUTHENTICATED, "token revoked")

    def _emit(self, event: Event) -> None:
        if isinstance(event, MessageAccepted) and event.remembered and not event.duplicate:
            self._unscored[event.id] = None
        self._stream.emit(event)

    def _drop_cached(self, erasures: int | None = None) -> None:
        self._session_policy.forget_layers_version()
        self._pipeline.drop_history(erasures)
        self._state.invalidate()
        self._stream.clear()
        self._unscored.clear()

    def _undelivered_reply(self, turn_id: int) -> ReplyStored | None:
        """Return what to announce of a stored reply, None if a client received it here."""
        if self.detached_at is None:
            return None
        return ReplyStored(self.relationship_id, self.id, turn_id, self.origin)

    def _share_turn(self, turn: PastTurn) -> None:
        self.on_turn(turn)

    def _report_reply(self, turn: RunningTurn) -> None:
        self.on_reply(turn)

    def _attach(self, listener: EventListener) -> None:
        """Replace the previous connection."""
        previous = self._stream.listener
        if previous is not None:
            previous.close(REPLACED, "replaced by a newer connection")
        self._stream.attach(listener)
        self.detached_at = None
        self._active_at = self._services.runtime.clock.monotonic()
        self._pipeline.on_opened()

    def _opened_event(self, turns: list[TurnView], *, resumed: bool = False) -> SessionOpened:
        companion = self._session_policy.companion
        return session_opened(
            self.id,
            self.relationship_id,
            self.principal,
            companion,
            greeting_of(
                companion,
                self._conversation.greeting,
                self.principal.name,
                str(self._conversation.opened.session_id),
            ),
            self._session_policy.policy,
            self._session_policy.consent,
            self._session_policy.model,
            limits_of(self._services.runtime.settings),
            turns,
            self._state.value,
            resumed=resumed,
        )

    def _on_settled(self, draft: str) -> None:
        self._pipeline.on_settled(draft)

    def _on_prepared(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        self._session_policy.observe_layers_version(context.cache_key.layers_version)
        self._emit_context(draft, context, trigger)
        self._pipeline.on_context(draft, context, trigger)

    def _on_context_at_enter(self, text: str, at_enter: ContextAtEnter) -> None:
        if at_enter.context is not None:
            self._session_policy.observe_layers_version(at_enter.context.cache_key.layers_version)
            if at_enter.trigger is not None:
                self._emit_context(text, at_enter.context, at_enter.trigger)

    def _emit_context(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        if self._services.context.cache.predates_erasure(self.relationship_id, context):
            return
        now = self._services.runtime.clock.now().astimezone(self._session_policy.time_zone)
        with_memories = self.principal.allows("memory:read")
        event = context_ready(draft, context, trigger, now, with_memories=with_memories)
        self._stream.emit(event, telemetry=True)
