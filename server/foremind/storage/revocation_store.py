"""Revoked tokens: single ones, or all of a user that were issued until a time."""

from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from foremind.domain.announcements import AccessRevoked
from foremind.storage.database import Database
from foremind.storage.user_store import pseudonym_of


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
