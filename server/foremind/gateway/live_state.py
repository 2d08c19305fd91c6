"""What goes on in a session, as this process knows it."""

from datetime import datetime
from uuid import UUID

from foremind.domain.session_state import NO_STATE, SessionState, StatePatch
from foremind.storage.state_store import StateStore


class LiveState:
    """The state of one session; read anew where it changed elsewhere, or may have."""

    def __init__(self, store: StateStore, relationship_id: int, session_id: UUID) -> None:
        self._store = store
        self._relationship_id = relationship_id
        self._session_id = session_id
        self._changes = 0  # of what is stored, as far as they are known here
        #: What is known of it; nothing, while it is to be read.
        self.value: SessionState = NO_STATE
        self.known = False

    def forget(self) -> None:
        """Learn that it is another one by now, or that something in it may be forgotten."""
        self._changes += 1
        self.value, self.known = NO_STATE, False

    def move_to(self, session_id: UUID) -> None:
        """Be the state of the session that goes on after another."""
        self._session_id = session_id
        self.forget()

    async def read(self) -> None:
        """Read it, unless it is known; anew, where it changes meanwhile.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        while not self.known:
            changes = self._changes
            read = await self._store.read(self._relationship_id, self._session_id)
            if changes == self._changes:
                self.value, self.known = read, True

    async def change(self, patch: StatePatch, now: datetime) -> None:
        """Change it, here and for everybody.

        Raises:
            InvalidMessage: it would have too many flags.
            NotFound: the session is over.
            StorageUnavailable: nothing was changed.
        """
        changes = self._changes
        state = await self._store.change(self._relationship_id, self._session_id, patch, now)
        if changes == self._changes:
            self._changes += 1
            self.value, self.known = state, True
        await self.read()  # where a change, this or another one, was announced meanwhile
