"""The conversation of one session: participants, history, state, and its rollover."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import partial
from uuid import UUID

import msgspec

from foremind.domain.clock import Clock
from foremind.domain.policy import Policy
from foremind.domain.session_state import NO_STATE, SessionState, StatePatch
from foremind.domain.turn import OpenedSession, Speaker, Turn
from foremind.gateway.session_policy import SessionPolicy
from foremind.llm.prompt.assembly import MAX_TURNS, recent_turns
from foremind.llm.prompt.character import macro_values
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.supervision import run_or_offload
from foremind.storage.relationship_store import StateStore
from foremind.storage.turn_store import TurnStore
from foremind.text.languages.language_files import ENGLISH
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.draft_lore import DraftLore, Lorebooks, has_lorebook, lore_for, mark_of


class ChatHistory:
    """The newest turns of a session, oldest first; loaded from the database on demand.

    Args:
        turns: the turns so far; None if they have not been loaded.
        newest_fitting: returns the newest of some turns that fit into a prompt.
        earlier: what was said before all that is stored; it is not stored.
    """

    def __init__(
        self,
        turns: list[PastTurn] | None,
        newest_fitting: Callable[[list[PastTurn]], list[PastTurn]],
        earlier: Sequence[PastTurn] = (),
    ) -> None:
        self._earlier = earlier
        self._newest_fitting = newest_fitting
        self._turns = newest_fitting(turns or [])
        self._changes = 0  # stored changes that `_turns` does not include
        #: Whether the history is loaded.
        self.known = turns is not None
        #: The id of the newest stored turn that it includes or left out for lack of space.
        self.newest_id = max((turn.id or 0 for turn in turns or ()), default=0)

    @property
    def turns(self) -> Sequence[PastTurn]:
        """The loaded turns."""
        return self._turns

    @property
    def is_stored(self) -> bool:
        """Whether all that it has of what the user said is stored."""
        said = (*self._earlier, *self._turns)
        return all(turn.id is not None for turn in said if turn.speaker == "user")

    def without(self, message_id: str | None) -> list[PastTurn]:
        """Return the loaded turns except a user message."""
        return [turn for turn in self._turns if message_id is None or turn.message_id != message_id]

    async def read(
        self, fetch: Callable[[], Awaitable[Sequence[Turn]]], message_id: str | None = None
    ) -> None:
        """Load the history unless it is loaded; repeat if it changes meanwhile.

        Args:
            fetch: queries the database.
            message_id: the message in progress, which is left out: it may already be stored.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        while not self.known:
            changes = self._changes
            stored = [
                PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
                for turn in await fetch()
                if message_id is None or turn.message_id != message_id
            ]
            if changes == self._changes:
                turns = self._newest_fitting([*self._earlier, *stored])
                await split_sentences(*turns)
                if changes == self._changes:
                    self._turns, self.known = turns, True
                    self.newest_id = max((turn.id or 0 for turn in stored), default=0)

    def drop(self) -> None:
        """Unload the history; the next `read` fetches it again."""
        self._turns.clear()
        self.known = False
        self._changes += 1

    def add(self, turn: PastTurn) -> None:
        """Append a turn; one that is already present moves to the end."""
        _ = turn.says  # computed and cached now, when no reply waits for it
        if self.known:  # otherwise it is loaded with the next message
            self.newest_id = max(self.newest_id, turn.id or 0)
            others = [other for other in self._turns if turn.id is None or other.id != turn.id]
            self._turns = self._newest_fitting([*others, turn])

    def add_remote(self, turn: PastTurn) -> bool:
        """Append a turn from another connection; return False if it was already present."""
        if not self.known:
            self._changes += 1
            return True
        if any(other.id == turn.id for other in self._turns):
            return False
        self.add(turn)
        return True

    def reaches(self, turn_id: int | None) -> bool:
        """Return whether every turn up to a stored one is included, or will be once loaded."""
        return not self.known or turn_id is None or turn_id <= self.newest_id

    def lacks(self, message_id: str, speaker: Speaker) -> bool:
        """Return whether a stored turn is missing: the user's message or the reply to it."""
        if not self.known:
            return False
        remaining = iter(self._turns)
        if not any(turn.message_id == message_id for turn in remaining):
            return True
        return speaker == "companion" and all(turn.speaker == "user" for turn in remaining)


async def split_sentences(*turns: PastTurn) -> None:
    """Split turns into sentences before a prompt needs them; long ones in a thread."""
    chars = sum(len(turn.content) for turn in turns)
    await run_or_offload(chars, lambda: [turn.says for turn in turns])


class LiveState:
    """The cached state of one session; reloaded once it may have changed elsewhere."""

    def __init__(self, store: StateStore, relationship_id: int, session_id: UUID) -> None:
        self._store = store
        self._relationship_id = relationship_id
        self._session_id = session_id
        self._changes = 0  # changes to the stored state that this process knows of
        #: The cached state; empty while it has to be loaded.
        self.value: SessionState = NO_STATE
        self.known = False
        #: The version of the cached state.
        self.version = 0

    def invalidate(self) -> None:
        """Drop the cached state: it changed elsewhere, or part of it may have been erased."""
        self._changes += 1
        self.value, self.known = NO_STATE, False

    def move_to(self, session_id: UUID) -> None:
        """Switch to the session that succeeds this one."""
        self._session_id = session_id
        self.invalidate()

    async def read(self) -> None:
        """Load the state unless it is loaded; repeat if it changes meanwhile.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        while not self.known:
            changes = self._changes
            state, version = await self._store.read(self._relationship_id, self._session_id)
            if changes == self._changes:
                self.value, self.version, self.known = state, version, True

    async def change(self, patch: StatePatch, now: datetime) -> None:
        """Apply a patch to the stored and the cached state.

        Raises:
            InvalidMessage: there would be too many flags.
            NotFound: the session has ended.
            StorageUnavailable: nothing was changed.
        """
        changes = self._changes
        state, version = await self._store.change(
            self._relationship_id, self._session_id, patch, now
        )
        if changes == self._changes:
            self._changes += 1
            self.value, self.version, self.known = state, version, True
        await self.read()  # needed if this or another change was announced meanwhile


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
    def is_stored(self) -> bool:
        """Whether prompts have nothing of the user that is stored nowhere else."""
        return self.history.is_stored and not self.attached

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


_UNKNOWN = (-1, 0)  # the mark of a history that is not loaded: no context was made after it


class SessionLore:
    """Extends the retrieval scope of a session by what its drafts activate of the lorebook."""

    def __init__(
        self,
        conversation: LiveConversation,
        session_policy: SessionPolicy,
        lorebooks: Lorebooks,
    ) -> None:
        self._conversation = conversation
        self._session_policy = session_policy
        self._lorebooks = lorebooks

    def retrieval_scope(
        self, policy: Policy | None = None, message_id: str | None = None
    ) -> RetrievalScope:
        """Return whose memories are searched, and the cache key of the contexts.

        Args:
            policy: the settings of a turn; by default those of the session.
            message_id: the message in progress, which is no part of the conversation before it.
        """
        scope = self._session_policy.retrieval_scope(policy)
        if not has_lorebook(self._session_policy.companion):
            return scope
        history = self._conversation.history
        mark = mark_of(history.without(message_id)) if history.known else _UNKNOWN
        return replace(
            scope,
            cache_key=msgspec.structs.replace(scope.cache_key, history=mark),
            lore=partial(self._lore, policy or self._session_policy.policy, message_id),
        )

    async def for_next_draft(self) -> DraftLore:
        """Return what is active before the next message is typed."""
        return await self.retrieval_scope().lore("")

    async def _lore(self, policy: Policy, message_id: str | None, draft: str) -> DraftLore:
        """Return what a draft activates.

        Raises:
            StorageUnavailable: the conversation could not be read.
        """
        conversation, companion = self._conversation, self._session_policy.companion
        await conversation.read_history(message_id)
        return await lore_for(
            self._lorebooks,
            companion,
            policy.layers,
            macro_values(
                companion,
                conversation.participants.user_name,
                str(conversation.opened.session_id),
            ),
            conversation.history.without(message_id),
            draft,
        )
