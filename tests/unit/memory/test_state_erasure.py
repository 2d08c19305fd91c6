"""What remains of a session's state after an erasure."""

from foremind.domain.session_state import SessionState
from foremind.memory.erasure.records import remaining_state
from foremind.text.mentions import parse_mention

STATE = SessionState(
    "Find the lost compass of Zarco", {"owes_bart": True, "door": "open", "gold": 3}
)


def test_parts_with_all_words_of_a_topic_are_removed() -> None:
    """The task, or a flag by its name or value."""
    assert _remaining("compass Zarco") == SessionState("", STATE.flags)
    assert _remaining("bart owes").flags == {"door": "open", "gold": 3}
    assert _remaining("open door").flags == {"owes_bart": True, "gold": 3}
    assert _remaining("compass gold") == STATE


def _remaining(about: str) -> SessionState:
    return remaining_state(STATE, parse_mention(about, None), ())


def test_parts_with_most_words_of_an_erased_text_are_removed() -> None:
    """One shared word is not enough."""
    assert remaining_state(STATE, None, ["find the lost compass of zarco"]).task == ""
    assert remaining_state(STATE, None, ["I lost the compass of Zarco"]).task == ""
    assert remaining_state(STATE, None, ["I never found any treasure, only a compass"]) == STATE
