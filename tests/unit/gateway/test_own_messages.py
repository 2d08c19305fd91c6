"""A client learns of the scoring of its own messages, and no more is expected once it has."""

import pytest

from foremind.domain.announcements import MemoryAnnouncement
from foremind.gateway.protocol.server_events import MessageAccepted
from foremind.gateway.session_client import OwnMessages


def accepted(
    message_id: str, *, duplicate: bool = False, remembered: bool = True
) -> MessageAccepted:
    """The event that accepts a message."""
    return MessageAccepted(
        id=message_id, turn_id="1", duplicate=duplicate, context="miss", ready_ms=1.0,
        remembered=remembered,
    )  # fmt: skip


def test_a_message_is_expected_to_be_scored_once_it_is_accepted() -> None:
    """Until then nothing is; afterwards the session is not finished."""
    messages = OwnMessages()
    messages.add("m0")
    assert messages.scored
    messages.on_event(accepted("m0"))
    assert not messages.scored
    assert messages.on_scored(MemoryAnnouncement(1, "m0", "user", 0.5))
    assert messages.scored


@pytest.mark.parametrize(
    "event", [accepted("m0", duplicate=True), accepted("m0", remembered=False)]
)
def test_what_is_not_scored_again_is_not_expected(event: MessageAccepted) -> None:
    """A duplicate was scored before; what is not to be remembered never is."""
    messages = OwnMessages()
    messages.on_event(event)
    assert messages.scored


def test_only_scores_of_own_messages_are_reported() -> None:
    """Not of replies, nor of what was sent in another window."""
    messages = OwnMessages()
    messages.add("m0")
    messages.on_event(accepted("m0"))
    assert not messages.on_scored(MemoryAnnouncement(1, "m0", "companion", 0.5))
    assert not messages.on_scored(MemoryAnnouncement(1, "other", "user", 0.5))
    assert not messages.on_scored(MemoryAnnouncement(1, None, "user", 0.5))
    assert not messages.scored


def test_scores_that_may_have_been_missed_are_not_waited_for() -> None:
    """They are still reported if they come."""
    messages = OwnMessages()
    messages.add("m0")
    messages.on_event(accepted("m0"))
    messages.expect_no_scores()
    assert messages.scored
    assert messages.on_scored(MemoryAnnouncement(1, "m0", "user", 0.5))
