"""Tokens that no longer count: every one of a user from before a moment, or a single one."""

from datetime import UTC, datetime
from uuid import UUID

from foremind.domain.announcements import AccessRevoked
from foremind.storage.database import Database
from foremind.storage.user_store import pseudonym_of


class RevocationStore:
    """Reads and writes revocations; they are kept for good."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: UUID | None = None

    async def revoke(self, subject: str, token_id: str | None, until: datetime) -> None:
        """Revoke one token of a user, or all that were issued until `until`; tell every process.

        Raises:
            StorageUnavailable: nothing was revoked.
        """
        told = AccessRevoked(subject, token_id, until)
        async with self._database.transaction() as connection:
            await connection.execute("revoke_access", subject, token_id, until)
            await connection.announce(told)

    async def revoked(self, subject: str, token_id: str | None, issued_at: float | None) -> bool:
        """Tell whether a token is revoked."""
        if self._key is None:
            self._key = await self._database.value("pseudonym_key")
        issued = datetime.fromtimestamp(issued_at or 0.0, UTC)
        # Erasing a user does not make tokens count again that did not.
        names = [subject, pseudonym_of(subject, self._key)]
        found: bool = await self._database.value("access_revoked", names, token_id, issued)
        return found

    async def since(self, moment: datetime) -> list[AccessRevoked]:
        """Return what was revoked since a moment."""
        rows = await self._database.rows("revocations_since", moment)
        return [AccessRevoked(**dict(row)) for row in rows]
