"""Erases a user everywhere, with all relationships."""

from collections import Counter

import msgspec
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import NotFound
from foremind.memory.erase import Eraser
from foremind.memory.erasure_request import ErasureScope
from foremind.storage.relationship_store import RelationshipStore
from foremind.storage.user_store import UserStore

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
    """Erases users: everything they said, what was derived from it, and their existence."""

    def __init__(
        self,
        users: UserStore,
        relationships: RelationshipStore,
        eraser: Eraser,
        clock: Clock,
    ) -> None:
        self._users = users
        self._relationships = relationships
        self._eraser = eraser
        self._clock = clock

    async def erase(self, user_id: str, *, by_operator: bool) -> UserErasureReceipt:
        """Erase a user; every process ends their sessions.

        Large amounts are erased in several transactions. If interrupted, a second call erases
        the rest.

        Raises:
            NotFound: there is no user with that id.
            StorageUnavailable, Overloaded: try again later.
        """
        user = await self._users.find(user_id)
        await self._users.announce(user)  # ends their sessions before anything is erased
        counts: Counter[str] = Counter()
        for relationship in await self._relationships.relationships_of_user(user_id):
            try:
                receipt = await self._eraser.erase(
                    relationship.id,
                    (user.name, relationship.companion),
                    ErasureScope(),
                    actor="user",
                    read_in_exchange=False,
                )
            except NotFound:  # erased by a concurrent request
                continue
            counts["turns"] += receipt.turns
            counts["memories"] += len(receipt.memories)
            counts["records"] += receipt.records
            counts.update(await self._users.delete_relationship(relationship.id))
        await self._users.delete(user, counts, self._clock.now(), by_operator=by_operator)
        _log.info("user.erased", relationships=counts["relationships"])
        return msgspec.convert(dict(counts), UserErasureReceipt)
