"""One open session: drafts before Enter, the conversation after it, and its announcements."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_hex
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from foremind.auth.principal import Principal
from foremind.cluster.rendezvous import relationship_key
from foremind.domain.announcements import SessionTaken
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.domain.policy import Policy
from foremind.domain.prefetch import Trigger
from foremind.domain.session_state import StatePatch
from foremind.domain.turn import OpenedSession
from foremind.gateway.client_message_handler import ClientMessageHandler
from foremind.gateway.context_reports import ContextReports
from foremind.gateway.conversation import LiveConversation, Participants
from foremind.gateway.event_builders import session_updated
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.live_state import LiveState
from foremind.gateway.opened_session_view import OpenedSessionView
from foremind.gateway.other_windows import OtherWindows
from foremind.gateway.protocol.client_messages import ClientMessage, MessageSend
from foremind.gateway.protocol.server_events import TurnView
from foremind.gateway.reply_generation import RunningTurn
from foremind.gateway.session_announcements import SessionAnnouncements
from foremind.gateway.session_client import SessionClient
from foremind.gateway.session_lore import SessionLore
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.answering import SessionCallbacks
from foremind.gateway.turns.turn_pipeline import TurnPipeline
from foremind.llm.prompt.layout import PastTurn
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import PrefetchCallbacks, Prefetcher

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
        #: Distinguishes this window's announcements from those of others with the same id.
        self.origin = uuid4().hex
        #: Passes turns to other windows of the relationship; set by the registry.
        self.on_turn: Callable[[PastTurn], None] = lambda _: None
        #: Called with each reply that is about to be sent; set by whoever needs its prompt.
        self.on_reply: Callable[[RunningTurn], None] = lambda _: None
        #: Whether its client follows redirects; and whether it stays here, having been redirected.
        self.follows = self.stays = False
        self._state = LiveState(services.stores.states, opened.relationship_id, opened.session_id)
        participants = Participants(
            opened, principal.name, session_policy.time_zone, session_policy.prompt_language
        )
        self._conversation = self._new_conversation(participants, turns, earlier)
        #: Its client: the connection, if there is one, and what it may do.
        self.client = client = SessionClient(principal, stream, services.runtime)
        #: Reports its contexts to the client.
        self.contexts = ContextReports(
            opened.relationship_id, session_policy, services, client, stream
        )
        self._lore = SessionLore(self._conversation, session_policy, services.context.lorebooks)
        self._prefetcher = self._new_prefetcher()
        self._pipeline = self._new_pipeline()
        self._messages = ClientMessageHandler(
            session_policy, self._prefetcher, self._pipeline, client
        )
        self._view = OpenedSessionView(
            self.id, self._conversation, session_policy, client, services
        )
        #: Takes the turns of other windows.
        self.windows = OtherWindows(
            self._conversation,
            self._pipeline,
            services.stores.turns,
            client.own_messages,
            stream,
        )
        #: Takes the announcements about its relationship.
        self.announcements = SessionAnnouncements(
            session_policy, self._state, self._pipeline, client.own_messages, stream
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
        return await self._view.read_recent_turns()

    async def read_history(self) -> None:
        """Load the history unless it is loaded."""
        with suppress(StorageUnavailable):  # then it is loaded with the next message
            await self._conversation.read_history()

    def connect(
        self, listener: EventListener, turns: list[TurnView], warnings: Sequence[str] = ()
    ) -> None:
        """Attach a connection, and send it `session.opened` with the newest turns."""
        self.client.attach(listener)
        self._pipeline.on_opened()
        self.windows.on_opened(turns)
        self._stream.emit(self._view.event(turns, warnings))

    def resume(self, listener: EventListener, seq: int, warnings: Sequence[str] = ()) -> bool:
        """Attach a connection that has every event up to `seq`, and send it those it missed.

        Return False, without any effect, if some of them are no longer buffered.
        """
        missed = self._stream.missed(seq)
        if missed is None:
            return False
        self.client.attach(listener)
        self._pipeline.on_opened()
        event = self._view.event([], warnings, resumed=True)
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
                self._messages.handle(MessageSend(last.message_id, last.content), now)

    async def announce_takeover(self) -> None:
        """Tell other processes that have this window that it is used here now."""
        await self._services.stores.turns.announce(SessionTaken(self.id, self.origin))

    def detach(self, listener: EventListener) -> None:
        """Handle the loss of a connection: replies continue, the draft is discarded."""
        if not self.client.detach(listener):
            return
        self._messages.discard_draft()
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
        self._messages.handle(message, arrived)

    async def change_state(self, patch: StatePatch) -> None:
        """Change the session state.

        Raises:
            InvalidMessage: there would be too many flags.
            NotFound: the session has ended.
            StorageUnavailable: nothing was changed.
        """
        await self._pipeline.roll_over_if_idle(self._session_policy.policy)
        await self._state.change(patch, self._services.runtime.clock.now())

    async def is_retired(self) -> bool:
        """Return whether its companion has been retired, as the database has it now."""
        with suppress(StorageUnavailable):  # then as it was known
            await self._services.live_settings.settled(self.relationship_id)
        return self._session_policy.companion.retired

    def stop_reply(self) -> None:
        """Stop the reply in progress; what was generated so far is stored."""
        self._pipeline.stop_reply()

    async def close(self) -> None:
        """End the session: stop prefetching and generating, store what was said, drop the rest.

        A closed session receives no announcements, hence no erasures.
        """
        try:
            await self._prefetcher.close()
            await self._pipeline.close()
        finally:
            self.announcements.drop_cached()

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

    def _new_pipeline(self) -> TurnPipeline:
        return TurnPipeline(
            self._conversation,
            self._session_policy,
            self._lore,
            self._prefetcher,
            self._services,
            SessionCallbacks(
                emit=self.client.emit,
                fail=self.client.fail_message,
                on_context=self.contexts.at_enter,
                on_reply=self._report_reply,
                read_reply=self._read_reply,
                origin=self.origin,
                principal=lambda: self.client.principal,
            ),
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
        )

    def _share_turn(self, turn: PastTurn) -> None:
        if turn.id is not None:
            self.windows.on_said(turn.id)
        self.on_turn(turn)

    def _report_reply(self, turn: RunningTurn) -> None:
        self.on_reply(turn)

    async def _read_reply(self, turn_id: int) -> None:
        await self.windows.report([turn_id])

    def _on_settled(self, draft: str) -> None:
        self._pipeline.on_settled(draft)

    def _on_prepared(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        self.contexts.prepared(draft, context, trigger)
        self._pipeline.on_context(draft, context, trigger)


def window_id(stored_id: UUID, known: str | None) -> str:
    """Return the id of a window: the one that its client knows, if it is of this stored session."""
    prefix = f"{stored_id}."
    if known is not None and known.startswith(prefix) and len(known) == len(prefix) + _WINDOW_CHARS:
        return known
    return prefix + token_hex(_WINDOW_CHARS // 2)
