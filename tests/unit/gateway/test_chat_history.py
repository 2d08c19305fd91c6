"""What was said so far: read when it is needed, and never as it was before something changed."""

from datetime import UTC, datetime

from foremind.domain.turn import Turn
from foremind.gateway.chat_history import ChatHistory
from foremind.llm.prompt.layout import PastTurn

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
HELLO = PastTurn("user", "Hello", 1, "m1")
YES = PastTurn("companion", "Yes?", 2)


def stored(turn: PastTurn) -> Turn:
    """A turn as the database has it."""
    assert turn.id is not None
    return Turn(turn.id, turn.speaker, turn.message_id, "completed", turn.content, NOW)


def past(*turns: PastTurn) -> ChatHistory:
    """What was said so far, of which the last three stay."""
    return ChatHistory(list(turns), lambda told: told[-3:])


async def test_what_changes_while_it_is_read_is_read_anew() -> None:
    """Of the session that goes on by then."""
    said = past()
    said.drop()
    answers = [[stored(HELLO)], [stored(HELLO), stored(YES)]]

    async def asked() -> list[Turn]:
        if len(answers) == 2:
            said.hear(YES)  # told by another window meanwhile
        return answers.pop(0)

    await said.read(asked)
    assert [turn.id for turn in said.turns] == [1, 2]


async def test_the_message_under_way_is_no_past_of_its_own() -> None:
    """It may be stored before what came before it is read."""
    said = past()
    said.drop()

    async def asked() -> list[Turn]:
        return [stored(YES), stored(HELLO)]

    await said.read(asked, "m1")
    assert [turn.id for turn in said.turns] == [2]
    assert past(HELLO, YES).but_for("m1") == [YES]


def test_a_message_that_comes_again_stands_once_and_last() -> None:
    """Nothing answered it; of what is told twice only the first counts."""
    said = past(HELLO, PastTurn("user", "Are you there?", 3, "m3"))
    said.add(HELLO)
    assert [turn.id for turn in said.turns] == [3, 1]
    assert not said.hear(HELLO)
    assert said.hear(YES)
    assert [turn.id for turn in said.turns] == [3, 1, 2]


def test_what_is_stored_elsewhere_is_missed_only_where_all_is_known() -> None:
    """A message, or the reply to one that is known."""
    said = past(HELLO)
    assert said.lacks("m9", "user")
    assert not said.lacks("m1", "user")
    assert said.lacks("m1", "companion")
    said.add(YES)
    assert not said.lacks("m1", "companion")
    said.drop()
    assert not said.lacks("m9", "user")
