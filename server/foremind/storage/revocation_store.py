"""Revoked tokens: single ones, or all of a user that were issued until a time."""

from datetime import UTC, datetime
from uuid import UUID

from foremind.domain.announcements import AccessRevoked
from foremind.storage.database import Database
from foremind.storage.user_store import pseudonym_of


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
            await connection.announce(announcement)

    async def revoked(self, subject: str, token_id: str | None, issued_at: float | None) -> bool:
        """Return whether a token is revoked."""
        if self._key is None:
            self._key = await self._database.value("pseudonym_key")
        issued = datetime.fromtimestamp(issued_at or 0.0, UTC)
        # Revocations outlive the erasure of their user, under a pseudonym.
        subjects = [subject, pseudonym_of(subject, self._key)]
        revoked: bool = await self._database.value("access_revoked", subjects, token_id, issued)
        return revoked

    async def since(self, moment: datetime) -> list[AccessRevoked]:
        """Return the revocations since a time."""
        rows = await self._database.rows("revocations_since", moment)
        return [AccessRevoked(**dict(row)) for row in rows]
