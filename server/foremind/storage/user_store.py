"""Users as wholes: who they are, and that they are erased."""

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
    """Reads users, and erases what is left of them once their relationships are empty."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, external_id: str) -> User:
        """Return a user.

        Raises:
            NotFound: nobody of that id is known.
        """
        row = await self._database.row("find_user", external_id)
        if row is None:
            raise NotFound("id: expected the id of a known user", param="id")
        return User(**dict(row))

    async def revocations(self, external_id: str) -> list[ExportedRevocation]:
        """Return what was revoked of a user's tokens."""
        rows = await self._database.rows("revocations_of_user", external_id)
        return [ExportedRevocation(**dict(row)) for row in rows]

    async def announce(self, user: User) -> None:
        """Have every process end the user's sessions."""
        await self._database.announce(UserErased(user.external_id, user.name))

    async def delete_relationship(self, relationship_id: int) -> Counter[str]:
        """Delete a relationship; return how many sessions and entries of the audit trail it had.

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
        """Delete the user; what must be known of them goes on under a pseudonym.

        Raises:
            StorageUnavailable: nothing was deleted.
        """
        async with self._database.transaction() as connection:
            row = await connection.row("pseudonym_key")
            if row is None:
                raise StorageUnavailable("The database is not whole.")
            pseudonym = pseudonym_of(user.external_id, row["key"])
            await connection.acting(user.external_id, pseudonym)
            await connection.execute("rename_actor", user.external_id, pseudonym)
            await connection.execute("rename_revoked", user.external_id, pseudonym)
            await connection.execute("delete_user", user.id)
            written = msgspec.json.encode(dict(receipt)).decode()
            await connection.execute("note_erased_user", now, by_operator, written)
            await connection.announce(UserErased(user.external_id, user.name))


def pseudonym_of(user_id: str, key: UUID) -> str:
    """Return what an erased user is called, where they must be known again."""
    return "erased-" + hmac.new(key.bytes, user_id.encode(), hashlib.sha256).hexdigest()[:32]
