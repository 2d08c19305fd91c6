"""A prompt is never made while history or state is missing."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from foremind.app.configuration import load_settings
from foremind.domain.policy import policy_for
from foremind.domain.session_state import NO_STATE, SessionState
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings
from foremind.domain.turn import OpenedSession, Turn
from foremind.gateway.conversation import LiveConversation, LiveState, Participants
from foremind_eval.doubles.manual_clock import ManualClock

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
OPENED = OpenedSession(UUID(int=1), 1, 1, 0, 0, RelationshipSettings(), 0, False, True)


class Database:
    """One stored turn, and no state; while this is first read, an announcement arrives."""

    def __init__(self) -> None:
        self.conversation: LiveConversation | None = None
        self.reads = 0

    async def session_turns(self, *_: object) -> list[Turn]:
        """Return the stored turn."""
        return [Turn(1, "user", "m1", "completed", "Good morning", NOW - timedelta(minutes=1))]

    async def read(self, *_: object) -> tuple[SessionState, int]:
        """Return no state."""
        self.reads += 1
        if self.reads == 1 and self.conversation is not None:
            self.conversation.history.drop()
        return NO_STATE, 0


async def test_a_history_that_is_dropped_while_the_state_is_read_is_read_again() -> None:
    """Otherwise the prompt would begin with the message."""
    database: Any = Database()
    policy = policy_for(CompanionSettings(), load_settings())
    state = LiveState(database, 1, OPENED.session_id)
    conversation = LiveConversation(
        Participants(OPENED, "Ana", UTC),
        None,
        state,
        lambda: policy,
        database,
        ManualClock(),
        lambda _: None,
    )
    database.conversation = conversation
    await conversation.load()
    assert [turn.content for turn in conversation.history.turns] == ["Good morning"]
    assert conversation.loaded
