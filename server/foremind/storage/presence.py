"""How other processes know that this one is there: by a lock that the database lets go with it."""

import secrets
from typing import Any

from foremind.storage.named_queries import load_queries

#: The database soon notices that the machine of a process is gone, and lets go of its lock.
KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class Presence:
    """The number under which this process answers messages.

    A new one with each connection that holds its lock: what was claimed over a connection that is
    lost, nobody holds any longer.
    """

    def __init__(self) -> None:
        #: None while no connection holds a lock: then nothing is claimed.
        self.number: int | None = None

    async def begin(self, raw: Any) -> None:
        """Be there for as long as a connection lives."""
        number = secrets.randbits(62)
        await raw.execute(load_queries()["be_present"], number)
        self.number = number

    def end(self) -> None:
        """Learn that the connection is gone."""
        self.number = None
