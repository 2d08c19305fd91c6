"""Tokens that no longer count: every one of a user from before a moment, or a single one."""

from datetime import UTC, datetime

import msgspec

from foremind.storage.database import Database


class AccessRevoked(msgspec.Struct, frozen=True, tag="revoked"):
    """What was revoked: the tokens of `subject` issued until `until`, or the one `token_id`."""

    subject: str
    token_id: str | None
    until: datetime

    def covers(self, subject: str, token_id: str | None, issued_at: float | None) -> bool:
        """Tell whether a token is revoked by this; one that does not say its age is old."""
        if subject != self.subject or self.token_id not in (None, token_id):
            return False
        return issued_at is None or issued_at <= self.until.timestamp()


class RevocationStore:
    """Reads and writes revocations; they are kept for good."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def revoke(self, subject: str, token_id: str | None, now: datetime) -> None:
        """Revoke one token of a user, or all that were issued until `now`; tell every process.

        Raises:
            StorageUnavailable: nothing was revoked.
        """
        told = AccessRevoked(subject, token_id, now)
        async with self._database.transaction() as connection:
            await connection.execute("revoke_access", subject, token_id, now)
            await connection.announce(told)

    async def revoked(self, subject: str, token_id: str | None, issued_at: float | None) -> bool:
        """Tell whether a token is revoked."""
        issued = datetime.fromtimestamp(issued_at or 0.0, UTC)
        found: bool = await self._database.value("access_revoked", subject, token_id, issued)
        return found

    async def since(self, moment: datetime) -> list[AccessRevoked]:
        """Return what was revoked since a moment."""
        rows = await self._database.rows("revocations_since", moment)
        return [AccessRevoked(**dict(row)) for row in rows]
