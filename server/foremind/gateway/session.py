"""One open session: drafts before Enter, the conversation after it, and its announcements."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from secrets import token_hex
from typing import Literal, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from cachetools import LRUCache
from msgspec.structs import replace

from foremind.auth.principal import Principal
from foremind.cluster.ring import relationship_key
from foremind.domain.announcements import (
    AccessRevoked,
    Announcement,
    CompanionChanged,
    ConsentGiven,
    LayersChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    RelationshipDeleted,
    ReplyStored,
    SessionTaken,
    StateChanged,
    UserErased,
)
from foremind.domain.errors import (
    ForemindError,
    Interrupted,
    InvalidMessage,
    StorageUnavailable,
)
from foremind.domain.policy import Policy
from foremind.domain.relationship import companion_id_of
from foremind.domain.session_state import StatePatch
from foremind.domain.turn import OpenedSession, Trigger
from foremind.gateway.conversation import LiveConversation, LiveState, Participants, SessionLore
from foremind.gateway.event_builders import (
    memory_stored,
    session_opened,
    session_updated,
    turn_view,
)
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.flow_control import limits_of
from foremind.gateway.protocol.client_messages import (
    MAX_FRAME_BYTES,
    ActionResult,
    ClientMessage,
    DraftClear,
    DraftUpdate,
    MessageEdit,
    MessageSend,
    ResponseCancel,
    ResponseChoose,
    ResponseRegenerate,
    Revision,
    SessionOpen,
    SessionUpdate,
)
from foremind.gateway.protocol.server_events import (
    SessionOpened,
    SummaryAppliedEvent,
    TurnErased,
    TurnStored,
    TurnView,
    encode,
)
from foremind.gateway.reply_generation import RunningTurn
from foremind.gateway.session_client import (
    NOT_ALLOWED,
    NOT_AUTHENTICATED,
    REPLACED,
    OwnMessages,
    SessionClient,
)
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.answering import Answering
from foremind.gateway.turns.turn_pipeline import TurnPipeline
from foremind.llm.prompt.character import greeting_of
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.supervision import TaskSet
from foremind.storage.turn_store import TurnStore
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import PrefetchCallbacks, Prefetcher

_Said = TypeVar("_Said", MessageSend, MessageEdit)


_RECENT_TURNS = 30  # sent to the client when a session opens
_SEQ_BYTES = 20  # of the event's number, which is set later


def newest_fitting(turns: Sequence[TurnView], room_bytes: int) -> list[TurnView]:
    """Return the newest turns that fit a number of bytes as JSON, oldest first. Pure."""
    fitting: list[TurnView] = []
    for turn in reversed(turns):
        room_bytes -= len(msgspec.json.encode(turn)) + 1  # and a comma
        if room_bytes < _SEQ_BYTES:
            break
        fitting.append(turn)
    return fitting[::-1]


_MAX_TOLD_TURNS = 512


class OtherWindows:
    """Adds the turns of other windows to one window, and tells its client of each once."""

    def __init__(
        self,
        conversation: LiveConversation,
        pipeline: TurnPipeline,
        turns: TurnStore,
        own_messages: OwnMessages,
        stream: EventStream,
    ) -> None:
        self._conversation = conversation
        self._pipeline = pipeline
        self._turns = turns
        self._own_messages = own_messages
        self._stream = stream
        self._told: LRUCache[str, None] = LRUCache(_MAX_TOLD_TURNS)
        self._in_order = asyncio.Lock()

    def on_opened(self, turns: Iterable[TurnView]) -> None:
        """The client is told of these turns as its session opens."""
        self._told.update(dict.fromkeys(turn.turn_id for turn in turns))

    def on_said(self, turn_id: int) -> None:
        """The client is told of a turn of this window by itself."""
        self._told[str(turn_id)] = None

    def add_turn(self, turn: PastTurn, session_id: UUID) -> None:
        """Add a turn of a stored session, if that is the one of this window, too."""
        same = session_id == self._conversation.opened.session_id
        if same and self._conversation.history.add_remote(turn):
            self._pipeline.drop_speculation()  # its prompts lack this turn

    async def report(self, turn_ids: Iterable[int], session_id: UUID | None = None) -> None:
        """Tell the client of turns that it does not know, as stored; add them as `add_turn` does.

        Args:
            session_id: the stored session that they belong to; None for that of this window.
        """
        relationship_id = self._conversation.opened.relationship_id
        async with self._in_order:
            for turn_id in turn_ids:
                if str(turn_id) in self._told:
                    continue
                try:
                    turn = await self._turns.find(relationship_id, turn_id)
                except StorageUnavailable:
                    self._pipeline.drop_history()
                    return
                if turn is None:
                    continue
                said = PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
                self.add_turn(said, session_id or self._conversation.opened.session_id)
                self._told[str(turn_id)] = None
                if turn.message_id is None or turn.message_id not in self._own_messages:
                    self._stream.emit(TurnStored(turn=turn_view(turn)))

    async def report_erased(self) -> None:
        """Tell the client which of the turns that it knows were erased."""
        async with self._in_order:
            told = list(self._told)
            try:
                remaining = await self._turns.remaining(
                    self._conversation.opened.relationship_id, list(map(int, told))
                )
            except StorageUnavailable:  # they are told of with the next erasure
                return
            gone = [turn_id for turn_id in told if int(turn_id) not in remaining]
            for turn_id in gone:
                self._told.pop(turn_id, None)
            if gone:
                self._stream.emit(TurnErased(turn_ids=gone))


class SessionPhase(Enum):
    """Where a session is in its life; `phase_after` has the transitions."""

    DETACHED = "detached"  # nobody is connected yet, or the connection was lost
    CONNECTED = "connected"
    ENDED = "ended"  # nothing more is taken; what was said is being stored


def phase_after(phase: SessionPhase, happening: Literal["attach", "detach", "end"]) -> SessionPhase:
    """Return the phase after something happened in another one. Pure.

    Raises:
        Interrupted: a client cannot be attached any more.
    """
    if happening == "end" or (happening == "detach" and phase is SessionPhase.ENDED):
        return SessionPhase.ENDED
    if phase is SessionPhase.ENDED:
        raise Interrupted("The session ended meanwhile; open it again.")
    return SessionPhase.CONNECTED if happening == "attach" else SessionPhase.DETACHED


_WINDOW_CHARS = 12  # of a window's id, after that of its session


class Session:
    """Handles the messages and announcements of one window of a stored session without blocking.

    It outlives its connection: events are buffered until a client resumes it.

    Args:
        known_id: the id that its client knows it by, if it does.
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
        known_id: str | None = None,
    ) -> None:
        self._services = services
        self._session_policy = session_policy
        self._opened = opened
        self._stream = stream
        #: Identifies this window of the stored session to its client, also after a restart.
        self.id = window_id(opened.session_id, known_id)
        self.phase = SessionPhase.DETACHED
        #: Passes turns to other windows of the relationship; set by the registry.
        self.on_turn: Callable[[PastTurn], None] = lambda _: None
        #: Whether its client follows redirects; and whether it stays here, having been redirected.
        self.follows = self.stays = False
        self._state = LiveState(services.stores.states, opened.relationship_id, opened.session_id)
        participants = Participants(
            opened, principal.name, session_policy.time_zone, session_policy.prompt_language
        )
        self._conversation = self._new_conversation(participants, turns, earlier)
        #: Its client: the connection, if there is one, and what it may do.
        self.client = client = SessionClient(
            principal, stream, session_policy, services, opened.relationship_id
        )
        self._lore = SessionLore(self._conversation, session_policy, services.context.lorebooks)
        self._prefetcher = self._new_prefetcher()
        answering = Answering(
            self._conversation,
            session_policy,
            self._lore,
            self._prefetcher,
            services,
            client,
            self._report_turn,
        )
        self._pipeline = TurnPipeline(answering)
        #: Takes the turns of other windows.
        self.windows = OtherWindows(
            self._conversation,
            self._pipeline,
            services.stores.turns,
            client.own_messages,
            stream,
        )

    @property
    def principal(self) -> Principal:
        """Whose session it is, and what they may do."""
        return self.client.principal

    @property
    def detached_at(self) -> float | None:
        """Monotonic time at which the connection was lost; None while connected."""
        return self.client.detached_at

    @property
    def stored_id(self) -> UUID:
        """The stored session that its next turn belongs to."""
        return self._conversation.opened.session_id

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
    def prompt_language(self) -> str:
        """The language of the session's prompts, and of the ages of memories."""
        return self._session_policy.prompt_language

    @property
    def busy(self) -> bool:
        """True while a message is unanswered."""
        return self._pipeline.busy

    @property
    def finished(self) -> bool:
        """True once every message is answered and scored, so that no event is to be expected."""
        return not self.busy and self.client.own_messages.scored

    @property
    def key(self) -> bytes:
        """The key of its relationship, which says which gateway owns it."""
        return relationship_key(self.principal.effective_user_id, self.companion)

    def idle_s(self, now: float) -> float:
        """Return how long ago the client last sent something, or connected."""
        return now - self.client.active_at

    @property
    def knows_history(self) -> bool:
        """Whether the history is loaded, and need not be read at Enter."""
        return self._conversation.history.known

    async def settle(self) -> None:
        """Wait until every message is answered, here or elsewhere, or has failed."""
        await self._pipeline.settle()

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

    def connect(
        self, listener: EventListener, turns: list[TurnView], warnings: Sequence[str] = ()
    ) -> None:
        """Attach a connection, and send it `session.opened` with the newest turns.

        Raises:
            Interrupted: the session has ended.
        """
        self.phase = phase_after(self.phase, "attach")
        self.client.attach(listener)
        self._pipeline.on_opened()
        self.windows.on_opened(turns)
        self._stream.emit(self._opened_event(turns, warnings))

    def resume(self, listener: EventListener, seq: int, warnings: Sequence[str] = ()) -> bool:
        """Attach a connection that has every event up to `seq`, and send it those it missed.

        Return False, without any effect, if some of them are no longer buffered.
        """
        missed = self._stream.missed(seq)
        if missed is None or self.phase is SessionPhase.ENDED:
            return False
        self.phase = phase_after(self.phase, "attach")
        self.client.attach(listener)
        self._pipeline.on_opened()
        event = self._opened_event([], warnings, resumed=True)
        event.seq = seq
        self._stream.send_unnumbered(event)
        self._stream.replay(missed)
        return True

    def answer_last(self) -> None:
        """Answer the last message of the session, unless it is answered or about to be.

        For a client that may have missed the reply: the process that was to make it may be dead.
        """
        last = next(reversed(self._conversation.history.turns), None)
        if last is not None and last.message_id is not None:
            with suppress(ForemindError):  # it is being answered
                now = self._services.runtime.clock.monotonic()
                self.handle(MessageSend(last.message_id, last.content), now)

    async def announce_takeover(self) -> None:
        """Tell other processes that have this window that it is used here now."""
        await self._services.stores.turns.announce(SessionTaken(self.id, self.client.origin))

    def detach(self, listener: EventListener) -> None:
        """Handle the loss of a connection: replies continue, the draft is discarded."""
        if not self.client.detach(listener):
            return
        self.phase = phase_after(self.phase, "detach")
        self._discard_draft()
        self._pipeline.release_history()

    def choose_greeting(self, number: int) -> None:
        """Let the conversation begin with another of the companion's greetings."""
        self._conversation.greeting = number

    def add_to_turn(self, begun: str, attached: str) -> None:
        """Let replies begin with a text that the client has, and be made of passages, too."""
        self._conversation.begun = begun
        self._conversation.attached = attached

    def send_updated(self, event_id: str | None) -> None:
        """Confirm a `session.update`."""
        self._stream.emit(session_updated(self.principal, self._state.value, event_id))

    def handle(self, message: ClientMessage, arrived: float) -> None:
        """Handle a message that arrived at monotonic time `arrived`.

        Raises:
            RequestError, TemporaryError: to be sent to the client.
        """
        if self.phase is SessionPhase.ENDED:
            raise Interrupted("The session has ended; open it again.")
        self.client.active_at = arrived
        match message:
            case DraftUpdate():
                self._prefetcher.update(message.text)
                self._pipeline.on_draft(message.text)
            case DraftClear():
                self._discard_draft()
            case MessageSend():
                message = self._admit(message)
                self._pipeline.send(message, self._policy_of(message), arrived)
            case MessageEdit():
                message = self._admit(message)
                self._pipeline.revise(message, self._policy_of(message), arrived)
            case ResponseRegenerate():
                self._pipeline.revise(message, self._policy_of(message), arrived)
            case ResponseChoose():
                self._pipeline.choose(message, self.policy)
            case ResponseCancel():
                if not self._pipeline.cancel(message.response_id):
                    raise InvalidMessage(
                        "response_id: expected the reply in progress", param="response_id"
                    )
            case ActionResult():
                raise InvalidMessage(
                    "type: expected it in a scene of a world, where actions are", param="type"
                )
            case SessionOpen() | SessionUpdate():
                raise InvalidMessage(
                    "type: this session is open already", param="type", code="already_open"
                )

    def watch_replies(self, watcher: Callable[[RunningTurn], None]) -> None:
        """Have each reply that is about to be sent passed to a watcher, with its prompt."""
        self._pipeline.watch_replies(watcher)

    async def change_state(self, patch: StatePatch) -> None:
        """Change the session state.

        Raises:
            InvalidMessage: there would be too many flags.
            NotFound: the session has ended.
            StorageUnavailable: nothing was changed.
        """
        await self._pipeline.roll_over_if_idle(self._session_policy.policy)
        await self._state.change(patch, self._services.runtime.clock.now())

    def on_announcement(  # noqa: PLR0912 - one case for each kind, in one place
        self, event: Announcement, tasks: TaskSet, end: Callable[[int, str], None]
    ) -> None:
        """Handle an announcement of this or another process, whether or not it concerns this one.

        Args:
            tasks: run what has to be read.
            end: ends this session; with the close code of its connection, and the reason.
        """
        if getattr(event, "relationship_id", self.relationship_id) != self.relationship_id:
            return
        principal, origin = self.principal, self.client.origin
        match event:
            case SessionTaken() if (
                event.session_id == self.id and event.origin != self.client.origin
            ):
                end(REPLACED, "replaced by a newer connection")
            case AccessRevoked() if event.covers(
                principal.user_id, principal.token_id, principal.issued_at
            ):
                end(NOT_AUTHENTICATED, "token revoked")
            case UserErased() if event.user_id == principal.effective_user_id:
                end(NOT_ALLOWED, "the user was erased")
            case RelationshipDeleted():
                end(NOT_ALLOWED, "the user was erased")
            case CompanionChanged() if event.companion_id == companion_id_of(self.relationship_id):
                tasks.begin(self._end_if_retired(end), "end-retired")
            case ReplyStored() if event.origin == origin:
                self.windows.on_said(event.turn_id)
            case ReplyStored():
                turns = [turn for turn in (event.message_turn_id, event.turn_id) if turn]
                tasks.begin(self.windows.report(turns, event.session_id), "report-turns")
            case StateChanged():
                tasks.begin(self._read_state(), "read-state")
            case ConsentGiven():
                self._session_policy.set_consent(given=event.given)
            case MemoriesChanged():  # which makes contexts stale
                self._session_policy.observe_memory_version(event.memory_version)
            case MemoriesForgotten():
                self.forget(event)
                tasks.begin(self.windows.report_erased(), "report-erased")
            case LayersChanged():
                self._on_layers_changed(event)
            case MemoryAnnouncement():
                self._on_turn_scored(event)

    def forget(self, event: MemoriesForgotten) -> None:
        """Drop what is cached and may contain what was erased."""
        if event.went_back:
            self._session_policy.go_back(event.memory_version)
            self._pipeline.drop_history(event.erasures, went_back=True)
            self._state.invalidate()
        else:
            self._session_policy.observe_memory_version(event.memory_version)
            self._drop_cached(event.erasures)

    def drop_history(self) -> None:
        """Drop history and state, which may have changed elsewhere; both are loaded again."""
        self._pipeline.drop_history()
        self._state.invalidate()
        self.client.own_messages.expect_no_scores()

    def stop_reply(self) -> None:
        """Stop the reply in progress; what was generated so far is stored."""
        self._pipeline.stop_reply()

    def end(self) -> None:
        """Take nothing more; `close` is awaited next."""
        self.phase = phase_after(self.phase, "end")

    async def close(self) -> None:
        """Stop prefetching and generating, store what was said, drop the rest.

        A closed session receives no announcements, hence no erasures.
        """
        try:
            await self._prefetcher.close()
            await self._pipeline.close()
        finally:
            self._drop_cached()

    def _discard_draft(self) -> None:
        """Drop what was typed and not sent."""
        self._prefetcher.clear()
        self._pipeline.on_draft("")

    def _admit(self, message: _Said) -> _Said:
        """Check what the player says, and return it as it may be remembered."""
        if not message.text.strip():
            raise InvalidMessage("text: expected text that is not blank", param="text")
        self.client.own_messages.add(message.id)
        if self._session_policy.consent == "missing":
            message = replace(message, remember=False)
        return message

    def _policy_of(self, message: MessageSend | Revision) -> Policy:
        return self._session_policy.policy_of(message, player=not self.principal.admin)

    def _opened_event(
        self, turns: list[TurnView], warnings: Sequence[str], *, resumed: bool = False
    ) -> SessionOpened:
        """Return `session.opened`, with as much of the greeting and newest turns as fits a frame.

        Args:
            warnings: about what the client stated and was not understood.
        """
        companion, principal = self._session_policy.companion, self.principal
        greeting = greeting_of(
            companion, self._conversation.greeting, principal.name, str(self.stored_id)
        )
        event = session_opened(
            self.id,
            self.relationship_id,
            principal,
            companion,
            greeting,
            self.policy,
            self._session_policy.consent,
            self._session_policy.model,
            limits_of(self._services.runtime.settings),
            self._state.value,
            warnings,
            resumed=resumed,
        )
        too_much = len(encode(event)) + _SEQ_BYTES - MAX_FRAME_BYTES
        if too_much > 0:  # a card's greeting may be that long; JSON has no byte of it less
            shown = greeting.encode()[: max(0, len(greeting.encode()) - too_much)]
            event.companion = replace(event.companion, greeting=shown.decode(errors="ignore"))
        event.turns = newest_fitting(turns, MAX_FRAME_BYTES - len(encode(event)))
        return event

    def _drop_cached(self, erasures: int | None = None) -> None:
        """Drop everything cached that may contain erased text.

        Args:
            erasures: the number of erasures in this relationship so far, if some happened.
        """
        self._session_policy.forget_layers_version()
        self._pipeline.drop_history(erasures)
        self._state.invalidate()
        self.client.own_messages.expect_no_scores()
        self._stream.clear()

    async def _read_state(self) -> None:
        """Reload the state, which was changed elsewhere."""
        self._state.invalidate()
        with suppress(StorageUnavailable):  # then it is loaded with the next message
            await self._state.read()

    async def _end_if_retired(self, end: Callable[[int, str], None]) -> None:
        """End this session if its companion has been retired, as the database has it now."""
        with suppress(StorageUnavailable):  # then as it was known
            await self._services.live_settings.settled(self.relationship_id)
        if self._session_policy.companion.retired:
            end(NOT_ALLOWED, "the companion was retired")

    def _on_layers_changed(self, event: LayersChanged) -> None:
        self._session_policy.observe_layers_version(event.layers_version)
        self._pipeline.on_layers()
        summary = event.summary
        if summary is not None:
            self._stream.emit(
                SummaryAppliedEvent(
                    messages=summary.messages, lines=summary.lines, made_by=summary.made_by
                )
            )

    def _on_turn_scored(self, event: MemoryAnnouncement) -> None:
        if event.memory_version is not None:
            self._session_policy.observe_memory_version(event.memory_version)
        own_messages, message_id = self.client.own_messages, event.message_id
        if (
            message_id is not None
            and message_id not in own_messages
            and self._pipeline.lacks(message_id, event.speaker)
        ):
            self._pipeline.drop_history()  # another process has a window of this session
        if own_messages.on_scored(event):
            self._stream.emit(memory_stored(event))

    def _new_conversation(
        self,
        participants: Participants,
        turns: list[PastTurn] | None,
        earlier: Sequence[PastTurn],
    ) -> LiveConversation:
        return LiveConversation(
            participants,
            turns,
            self._state,
            lambda: self._session_policy.policy,
            self._services.stores.turns,
            self._services.runtime.clock,
            self._share_turn,
            earlier,
        )

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
            session_policy.language,
        )

    def _share_turn(self, turn: PastTurn) -> None:
        if turn.id is not None:
            self.windows.on_said(turn.id)
        self.on_turn(turn)

    async def _report_turn(self, turn_id: int) -> None:
        await self.windows.report([turn_id])

    def _on_settled(self, draft: str) -> None:
        self._pipeline.on_settled(draft)

    def _on_prepared(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        self.client.send_context(draft, context, trigger)
        self._pipeline.on_context(draft, context, trigger)


def window_id(stored_id: UUID, known: str | None) -> str:
    """Return the id of a window: the one that its client knows, if it is of this stored session."""
    prefix = f"{stored_id}."
    if known is not None and known.startswith(prefix) and len(known) == len(prefix) + _WINDOW_CHARS:
        return known
    return prefix + token_hex(_WINDOW_CHARS // 2)
