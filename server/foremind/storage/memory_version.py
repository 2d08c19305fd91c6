"""The version that a change to memories carries: raised and handed out here, nowhere else."""

from foremind.domain.announcements import MemoriesChanged
from foremind.domain.errors import NotFound
from foremind.storage.database import DatabaseConnection


class MemoryVersion:
    """Raises a relationship's memory version, once a transaction, before its first change.

    Every statement that changes a memory stamps it with this version. A stamp is thus never ahead
    of its relationship, and whoever reads all memories up to the relationship's version misses
    none.
    """

    def __init__(self, connection: DatabaseConnection, relationship_id: int) -> None:
        self._connection = connection
        self._relationship_id = relationship_id
        #: The version that this transaction raised; None while it changed nothing.
        self.raised: int | None = None

    async def stamp(self) -> int:
        """Return the version of this transaction's changes.

        Nobody else changes the relationship's memories until the transaction ends.

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
        """Tell every process that memories changed, once the transaction commits."""
        if self.raised is not None:
            await self._connection.announce(MemoriesChanged(self._relationship_id, self.raised))
