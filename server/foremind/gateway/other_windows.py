"""What is said and erased in other windows of a relationship, of this process or of another."""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from cachetools import LRUCache

from foremind.domain.errors import StorageUnavailable
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.event_stream import EventStream
from foremind.gateway.own_messages import OwnMessages
from foremind.gateway.protocol.server_events import TurnErased, TurnStored, TurnView
from foremind.gateway.protocol.views import turn_view
from foremind.gateway.turns.turn_pipeline import TurnPipeline
from foremind.llm.prompt.layout import PastTurn
from foremind.storage.turn_store import TurnStore

_MAX_TOLD_TURNS = 512


class OtherWindows:
    """Adds the turns of other windows to one window, and tells its client of each once."""

    def __init__(
        self,
        conversation: LiveConversation,
        pipeline: TurnPipeline,
        turns: TurnStore,
        own_messages: OwnMessages,
        stream: EventStream,
    ) -> None:
        self._conversation = conversation
        self._pipeline = pipeline
        self._turns = turns
        self._own_messages = own_messages
        self._stream = stream
        self._told: LRUCache[str, None] = LRUCache(_MAX_TOLD_TURNS)
        self._in_order = asyncio.Lock()

    def on_opened(self, turns: Iterable[TurnView]) -> None:
        """The client is told of these turns as its session opens."""
        self._told.update(dict.fromkeys(turn.turn_id for turn in turns))

    def on_said(self, turn_id: int) -> None:
        """The client is told of a turn of this window by itself."""
        self._told[str(turn_id)] = None

    def add_turn(self, turn: PastTurn, session_id: UUID) -> None:
        """Add a turn of a stored session, if that is the one of this window, too."""
        same = session_id == self._conversation.opened.session_id
        if same and self._conversation.history.add_remote(turn):
            self._pipeline.drop_speculation()  # its prompts lack this turn

    async def report(self, turn_ids: Iterable[int], session_id: UUID | None = None) -> None:
        """Tell the client of turns that it does not know, as stored; add them as `add_turn` does.

        Args:
            session_id: the stored session that they belong to; None for that of this window.
        """
        relationship_id = self._conversation.opened.relationship_id
        async with self._in_order:
            for turn_id in turn_ids:
                if str(turn_id) in self._told:
                    continue
                try:
                    turn = await self._turns.find(relationship_id, turn_id)
                except StorageUnavailable:
                    self._pipeline.drop_history()
                    return
                if turn is None:
                    continue
                said = PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
                self.add_turn(said, session_id or self._conversation.opened.session_id)
                self._told[str(turn_id)] = None
                if turn.message_id is None or turn.message_id not in self._own_messages:
                    self._stream.emit(TurnStored(turn=turn_view(turn)))

    async def report_erased(self) -> None:
        """Tell the client which of the turns that it knows were erased."""
        async with self._in_order:
            told = list(self._told)
            try:
                remaining = await self._turns.remaining(
                    self._conversation.opened.relationship_id, list(map(int, told))
                )
            except StorageUnavailable:  # they are told of with the next erasure
                return
            gone = [turn_id for turn_id in told if int(turn_id) not in remaining]
            for turn_id in gone:
                self._told.pop(turn_id, None)
            if gone:
                self._stream.emit(TurnErased(turn_ids=gone))
