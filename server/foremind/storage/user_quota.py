"""What a user may store, over all companions: bounds what one player can fill of a disk."""

import asyncio
from dataclasses import dataclass
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.domain.clock import Clock
from foremind.domain.errors import StorageFull, StorageUnavailable
from foremind.runtime.supervision import begin, stop
from foremind.storage.database import Database

_TURN_BYTES = 2048  # of a turn's vectors, words and indexes, besides its text
_MEASURED_S = 600.0  # for which what was measured is only added to
_FULL_S = 1.0  # likewise, of a user who has no room left and may have forgotten something
_MAX_USERS = 100_000  # whose sizes are known; others are measured again

_log = structlog.get_logger("foremind.storage")


@dataclass(slots=True)
class _UsedSpace:
    bytes: int = 0
    measured_at: float = float("-inf")
    measuring: "asyncio.Task[None] | None" = None


class UserQuota:
    """Counts what users store in this process, and measures it in the database now and then.

    Nobody waits for a measurement but a user who seems to have no room left.
    """

    def __init__(self, database: Database, limit_bytes: int, clock: Clock) -> None:
        self._database = database
        self._limit = limit_bytes
        self._clock = clock
        self._users: LRUCache[int, _UsedSpace] = LRUCache(_MAX_USERS)

    async def admit(self, user_id: int | None, text_bytes: int, turns: int = 1) -> None:
        """Count what is about to be stored.

        Args:
            user_id: the user's key in the database; None for one who has nothing there yet.
            turns: how many turns are added.

        Raises:
            StorageFull: there is no room for it.
            StorageUnavailable: there seems to be none, and the database did not answer.
        """
        size = text_bytes + turns * _TURN_BYTES
        stored = _UsedSpace()
        if user_id is not None:
            stored = self._users.setdefault(user_id, stored)
        now = self._clock.monotonic()
        full = stored.bytes + size > self._limit
        if user_id is not None and now - stored.measured_at > (_FULL_S if full else _MEASURED_S):
            if stored.measuring is None or stored.measuring.done():
                stored.measured_at = now
                stored.measuring = begin(
                    self._measure(user_id, stored, stored.bytes), "measure-user"
                )
            if full:
                await asyncio.wait({stored.measuring})
                full = stored.bytes + size > self._limit
        if full:
            raise StorageFull(
                f"text: expected room for {size} bytes more, but this user has stored "
                f"{stored.bytes} of {self._limit} bytes; forgetting makes room",
                param="text",
            )
        stored.bytes += size

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop(*(stored.measuring for stored in self._users.values() if stored.measuring))

    async def _measure(self, user_id: int, stored: _UsedSpace, counted: int) -> None:
        """Measure what a user has stored; what is counted meanwhile is added."""
        total = 0
        try:
            for row in await self._database.rows("relationship_ids_of_user", user_id):
                scoped = self._database.for_relationship(row["id"])
                turns = await scoped.row("stored_turns", row["id"])
                assert turns is not None
                total += turns["bytes"] + turns["turns"] * _TURN_BYTES
        except StorageUnavailable as error:  # what was counted here goes on to count
            _log.warning("user.not_measured", reason=error.code)
            return
        stored.bytes += total - counted
