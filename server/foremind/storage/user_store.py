"""Reads users, and deletes them."""

import hashlib
import hmac
from collections import Counter
from datetime import datetime
from uuid import UUID

import msgspec

from foremind.domain.announcements import UserErased
from foremind.domain.errors import NotFound, StorageUnavailable
from foremind.domain.user import ExportedRevocation, User
from foremind.storage.database import Database


class UserStore:
    """Reads users, and deletes them once their relationships are erased."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, external_id: str) -> User:
        """Return a user by the id that clients use.

        Raises:
            NotFound: there is none with that id.
        """
        row = await self._database.row("find_user", external_id)
        if row is None:
            raise NotFound("id: expected the id of a known user", param="id")
        return User(**dict(row))

    async def revocations(self, external_id: str) -> list[ExportedRevocation]:
        """Return the revocations of a user's tokens."""
        rows = await self._database.rows("revocations_of_user", external_id)
        return [ExportedRevocation(**dict(row)) for row in rows]

    async def announce(self, user: User) -> None:
        """Make every process end the user's sessions."""
        await self._database.announce(UserErased(user.external_id, user.name))

    async def delete_relationship(self, relationship_id: int) -> Counter[str]:
        """Delete a relationship; count its sessions and audit entries.

        Raises:
            StorageUnavailable: nothing was deleted.
        """
        async with self._database.transaction(relationship_id) as connection:
            await connection.execute("lock_relationship", relationship_id)
            row = await connection.row("delete_relationship", relationship_id)
        return Counter({} if row is None else dict(row))

    async def delete(
        self, user: User, receipt: Counter[str], now: datetime, *, by_operator: bool
    ) -> None:
        """Delete the user; revocations and audit entries continue under a pseudonym.

        Raises:
            StorageUnavailable: nothing was deleted.
        """
        async with self._database.transaction() as connection:
            row = await connection.row("pseudonym_key")
            if row is None:
                raise StorageUnavailable("The database lacks its pseudonym key.")
            pseudonym = pseudonym_of(user.external_id, row["key"])
            await connection.show_audit_of(user.external_id, pseudonym)
            await connection.execute("rename_actor", user.external_id, pseudonym)
            await connection.execute("rename_revoked", user.external_id, pseudonym)
            await connection.execute("delete_user", user.id)
            encoded = msgspec.json.encode(dict(receipt)).decode()
            await connection.execute("insert_erased_user", now, by_operator, encoded)
            await connection.announce(UserErased(user.external_id, user.name))


def pseudonym_of(user_id: str, key: UUID) -> str:
    """Return the pseudonym of an erased user, the same for the same id."""
    return "erased-" + hmac.new(key.bytes, user_id.encode(), hashlib.sha256).hexdigest()[:32]
