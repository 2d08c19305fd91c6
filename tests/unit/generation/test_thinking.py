"""What a model thinks aloud is no part of its reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.generation.thinking import ThinkingFilter


def passed_on(pieces: list[str]) -> str:
    """What of a streamed reply reaches the player."""
    thinking = ThinkingFilter()
    return "".join([*map(thinking.feed, pieces), thinking.end()])


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("Hello there.", "Hello there."),
        ("<think>\nShe greets me.\n</think>\n\nHello there.", "Hello there."),
        ("\n<think>\n\n</think>\n\nHello.", "Hello."),
        ("<thinking>Hm.</thinking>Hello.", "Hello."),
        ("[THINK]Hm.[/THINK]Hello.", "Hello."),
        ("<think>One.</think> <think>Two.</think> Hello.", "Hello."),
        ("<think>It never ends", ""),
        ("<think>A tag </thin and another </think", ""),
        ("I <think>so</think>.", "I <think>so</think>."),
        ("<thunder> rolls", "<thunder> rolls"),
        ("<thi", "<thi"),
        ("", ""),
    ],
)
def test_only_thinking_at_the_beginning_is_taken_out(reply: str, said: str) -> None:
    """However the reply is cut into pieces: whole, or letter by letter."""
    assert passed_on([reply]) == said
    assert passed_on(list(reply)) == said


@given(st.lists(st.sampled_from(["<think>", "</think>", "<thi", "nk>", "a", " ", "\n", "/"])))
def test_the_pieces_make_no_difference(pieces: list[str]) -> None:
    """What is passed on depends on the text alone."""
    assert passed_on(pieces) == passed_on(["".join(pieces)])
