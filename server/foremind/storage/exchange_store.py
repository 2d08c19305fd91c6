"""Reads and changes the last exchange of a session."""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from foremind.domain.exchange import LastExchange, MadeReply
from foremind.storage.database import DatabaseConnection


class _QueryRunner(Protocol):
    async def rows(self, name: str, *args: object) -> Sequence[Any]: ...

    async def row(self, name: str, *args: object) -> Any: ...


async def read_last_exchange(
    data: _QueryRunner, relationship_id: int, session_id: UUID
) -> LastExchange | None:
    """Return the last exchange of a session; None if nothing in it was said, or remains."""
    row = await data.row("last_exchange", relationship_id, session_id)
    if row is None:
        return None
    others = await data.rows("alternative_replies", relationship_id, row["turn_id"])
    standing = (
        None
        if row["reply_id"] is None
        else MadeReply(row["position"], row["status"], row["reply"], row["created_at"])
    )
    return LastExchange(
        row["turn_id"],
        row["message_id"],
        row["text"],
        row["kept"],
        row["regenerated_by"],
        row["reply_id"],
        standing,
        [MadeReply(**dict(other)) for other in others],
    )


async def is_stored(
    data: _QueryRunner, relationship_id: int, user_id: int, message_id: str
) -> bool:
    """Return whether a message id is used in a relationship."""
    return await data.row("turn_of_message", relationship_id, user_id, message_id) is not None


class ExchangeTransaction:
    """Changes the replies to a message, within a transaction of its relationship."""

    def __init__(self, connection: DatabaseConnection, relationship_id: int, turn_id: int) -> None:
        self._connection = connection
        self._relationship_id = relationship_id
        self._turn_id = turn_id

    async def put_alternatives(self, replies: Sequence[MadeReply]) -> None:
        """Replace the replies that do not stand."""
        await self._connection.execute("delete_alternatives", self._relationship_id)
        if replies:
            await self._connection.execute(
                "insert_alternatives",
                self._relationship_id,
                self._turn_id,
                [reply.position for reply in replies],
                [reply.status for reply in replies],
                [reply.text for reply in replies],
                [reply.created_at for reply in replies],
            )

    async def untie_removed_reply(self) -> None:
        """Make room for another reply, where the one that stood was removed."""
        await self._connection.execute("untie_removed_reply", self._relationship_id, self._turn_id)

    async def note_regeneration(self, request_id: str) -> None:
        """Record which request for another reply was the last."""
        await self._connection.execute(
            "note_regeneration", self._relationship_id, self._turn_id, request_id
        )

    async def insert_reply(
        self, reply: MadeReply, *, needs_consent: bool
    ) -> tuple[int, bool] | None:
        """Store the reply that stands, kept as its message is.

        Args:
            needs_consent: whether it is kept only with the user's consent.

        Returns:
            Its turn, and whether it is kept; None if another one stands already.
        """
        row = await self._connection.row(
            "insert_standing_reply",
            self._relationship_id,
            self._turn_id,
            reply.status,
            reply.text,
            reply.created_at,
            reply.position,
            needs_consent,
        )
        return None if row is None else (row["id"], row["kept"])
