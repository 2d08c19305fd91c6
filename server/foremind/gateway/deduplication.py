"""Which messages are being answered, over whichever connection of this process."""

import asyncio

from foremind.domain.errors import Conflict
from foremind.storage.turn_store import ANOTHER_COMPANION, ANOTHER_TEXT


class TurnInProgress:
    """A message that is being answered: what others who sent it too wait for."""

    def __init__(self, relationship_id: int, text: str) -> None:
        loop = asyncio.get_running_loop()
        self._relationship_id = relationship_id
        self._text_hash = hash(text)
        #: Whether another process answers it: this one only waits.
        self.elsewhere = False
        #: Done once it is stored: the id of its turn, None where it could not be.
        self.stored: asyncio.Future[int | None] = loop.create_future()
        #: Done at the end: the id of the reply's turn, None where there is none.
        self.replied: asyncio.Future[int | None] = loop.create_future()

    def check_same(self, relationship_id: int, text: str) -> None:
        """Check that what another connection sent with the same id is the same message.

        Raises:
            Conflict: it is not.
        """
        if relationship_id != self._relationship_id:
            raise Conflict(ANOTHER_COMPANION, param="id")
        if hash(text) != self._text_hash:
            raise Conflict(ANOTHER_TEXT, param="id")


class Deduplicator:
    """The messages under way, by their user and id: each is answered over one connection."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[int, str], TurnInProgress] = {}

    def find(self, user_id: int, message_id: str) -> TurnInProgress | None:
        """Return a message that is being answered."""
        return self._under_way.get((user_id, message_id))

    def begin(
        self, user_id: int, message_id: str, relationship_id: int, text: str
    ) -> TurnInProgress:
        """Note that a message is being answered from now on; nobody else does."""
        begun = self._under_way[user_id, message_id] = TurnInProgress(relationship_id, text)
        return begun

    def end(self, user_id: int, message_id: str, reply_turn: int | None) -> None:
        """Note that it is over, and tell who waits."""
        under_way = self._under_way.pop((user_id, message_id))
        if not under_way.stored.done():
            under_way.stored.set_result(None)
        under_way.replied.set_result(reply_turn)
