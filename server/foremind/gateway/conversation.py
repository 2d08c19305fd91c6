"""The conversation of one session: participants, history, state, and its rollover."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from foremind.domain.clock import Clock
from foremind.domain.policy import Policy
from foremind.domain.turn import OpenedSession, Turn
from foremind.gateway.chat_history import ChatHistory
from foremind.gateway.live_state import LiveState
from foremind.llm.prompt.assembly import MAX_TURNS, recent_turns
from foremind.llm.prompt.layout import PastTurn
from foremind.storage.turn_store import TurnStore
from foremind.text.languages.language_files import ENGLISH


@dataclass(frozen=True, slots=True)
class Participants:
    """The user, and the stored session that their turns belong to.

    `language` is that of the session's prompts, one for all, so that a model server can reuse what
    it has read.
    """

    opened: OpenedSession
    user_name: str
    time_zone: tzinfo
    language: str = ENGLISH


class LiveConversation:
    """What messages and replies of one session have in common.

    Args:
        turns: the turns so far; None if they have not been loaded.
        policy: returns the settings in force.
        on_turn: called with each turn stored here, for other windows of the session.
        earlier: what was said before the stored turns; not stored.
    """

    def __init__(
        self,
        participants: Participants,
        turns: list[PastTurn] | None,
        state: LiveState,
        policy: Callable[[], Policy],
        store: TurnStore,
        clock: Clock,
        on_turn: Callable[[PastTurn], None],
        earlier: Sequence[PastTurn] = (),
    ) -> None:
        self.participants = participants
        self.history = ChatHistory(
            turns,
            lambda turns: recent_turns(turns, policy().layers.context_tokens),
            earlier,
        )
        self.state = state
        #: The number of the companion's greeting that the client chose.
        self.greeting = 0
        #: How replies begin; what follows is made and sent, and stored with it.
        self.begun = ""
        #: Passages that belong to the message; they are not stored.
        self.attached = ""
        #: Number of erasures that this session knows of.
        self.erasures = participants.opened.erasures
        self._store = store
        self._clock = clock
        self._on_turn = on_turn
        self._active_at = participants.opened.active_at or clock.now()

    @property
    def opened(self) -> OpenedSession:
        """The stored session."""
        return self.participants.opened

    @property
    def loaded(self) -> bool:
        """Whether history and state are loaded."""
        return self.history.known and self.state.known

    def add_turn(self, turn: PastTurn) -> None:
        """Append a turn stored here, and pass it to other windows."""
        self.history.add(turn)
        self._on_turn(turn)

    async def read_history(self, message_id: str | None = None) -> None:
        """Load the history unless it is loaded; repeat if it changes meanwhile.

        Args:
            message_id: the message in progress, which is left out: it may already be stored.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        await self.history.read(self._stored_turns, message_id)

    async def load(self, message_id: str | None = None) -> None:
        """Load history and state, until both are loaded: either may be dropped meanwhile.

        Args:
            message_id: the message in progress, as for `read_history`.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        while not self.loaded:
            await self.read_history(message_id)
            await self.state.read()

    def touch(self) -> datetime:
        """Record activity, which postpones the rollover; return the time."""
        self._active_at = self._clock.now()
        return self._active_at

    async def roll_over_if_idle(self, policy: Policy) -> bool:
        """Begin the next session if this one was idle for longer than the policy allows.

        The connection and the session id that its client knows stay the same.

        Returns:
            Whether a new session began.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        now = self._clock.now()
        if now - self._active_at <= policy.layers.session:
            return False
        before = self.opened
        opened = await self._store.continue_session(before, now, policy.layers.session)
        rolled_over = opened.session_id != before.session_id
        if rolled_over:
            self.participants = replace(self.participants, opened=opened)
            self.history.drop()
            self.state.move_to(opened.session_id)
        self._active_at = now
        return rolled_over

    def _stored_turns(self) -> Awaitable[list[Turn]]:
        return self._store.session_turns(
            self.opened.relationship_id, self.opened.session_id, MAX_TURNS
        )
