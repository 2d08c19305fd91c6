"""Erases a user everywhere, with all relationships."""

import msgspec
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, NotFound
from foremind.memory.erase import Eraser
from foremind.storage.user_store import UserErasure, UserStore, count_erased

_log = structlog.get_logger("foremind.memory")


class UserErasureReceipt(msgspec.Struct, frozen=True):
    """How much of a user was erased; nothing in it identifies the user."""

    relationships: int = 0
    sessions: int = 0
    turns: int = 0
    memories: int = 0
    records: int = 0
    audit: int = 0


class UserEraser:
    """Erases users: everything they said, what was derived from it, and their existence.

    An erasure is recorded before anything else. What is interrupted after that, by a kill or a full
    disk, is finished by whoever finds it unfinished.
    """

    def __init__(self, users: UserStore, eraser: Eraser, clock: Clock) -> None:
        self._users = users
        self._eraser = eraser
        self._clock = clock

    async def erase(self, user_id: str, *, by_operator: bool) -> UserErasureReceipt:
        """Erase a user, or finish what was interrupted; every process ends their sessions.

        Returns:
            What was erased in all, also before an interruption.

        Raises:
            NotFound: there is no user with that id.
            RateLimited, StorageUnavailable, Overloaded: nothing was recorded, and nothing erased;
                or it is recorded, and will be finished.
        """
        erasure = await self._users.begin_erasure(
            user_id, self._clock.now(), by_operator=by_operator
        )
        return await self._finish(erasure)

    async def finish_interrupted(self) -> None:
        """Finish the erasures that are recorded and not finished; those that fail are left.

        Raises:
            StorageUnavailable: try again later.
        """
        for erasure in await self._users.unfinished_erasures():
            try:
                await self._finish(erasure)
            except ForemindError as error:
                _log.warning("user.not_erased", erasure=erasure.id, reason=error.code)

    async def _finish(self, erasure: UserErasure) -> UserErasureReceipt:
        receipt = None
        while receipt is None:
            for relationship_id in await self._users.relationships_of(erasure):
                try:
                    await self._eraser.erase_relationship(
                        relationship_id,
                        lambda connection, counts: count_erased(connection, erasure, counts),
                    )
                except NotFound:  # somebody else has finished it
                    continue
            receipt = await self._users.finish_erasure(erasure)
        _log.info("user.erased", relationships=receipt.get("relationships", 0))
        return msgspec.convert(receipt, UserErasureReceipt)
