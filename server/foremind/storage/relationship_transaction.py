"""The one shape of a change to what a relationship remembers: lock, change, announce."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import msgspec

from foremind.domain.announcements import LayersChanged, MemoriesChanged
from foremind.domain.errors import Conflict, NotFound, StorageUnavailable
from foremind.storage.database import Database, DatabaseConnection


class RelationshipTransaction:
    """A transaction that holds the relationship's lock.

    The versions that caches compare are raised here and nowhere else, at most once per transaction
    and no later than the first change that is stamped with them: no stamp is ahead of the
    relationship's version, and reading everything up to that version misses nothing.
    """

    def __init__(
        self,
        connection: DatabaseConnection,
        relationship_id: int,
        erasures: int,
        memory_version: int,
    ) -> None:
        self.connection = connection
        self.relationship_id = relationship_id
        #: The number of erasures before this transaction.
        self.erasures = erasures
        self._memory_version = memory_version  # before this transaction
        #: The versions that this transaction raised; None while it has changed nothing.
        self.raised_memory_version: int | None = None
        self.raised_layers_version: int | None = None
        self._announcements: list[msgspec.Struct] = []

    @classmethod
    @asynccontextmanager
    async def begin(
        cls, database: Database, relationship_id: int, *, erasures: int | None = None
    ) -> AsyncIterator[Self]:
        """Lock the relationship; on leaving, announce what changed, and commit.

        Args:
            erasures: the number of erasures when the sources were read; None skips the check.

        Raises:
            NotFound: there is no such relationship.
            Conflict: something was erased or corrected meanwhile.
            StorageUnavailable: nothing was changed; try again later.
        """
        async with database.transaction(relationship_id) as connection:
            transaction = await cls.lock(connection, relationship_id)
            if erasures is not None and transaction.erasures != erasures:
                raise Conflict("Something was forgotten or corrected meanwhile.")
            yield transaction
            await transaction.finish()

    @classmethod
    async def lock(cls, connection: DatabaseConnection, relationship_id: int) -> Self:
        """Lock the relationship within a transaction that has begun; call `finish` at its end.

        Raises:
            NotFound: there is no such relationship.
            StorageUnavailable: another embedding model is in use by now, with which this process is
                about to start again.
        """
        row = await connection.row("lock_relationship", relationship_id)
        if row is None:
            raise NotFound("id: expected the id of a relationship", param="id")
        if connection.fingerprint not in (None, row["fingerprint"]):
            raise StorageUnavailable(
                "The embedding model was replaced; this server starts again. Try again shortly."
            )
        return cls(connection, relationship_id, row["erasures"], row["memory_version"])

    async def memory_version(self) -> int:
        """Return the version of changes to memories, raising it on the first call."""
        if self.raised_memory_version is None:
            self.raised_memory_version = await self._raise("raise_memory_version")
        return self.raised_memory_version

    def next_memory_version(self) -> int:
        """Return the version that the caller's next statement sets, with what it stamps."""
        if self.raised_memory_version is None:
            self.raised_memory_version = self._memory_version + 1
        return self.raised_memory_version

    async def layers_version(self) -> int:
        """Return the version of changes to records, raising it on the first call."""
        if self.raised_layers_version is None:
            self.raised_layers_version = await self._raise("raise_layers_version")
        return self.raised_layers_version

    def announce(self, announcement: msgspec.Struct) -> None:
        """Announce something when the transaction commits."""
        self._announcements.append(announcement)

    async def finish(self) -> None:
        """Announce what was asked for, and raised versions that no announcement states."""
        stated = {
            name
            for announcement in self._announcements
            for name in ("memory_version", "layers_version")
            if getattr(announcement, name, None) is not None
        }
        if self.raised_memory_version is not None and "memory_version" not in stated:
            self.announce(MemoriesChanged(self.relationship_id, self.raised_memory_version))
        if self.raised_layers_version is not None and "layers_version" not in stated:
            self.announce(LayersChanged(self.relationship_id, self.raised_layers_version))
        for announcement in self._announcements:
            self.connection.announce(announcement)

    async def _raise(self, query: str) -> int:
        row = await self.connection.row(query, self.relationship_id)
        assert row is not None  # it is locked
        return int(row["version"])
