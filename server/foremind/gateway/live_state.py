"""The session state as this process knows it."""

from datetime import datetime
from uuid import UUID

from foremind.domain.session_state import NO_STATE, SessionState, StatePatch
from foremind.storage.state_store import StateStore


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
