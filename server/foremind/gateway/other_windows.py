"""What is said in other windows of a session, of this process or of another one."""

from cachetools import LRUCache

from foremind.domain.errors import StorageUnavailable
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.event_stream import EventStream
from foremind.gateway.protocol.server_events import TurnStored
from foremind.gateway.protocol.views import turn_view
from foremind.gateway.turns.session_caches import SessionCaches
from foremind.llm.prompt.layout import PastTurn
from foremind.storage.turn_store import TurnStore

_MAX_UNSENT_TURNS = 512
_ABSENT = object()


class OtherWindows:
    """Adds the turns of other windows to one session, and reports the stored ones."""

    def __init__(
        self,
        conversation: LiveConversation,
        caches: SessionCaches,
        turns: TurnStore,
        stream: EventStream,
    ) -> None:
        self._conversation = conversation
        self._caches = caches
        self._turns = turns
        self._stream = stream
        #: Turns that were added and not reported to the client yet.
        self._unsent: LRUCache[int, None] = LRUCache(_MAX_UNSENT_TURNS)

    def add_turn(self, turn: PastTurn) -> None:
        """Add a turn of another window."""
        if self._conversation.history.add_remote(turn) and turn.id is not None:
            self._unsent[turn.id] = None
            self._caches.drop_speculation()  # its prompts lack this turn

    async def read_reply(self, turn_id: int) -> None:
        """Load and report a reply that another connection began."""
        relationship_id = self._conversation.opened.relationship_id
        try:
            turn = await self._turns.find(relationship_id, turn_id)
        except StorageUnavailable:
            self._caches.drop_history()
            return
        if turn is not None:
            past = PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
            unsent = self._unsent.pop(turn.id, _ABSENT) is not _ABSENT
            if self._conversation.history.add_remote(past) or unsent:
                self._stream.emit(TurnStored(turn=turn_view(turn)))
