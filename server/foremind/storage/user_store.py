"""Users, read and deleted, and the revocations of their tokens."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from foremind.domain.announcements import AccessRevoked, UserErased
from foremind.domain.errors import NotFound, StorageUnavailable
from foremind.domain.user import ExportedRevocation, User
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.world_erasure_store import leave_worlds


class UserErasure(NamedTuple):
    """An erasure that is recorded, and whose it is: the user's id in the database.

    `player` is the id that clients used, by which worlds know the user. Erased is what happened in
    `timelines` up to the event whose number is given for each; the accounts there have an `alias`.
    """

    id: int
    user_id: int
    player: str
    timelines: Mapping[int, int]
    alias: str


class UserStore:
    """Reads users, records their erasure, and deletes them once their relationships are erased."""

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

    async def begin_erasure(
        self, external_id: str, now: datetime, *, by_operator: bool
    ) -> UserErasure:
        """Record that a user is erased; every process ends their sessions.

        From then on the id is that of nobody, and revocations and audit entries continue under a
        pseudonym. An erasure that was interrupted is returned again, until it is finished. A player
        whom only worlds know is erased as well.

        Raises:
            NotFound: there is no user with that id.
            StorageUnavailable: nothing was recorded.
        """
        async with self._database.transaction() as connection:
            row = await connection.row("pseudonym_key")
            if row is None:
                raise StorageUnavailable("The database lacks its pseudonym key.")
            pseudonym = pseudonym_of(external_id, row["key"])
            if await connection.row("accounts_of_player", external_id) is not None:
                await connection.execute("ensure_user", external_id)
            taken = await connection.row("take_identity", external_id, pseudonym)
            if taken is None:
                row = await connection.row("unfinished_erasure", pseudonym)
            else:
                alias = _alias_of(pseudonym, taken["id"])
                last = await leave_worlds(connection, external_id, alias)
                timelines = msgspec.json.encode(last).decode()
                row = await connection.row(
                    "insert_erased_user", taken["id"], external_id, timelines, now, by_operator
                )
                await connection.show_audit_of(external_id, pseudonym)
                await connection.execute("rename_actor", external_id, pseudonym)
                await connection.execute("rename_revoked", external_id, pseudonym)
                connection.announce(UserErased(external_id))
        if row is None:
            raise NotFound("id: expected the id of a known user", param="id")
        return _erasure(row, pseudonym)

    async def unfinished_erasures(self) -> list[UserErasure]:
        """Return the erasures that are recorded and not finished."""
        rows = await self._database.rows("unfinished_erasures")
        if not rows:
            return []
        key = await self._database.value("pseudonym_key")
        return [_erasure(row, pseudonym_of(row["player"], key)) for row in rows]

    async def relationships_of(self, erasure: UserErasure) -> list[int]:
        """Return the relationships that are still to be erased."""
        rows = await self._database.rows("relationship_ids_of_user", erasure.user_id)
        return [row["id"] for row in rows]

    async def finish_erasure(self, erasure: UserErasure) -> dict[str, int] | None:
        """Delete an erased user; return how much was erased in all, by kind.

        None if the user has relationships: someone was still opening a session.

        Raises:
            StorageUnavailable: nothing was deleted.
        """
        async with self._database.transaction() as connection:
            row = await connection.row("lock_erased_user", erasure.id)
            assert row is not None  # the rows of erasures stay
            if row["user_id"] is not None:
                await connection.row("lock_user", erasure.user_id)
                if await connection.row("relationship_ids_of_user", erasure.user_id) is not None:
                    return None
                await connection.execute("finish_erased_user", erasure.id)
                await connection.execute("delete_user", erasure.user_id)
        return msgspec.json.decode(row["receipt"], type=dict[str, int])


def _erasure(row: Any, pseudonym: str) -> UserErasure:
    return UserErasure(
        row["id"],
        row["user_id"],
        row["player"],
        msgspec.json.decode(row["timelines"], type=dict[int, int]),
        _alias_of(pseudonym, row["user_id"]),
    )


def _alias_of(pseudonym: str, user_id: int) -> str:
    """Return what an erased player is called in the ids of accounts; no player has such an id."""
    return f"\n{pseudonym}-{user_id}"


async def count_erased(
    connection: DatabaseConnection, erasure: UserErasure, counts: Mapping[str, int]
) -> None:
    """Add to the receipt of an erasure, in the transaction that erases it."""
    encoded = msgspec.json.encode(counts).decode()
    await connection.execute("count_erased", erasure.id, encoded)


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


class TokenIdentity(NamedTuple):
    """What a token may be revoked by: its user, also by pseudonym, its id, its time of issue."""

    subjects: list[str]
    token_id: str | None
    issued_at: datetime


class RevocationStore:
    """Reads and writes revocations, which are permanent."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: UUID | None = None

    async def revoke(self, subject: str, token_id: str | None, until: datetime) -> None:
        """Revoke one token of a user, or all issued until `until`, and announce it.

        Raises:
            StorageUnavailable: nothing was revoked.
        """
        announcement = AccessRevoked(subject, token_id, until)
        async with self._database.transaction() as connection:
            await connection.execute("revoke_access", subject, token_id, until)
            connection.announce(announcement)

    async def is_revoked(self, subject: str, token_id: str | None, issued_at: float | None) -> bool:
        """Return whether a token is revoked."""
        identity = await self.identity(subject, token_id, issued_at)
        revoked: bool = await self._database.value("access_revoked", *identity)
        return revoked

    async def identity(
        self, subject: str, token_id: str | None, issued_at: float | None
    ) -> TokenIdentity:
        """Return what a token may be revoked by; one without an issue time counts as old."""
        if self._key is None:
            self._key = await self._database.value("pseudonym_key")
        issued = datetime.fromtimestamp(issued_at or 0.0, UTC)
        # Revocations outlive the erasure of their user, under a pseudonym.
        return TokenIdentity([subject, pseudonym_of(subject, self._key)], token_id, issued)

    async def revoked_since(self, moment: datetime) -> list[AccessRevoked]:
        """Return the revocations since a time."""
        rows = await self._database.rows("revocations_since", moment)
        return [AccessRevoked(**dict(row)) for row in rows]
