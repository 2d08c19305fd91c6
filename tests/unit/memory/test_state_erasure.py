"""What is left of a session's state when something is forgotten."""

from foremind.domain.session_state import SessionState
from foremind.memory.state_erasure import left_of

STATE = SessionState(
    "Find the lost compass of Zarco", {"owes_bart": True, "door": "open", "gold": 3}
)


def test_words_go_where_all_of_them_stand_together() -> None:
    """In the task, in a flag's name or in its value."""
    assert left_of(STATE, "compass Zarco", ()) == SessionState("", STATE.flags)
    assert left_of(STATE, "bart owes", ()).flags == {"door": "open", "gold": 3}
    assert left_of(STATE, "open door", ()).flags == {"owes_bart": True, "gold": 3}
    assert left_of(STATE, "compass gold", ()) == STATE


def test_what_was_said_goes_word_for_word_and_by_most_of_its_words() -> None:
    """What shares a word with it stays."""
    assert left_of(STATE, None, ["find the lost compass of zarco"]).task == ""
    assert left_of(STATE, None, ["I lost the compass of Zarco"]).task == ""
    assert left_of(STATE, None, ["I never found any treasure, only a compass"]) == STATE
