"""Erasing a user everywhere, with all relationships."""

from collections import Counter

import msgspec
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import NotFound
from foremind.memory.erase import Eraser, ErasureScope
from foremind.storage.relationship_store import RelationshipStore
from foremind.storage.user_store import UserStore

_log = structlog.get_logger("foremind.memory")


class UserErasureReceipt(msgspec.Struct, frozen=True):
    """How much of a user was erased; nothing tells whose it was."""

    relationships: int = 0
    sessions: int = 0
    turns: int = 0
    memories: int = 0
    records: int = 0
    audit: int = 0


class UserEraser:
    """Erases users: everything they said, what was made of it, and that they were ever there."""

    def __init__(
        self,
        users: UserStore,
        relationships: RelationshipStore,
        forgetter: Eraser,
        clock: Clock,
    ) -> None:
        self._users = users
        self._relationships = relationships
        self._forgetter = forgetter
        self._clock = clock

    async def erase(self, user_id: str, *, by_operator: bool) -> UserErasureReceipt:
        """Erase a user; every process ends their sessions.

        What is a lot goes in steps. If it is broken off, asking again erases the rest.

        Raises:
            NotFound: nobody of that id is known.
            StorageUnavailable, Overloaded: try again later.
        """
        user = await self._users.find(user_id)
        await self._users.announce(user)  # nothing more is to be said meanwhile
        counted: Counter[str] = Counter()
        for each in await self._relationships.of_user(user_id):
            try:
                receipt = await self._forgetter.forget(
                    each.id, (user.name, each.companion), ErasureScope(),
                    actor="user", read_in_exchange=False,
                )  # fmt: skip
            except NotFound:  # erased twice at once
                continue
            counted["turns"] += receipt.turns
            counted["memories"] += len(receipt.memories)
            counted["records"] += receipt.records
            counted.update(await self._users.delete_relationship(each.id))
        await self._users.delete(user, counted, self._clock.now(), by_operator=by_operator)
        _log.info("user.erased", relationships=counted["relationships"])
        return msgspec.convert(dict(counted), UserErasureReceipt)
