"""The chat history is loaded on demand and is never stale."""

from datetime import UTC, datetime

from foremind.domain.turn import Turn
from foremind.gateway.conversation import ChatHistory
from foremind.llm.prompt.layout import PastTurn

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
HELLO = PastTurn("user", "Hello", 1, "m1")
YES = PastTurn("companion", "Yes?", 2)


def stored(turn: PastTurn) -> Turn:
    """Return a turn as the database has it."""
    assert turn.id is not None
    return Turn(turn.id, turn.speaker, turn.message_id, "completed", turn.content, NOW)


def history_of(*turns: PastTurn) -> ChatHistory:
    """Return a loaded history that keeps the newest three turns."""
    return ChatHistory(list(turns), lambda turns: turns[-3:])


async def test_a_change_during_a_read_repeats_the_read() -> None:
    """The first answer is stale by then."""
    history = history_of()
    history.drop()
    answers = [[stored(HELLO)], [stored(HELLO), stored(YES)]]

    async def fetch() -> list[Turn]:
        if len(answers) == 2:
            history.add_remote(YES)  # from another window
        return answers.pop(0)

    await history.read(fetch)
    assert [turn.id for turn in history.turns] == [1, 2]


async def test_the_message_in_progress_is_not_part_of_its_own_history() -> None:
    """It may be stored before the history is read."""
    history = history_of()
    history.drop()

    async def fetch() -> list[Turn]:
        return [stored(YES), stored(HELLO)]

    await history.read(fetch, "m1")
    assert [turn.id for turn in history.turns] == [2]
    assert history_of(HELLO, YES).without("m1") == [YES]


def test_a_repeated_message_moves_to_the_end() -> None:
    """It was not answered; a remote turn that is already present is ignored."""
    history = history_of(HELLO, PastTurn("user", "Are you there?", 3, "m3"))
    history.add(HELLO)
    assert [turn.id for turn in history.turns] == [3, 1]
    assert not history.add_remote(HELLO)
    assert history.add_remote(YES)
    assert [turn.id for turn in history.turns] == [3, 1, 2]


def test_only_a_loaded_history_lacks_turns() -> None:
    """A message, or the reply to a message that is present."""
    history = history_of(HELLO)
    assert history.lacks("m9", "user")
    assert not history.lacks("m1", "user")
    assert history.lacks("m1", "companion")
    history.add(YES)
    assert not history.lacks("m1", "companion")
    history.drop()
    assert not history.lacks("m9", "user")
