"""One open session: the draft on one side of Enter, the conversation on the other."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4
from zoneinfo import ZoneInfo

from cachetools import LRUCache
from msgspec.structs import replace

from foremind import __version__
from foremind.auth.principal import Principal
from foremind.domain.announcements import (
    LayersChanged,
    MemoryAnnouncement,
    ReplyStored,
    SessionTaken,
)
from foremind.domain.companion import Companion
from foremind.domain.errors import ForemindError, InvalidMessage, StorageUnavailable
from foremind.domain.policy import policy_for
from foremind.domain.session_state import StatePatch
from foremind.domain.setting_levels import in_force
from foremind.domain.turn import OpenedSession
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.flow_control import limits_of
from foremind.gateway.live_state import LiveState
from foremind.gateway.protocol.decoding import DecodingProblem, error_body
from foremind.gateway.protocol.messages import (
    PROTOCOL,
    ClientMessage,
    CompanionCard,
    ContextReady,
    ContextTimings,
    DraftClear,
    DraftUpdate,
    ErrorEvent,
    MemoryStored,
    MessageSend,
    ReasonView,
    ResponseCancel,
    SessionOpen,
    SessionOpened,
    SessionUpdate,
    SessionUpdated,
    SummaryAppliedEvent,
    TurnStored,
    TurnView,
    UserClaim,
)
from foremind.gateway.protocol.views import memory_view, turn_view
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turn_pipeline import Participants, TurnPipeline
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.token_counter import counter_for
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter, Prefetcher, Trigger

REPLACED = 4409

_SHOWN_TURNS = 30  # of the past, when a session opens
_TOLD = object()
_OWN_MESSAGES = 512  # message ids for which memory.stored is reported to this session


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as an operator sees it; `connected`: somebody is there, `busy`: it answers."""

    session_id: str
    user: str
    companion: str
    connected: bool
    busy: bool


class Session:
    """Reacts to the messages of one client; never waits itself.

    It outlives its connection: what it says meanwhile is kept for the next one.
    """

    def __init__(
        self,
        services: SessionServices,
        caller: Principal,
        terms: SessionPolicy,
        opened: OpenedSession,
        past: list[PastTurn] | None,
        stream: EventStream,
    ) -> None:
        self._services = services
        self.caller = caller
        self._terms = terms
        self._opened = opened
        self._stream = stream
        #: Tells this session's announcements from those of others with the same id.
        self.origin = uuid4().hex
        #: Since when, in monotonic time, nobody is connected; None while somebody is.
        self.detached_at: float | None = services.clock.monotonic()
        #: Tells other windows of this session what is said here; the registry sets it.
        self.on_turn: Callable[[PastTurn], None] = lambda _: None
        #: Turns of other windows that the client has not been told of.
        self._untold: LRUCache[int, None] = LRUCache(_OWN_MESSAGES)
        self._own_messages: LRUCache[str, None] = LRUCache(_OWN_MESSAGES)
        self._state = LiveState(services.states, opened.relationship_id, opened.session_id)
        self._watcher = Prefetcher(
            services.preparer,
            services.prepared,
            terms.subject,
            self._on_prepared,
            lambda: (terms.policy.pause_s, terms.policy.eager),
            services.settings.recall_timeout_s,
            services.clock,
            services.metrics,
        )
        self._conversation = TurnPipeline(
            Participants(opened, caller.name, terms.time_zone),
            past,
            watcher=self._watcher,
            curation=services.curation,
            afterwards=services.afterwards,
            voices=services.voices,
            turns=services.turns,
            rememberer=services.rememberer,
            uses=services.uses,
            clock=services.clock,
            metrics=services.metrics,
            companion=lambda: terms.companion,
            policy=lambda: terms.policy,
            subject=terms.subject,
            state=self._state,
            emit=stream.emit,
            unheard=self._unheard,
            read_reply=self.read_reply,
            answering=services.answering,
            fail=self.fail,
            on_context=self._on_taken,
            on_turn=self._tell_windows,
        )

    @classmethod
    async def open(
        cls,
        services: SessionServices,
        caller: Principal,
        companion: Companion,
        time_zone: ZoneInfo,
        consent: bool | None = None,
    ) -> "Session":
        """Open a session for a known caller; nobody is connected to it yet.

        Args:
            consent: whether the user agrees to be remembered, None where nothing is said of it.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        changes = services.current.changes
        own = await services.relationships.settings_with(caller.user_id, companion.id)
        settings = in_force(companion.settings, own, services.settings)
        policy = policy_for(settings, services.settings)
        await services.voices.prepare(policy.voice)
        opened = await services.turns.open_session(
            caller.user_id,
            caller.name,
            companion.id,
            services.clock.now(),
            time_zone.key,
            policy.layers.session,
            consent,
        )
        services.index.load(opened.relationship_id)
        await services.held.load(opened.relationship_id, counter_for(policy.layers.tokenizer))
        await services.library.load(companion.id)
        stream = EventStream(services.settings.resume_s, services.clock)
        terms = SessionPolicy(
            services,
            caller.name,
            await services.current.companion(companion),
            await services.current.settings(opened.relationship_id, opened.settings, changes),
            opened,
            time_zone,
        )
        return cls(services, caller, terms, opened, None, stream)

    @property
    def id(self) -> str:
        """The session's identifier."""
        return str(self._opened.session_id)

    @property
    def relationship_id(self) -> int:
        """Whose memory this session works with."""
        return self._opened.relationship_id

    def shown(self) -> SessionSnapshot:
        """Return what an operator is told of this session."""
        return SessionSnapshot(
            self.id, self.caller.user_id, self.companion, self.detached_at is None, self.busy
        )

    @property
    def companion(self) -> str:
        """The slug of whom it talks with."""
        return self._terms.companion.slug

    @property
    def busy(self) -> bool:
        """True while a message is not answered yet."""
        return self._conversation.busy

    async def read_past(self) -> list[TurnView]:
        """Read what was said so far, and return what to show of it.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        await self._conversation.read_history()
        shown = await self._services.turns.recent(self.relationship_id, _SHOWN_TURNS)
        await self._state.read()
        return [turn_view(each) for each in shown]

    def greet(self, listener: EventListener, past: list[TurnView]) -> None:
        """Take a connection and tell it that the session is open, and what was said lately."""
        self._attach(listener)
        self._stream.emit(self._opened_event(past))

    def renew(self, caller: Principal) -> None:
        """Go on for the same user by another token, which may allow less from here on."""
        self.caller = caller
        if not caller.allows("memory:read"):
            self._stream.withhold_memories()

    async def change_state(self, patch: StatePatch) -> None:
        """Change what goes on in the session.

        Raises:
            InvalidMessage: it would have too many flags.
            NotFound: the session is over.
            StorageUnavailable: nothing was changed.
        """
        await self._conversation.begin_anew_if_over(self._terms.policy)
        await self._state.change(patch, self._services.clock.now())

    async def read_state(self) -> None:
        """Learn that what goes on was changed elsewhere."""
        self._state.forget()
        with suppress(StorageUnavailable):  # else with the next message
            await self._state.read()

    def tell_updated(self, event_id: str | None) -> None:
        """Tell the client that its `session.update` holds."""
        caller = self.caller
        ends = caller.expires_at
        self._stream.emit(
            SessionUpdated(
                expires_at=None if ends is None else datetime.fromtimestamp(ends, UTC),
                scopes=sorted(caller.scopes),
                state=self._state.value,
                event_id=event_id,
            )
        )

    def resume(self, listener: EventListener, seq: int) -> bool:
        """Take a connection that knows every event up to `seq`, and send it those it missed.

        False, and nothing done, where some of them are gone.
        """
        missed = self._stream.missed(seq)
        if missed is None:
            return False
        self._attach(listener)
        event = self._opened_event([], resumed=True)
        event.seq = seq
        self._stream.greet(event)
        self._stream.replay(missed)
        return True

    @property
    def knows_history(self) -> bool:
        """Whether what was said so far is there, and need not be read at Enter."""
        return self._conversation.knows_history

    async def read_history(self) -> None:
        """Read what was said so far, unless it is known."""
        with suppress(StorageUnavailable):  # else with the next message
            await self._conversation.read_history()

    def go_on_after(self, seq: int) -> None:
        """Count events from here on: the client has some of this session that are lost here."""
        self._stream.seq = seq

    async def tell_taken(self) -> None:
        """Tell other processes that may hold this session that it is here now."""
        await self._services.turns.announce(SessionTaken(self.id, self.origin))

    def holds_after(self, seq: int) -> bool:
        """Tell whether everything after an event can be sent again."""
        return self._stream.missed(seq) is not None

    async def read_reply(self, turn_id: int) -> None:
        """Learn of a reply that was begun over another connection, and stored meanwhile."""
        try:
            turn = await self._services.turns.find(self.relationship_id, turn_id)
        except StorageUnavailable:
            self._conversation.forget_history()
            return
        if turn is not None:
            past = PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
            untold = self._untold.pop(turn.id, _TOLD) is not _TOLD
            if self._conversation.heard_elsewhere(past) or untold:
                self._stream.emit(TurnStored(turn=turn_view(turn)))

    def hear(self, turn: PastTurn) -> None:
        """Learn of a turn that came about in another window of this session."""
        if self._conversation.heard_elsewhere(turn) and turn.id is not None:
            self._untold[turn.id] = None
            self._conversation.forget_ahead()  # what was laid out does not hold it

    def detach(self, listener: EventListener) -> None:
        """Learn that a connection is gone: what is answered goes on, the draft is given up."""
        if self._stream.listener is not listener:
            return
        self._stream.attach(None)
        self.detached_at = self._services.clock.monotonic()
        self._watcher.clear()
        self._conversation.typed("")
        self._conversation.rest()

    def handle(self, message: ClientMessage, arrived: float) -> None:
        """React to a message that arrived at monotonic time `arrived`.

        Raises:
            RequestError, TemporaryError: what to tell the client.
        """
        match message:
            case DraftUpdate():
                self._watcher.update(message.text)
                self._conversation.typed(message.text)
            case DraftClear():
                self._watcher.clear()
                self._conversation.typed("")
            case MessageSend():
                if not message.text.strip():
                    raise InvalidMessage("text: expected something to say", param="text")
                self._own_messages[message.id] = None
                if self._terms.consent == "missing":
                    message = replace(message, remember=False)
                policy = self._terms.policy_of(message, player=not self.caller.admin)
                self._conversation.send(message, policy, arrived)
            case ResponseCancel():
                if not self._conversation.cancel(message.response_id):
                    raise InvalidMessage(
                        "response_id: expected the reply under way", param="response_id"
                    )
            case SessionOpen() | SessionUpdate():
                raise InvalidMessage(
                    "type: this session is open already", param="type", code="already_open"
                )

    def heard(self, announcement: MemoryAnnouncement) -> None:
        """Learn what became of a turn of this relationship, here or in another process."""
        if announcement.memory_version is not None:
            self.observe_version(announcement.memory_version)
        message_id = announcement.message_id
        if (
            message_id is not None
            and message_id not in self._own_messages
            and self._conversation.lacks(message_id, announcement.speaker)
        ):
            self._conversation.forget_history()  # another process holds a window of this session
        if announcement.speaker == "user" and message_id in self._own_messages:
            self._stream.emit(
                MemoryStored(
                    message_id=str(message_id),
                    stored=announcement.memory_id is not None,
                    memory_id=_text(announcement.memory_id),
                    memory_type=announcement.memory_type,
                    significance=announcement.significance,
                    reasons=[
                        ReasonView(reason.name, reason.score) for reason in announcement.reasons
                    ],
                )
            )

    def observe_version(self, memory_version: int) -> None:
        """Learn that memories of this relationship changed: what is prepared is out of date."""
        self._terms.observe_version(memory_version)

    def consented(self, *, given: bool) -> None:
        """Learn that the user agreed to be remembered, or no longer does."""
        self._terms.consented(given=given)

    def layers_changed(self, announcement: LayersChanged) -> None:
        """Learn that records of this relationship changed, here or in another process."""
        self._terms.observe_layers(announcement.layers_version)
        applied = announcement.summary
        if applied is not None:
            self._stream.emit(
                SummaryAppliedEvent(
                    messages=applied.messages, lines=applied.lines, made_by=applied.made_by
                )
            )

    def forget(self, memory_version: int, erasures: int) -> None:
        """Learn that things said here or elsewhere are forgotten: the history is read anew."""
        self._terms.observe_version(memory_version)
        self._drop_said(erasures)

    def _drop_said(self, erasures: int | None = None) -> None:
        self._terms.forget_layers()
        self._conversation.forget_history(erasures)
        self._state.forget()
        self._stream.forget()

    def fail(self, error: ForemindError, cause: DecodingProblem) -> None:
        """Tell the client that something it sent could not be done."""
        self._services.metrics.errors.labels(error.code).inc()
        self._stream.emit(ErrorEvent(error=error_body(error, cause)))

    def disconnect(self, code: int, reason: str) -> None:
        """Close the connection, if there is one, once everything said is sent."""
        if self._stream.listener is not None:
            self._stream.listener.close(code, reason)

    def hush(self) -> None:
        """Stop speaking: nobody came back to listen. What was said so far is stored."""
        self._conversation.hush()

    def prune(self) -> None:
        """Drop events that are too old to be asked for again."""
        self._stream.prune()

    async def close(self) -> None:
        """End the session: stop preparing and speaking, store what was said, and hold it no more.

        Nothing tells it from now on of what is forgotten.
        """
        try:
            await self._watcher.close()
            await self._conversation.close()
        finally:
            self._drop_said()

    def _unheard(self, turn_id: int) -> ReplyStored | None:
        """Return what others are to be told of a reply that nobody heard here."""
        if self.detached_at is None:
            return None
        return ReplyStored(self.relationship_id, self.id, turn_id, self.origin)

    def _tell_windows(self, turn: PastTurn) -> None:
        self.on_turn(turn)

    def _attach(self, listener: EventListener) -> None:
        """Let a connection take the place of the one before."""
        before = self._stream.listener
        if before is not None:
            before.close(REPLACED, "replaced by a newer connection")
        self._stream.attach(listener)
        self.detached_at = None

    def _opened_event(self, turns: list[TurnView], *, resumed: bool = False) -> SessionOpened:
        companion, settings = self._terms.companion, self._services.settings
        return SessionOpened(
            protocol=PROTOCOL,
            server=__version__,
            session_id=self.id,
            relationship_id=str(self.relationship_id),
            user=UserClaim(self.caller.user_id, self.caller.name),
            companion=CompanionCard(companion.slug, companion.name, companion.greeting),
            pause_ms=round(self._terms.policy.pause_s * 1000),
            limits=limits_of(settings),
            resumed=resumed,
            consent=self._terms.consent,
            model=None if self._terms.model == "offline" else self._terms.model,
            turns=turns,
            state=self._state.value,
        )

    def _on_prepared(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        self._terms.observe_layers(context.validity.layers_version)
        self._emit_context(draft, context, trigger)
        self._conversation.prepared(draft, context, trigger)

    def _on_taken(self, text: str, taken: ContextAtEnter) -> None:
        if taken.context is not None:
            self._terms.observe_layers(taken.context.validity.layers_version)
        if taken.context is not None and taken.trigger is not None:
            self._emit_context(text, taken.context, taken.trigger)

    def _emit_context(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        if self._services.prepared.holds_forgotten(self.relationship_id, context):
            return
        now = self._services.clock.now().astimezone(self._terms.time_zone)
        self._stream.emit(
            ContextReady(
                draft=draft,
                trigger=trigger,
                memories=(
                    [memory_view(memory, now) for memory in context.memories]
                    if self.caller.allows("memory:read")
                    else []
                ),
                timings=ContextTimings(
                    context.timings.embed_ms, context.timings.search_ms, context.timings.total_ms
                ),
            ),
            telemetry=True,
        )


def _text(identifier: int | None) -> str | None:
    return None if identifier is None else str(identifier)
