"""Shows other processes that this one is alive, by a lock that ends with its connection."""

import secrets
from typing import Any

from foremind.storage.named_queries import load_queries

#: So that the database soon notices that a machine is unreachable, and releases the lock.
KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class Presence:
    """The number under which this process claims the messages it answers.

    Every connection that holds the lock has a new number, so claims end with their connection.
    """

    def __init__(self) -> None:
        #: None while no connection holds the lock; then nothing is claimed.
        self.number: int | None = None

    async def begin(self, raw: Any) -> None:
        """Take the lock on a connection, for as long as that lives."""
        number = secrets.randbits(62)
        await raw.execute(load_queries()["lock_presence"], number)
        self.number = number

    def end(self) -> None:
        """Record that the connection was lost."""
        self.number = None
