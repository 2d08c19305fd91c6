"""Reads users, and deletes them."""

import hashlib
import hmac
from collections import Counter
from datetime import datetime
from uuid import UUID

import msgspec

from foremind.domain.announcements import RelationshipDeleted, UserErased
from foremind.domain.errors import NotFound, StorageUnavailable
from foremind.domain.user import ExportedRevocation, User
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.relationship_transaction import RelationshipTransaction


class UserStore:
    """Reads users, and deletes them once their relationships are erased."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, external_id: str) -> User | None:
        """Return a user by the id that clients use; None if there is none."""
        row = await self._database.row("find_user", external_id)
        return None if row is None else User(**dict(row))

    async def find(self, external_id: str) -> User:
        """Return a user by the id that clients use.

        Raises:
            NotFound: there is none with that id.
        """
        user = await self.get(external_id)
        if user is None:
            raise NotFound("id: expected the id of a known user", param="id")
        return user

    async def revocations(self, external_id: str) -> list[ExportedRevocation]:
        """Return the revocations of a user's tokens."""
        rows = await self._database.rows("revocations_of_user", external_id)
        return [ExportedRevocation(**dict(row)) for row in rows]

    async def announce(self, user: User) -> None:
        """Make every process end the user's sessions."""
        await self._database.announce(UserErased(user.external_id))

    async def delete_relationship(self, relationship_id: int) -> Counter[str]:
        """Delete a relationship; count its sessions and audit entries.

        Raises:
            StorageUnavailable: nothing was deleted.
        """
        try:
            async with RelationshipTransaction.begin(
                self._database, relationship_id
            ) as transaction:
                row = await transaction.connection.row("delete_relationship", relationship_id)
                transaction.announce(RelationshipDeleted(relationship_id))
        except NotFound:
            return Counter()
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
            connection.announce(UserErased(user.external_id))


async def find_or_create_user(
    connection: Database | DatabaseConnection,
    external_id: str,
    name: str,
    time_zone: str,
    language: str | None = None,
) -> User:
    """Return a user with this name, time zone and language; it is only written if they differ.

    Args:
        language: perhaps with its region ("pt-BR"); None leaves both unchanged, and the language
            alone its region.
    """
    row = await connection.row("find_user", external_id)
    known = (None, None) if row is None else (row["language"], row["region"])
    code, _, region = (language or known[0] or "").partition("-")
    if code == known[0]:
        region = region or known[1] or ""
    stated = (name, time_zone, code or None, region or None)
    if row is None or (row["name"], row["time_zone"], *known) != stated:
        row = await connection.row("put_user", external_id, *stated)
    if row is None:
        raise StorageUnavailable("The user could not be stored; try again shortly.")
    return User(**dict(row))


async def reset_user_without_data(connection: DatabaseConnection, relationship_id: int) -> None:
    """Reset a user's name, time zone and language to those of a new user.

    Only if nothing else is stored, with this companion or another, and no session is open.
    """
    row = await connection.row("user_without_data", relationship_id)
    if row is None:
        return
    user_id = row["user_id"]
    if await connection.row("another_relationship", user_id, relationship_id) is None:
        await connection.execute("reset_user_profile", user_id)


def pseudonym_of(user_id: str, key: UUID) -> str:
    """Return the pseudonym of an erased user, the same for the same id."""
    return "erased-" + hmac.new(key.bytes, user_id.encode(), hashlib.sha256).hexdigest()[:32]
