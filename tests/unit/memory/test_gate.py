"""When not to recall."""

import pytest

from foremind.memory.gate import worth_searching


@pytest.mark.parametrize(
    "text",
    [
        "What's my sister's name?",
        "do you remember the storm",
        "Who is Jill?",
        "What does Evan do to relax?",
        "when did we meet",
    ],
)
def test_who_asks_for_a_memory_is_let_through(text: str) -> None:
    """Whatever the learned head says."""
    assert worth_searching(text, -5.0)


def test_filler_is_stopped_and_doubt_is_not() -> None:
    """Without a head nothing but silence is stopped."""
    assert not worth_searching("haha yeah", -1.0)
    assert worth_searching("haha yeah", None)
    assert worth_searching("The ferry was late", 0.1)
    assert not worth_searching("  ", None)
