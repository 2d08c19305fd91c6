"""The version that stamps every change to memories; it is raised only here."""

from foremind.domain.announcements import MemoriesChanged
from foremind.domain.errors import NotFound
from foremind.storage.database import DatabaseConnection


class MemoryVersion:
    """Raises a relationship's memory version once per transaction, before its first change.

    Every statement that changes a memory stamps it with this version. So no stamp is ahead of the
    relationship's version, and reading all memories up to that version misses none.
    """

    def __init__(self, connection: DatabaseConnection, relationship_id: int) -> None:
        self._connection = connection
        self._relationship_id = relationship_id
        #: The version of this transaction; None while it has changed nothing.
        self.raised: int | None = None

    async def stamp(self) -> int:
        """Return the version of this transaction's changes, raising it on the first call.

        That locks the relationship: nobody else changes its memories until the transaction ends.

        Raises:
            NotFound: there is no such relationship.
        """
        if self.raised is None:
            row = await self._connection.row("raise_memory_version", self._relationship_id)
            if row is None:
                raise NotFound("relationship: expected a known one", param="relationship")
            self.raised = int(row["memory_version"])
        return self.raised

    async def announce(self) -> None:
        """Announce the change, if there was any, when the transaction commits."""
        if self.raised is not None:
            await self._connection.announce(MemoriesChanged(self._relationship_id, self.raised))
