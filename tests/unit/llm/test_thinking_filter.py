"""What a model thinks aloud is no part of its reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.llm.thinking_filter import ThinkingFilter, without_thinking


def passed_on(pieces: list[str], *, unmarked: bool = False, cut_off: bool = False) -> str:
    """What of a streamed reply is the reply in the end."""
    thinking = ThinkingFilter(unmarked=unmarked)
    said: list[str] = []
    for piece in pieces:
        passed = thinking.feed(piece)
        if thinking.anew:
            said.clear()
        said.append(passed)
    return "".join([*said, thinking.end(cut_off=cut_off)])


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("Hello there.", "Hello there."),
        ("<think>\nShe greets me.\n</think>\n\nHello there.", "Hello there."),
        ("\n<think>\n\n</think>\n\nHello.", "Hello."),
        ("<thinking>Hm.</thinking>Hello.", "Hello."),
        ("<THINK>Hm.</Think>Hello.", "Hello."),
        ("[THINK]Hm.[/THINK]Hello.", "Hello."),
        ("◁think▷Hm.◁/think▷Hello.", "Hello."),
        ("<think>One.</think> <think>Two.</think> Hello.", "Hello."),
        ("<think>One <think>in another</think> goes on</think>Hello.", "Hello."),
        ("Hello. <think>What now?</think> How are you?", "Hello. How are you?"),
        ("One.\n\nTwo  spaces.", "One.\n\nTwo  spaces."),
        ("I should greet her.\n</think>\n\nHello.", "Hello."),
        ("<think>It never ends", ""),
        ("Hello. <think>It never ends", "Hello. "),
        ("<think>A tag </thin and another </think", ""),
        ("<thunder> rolls", "<thunder> rolls"),
        ("1 < 2 [sic] <b", "1 < 2 [sic] <b"),
        ("<thi", "<thi"),
        ("", ""),
    ],
)
def test_thinking_is_taken_out_wherever_it_stands(reply: str, said: str) -> None:
    """However the reply is cut into pieces: whole, or letter by letter."""
    assert passed_on([reply]) == said
    assert passed_on(list(reply)) == said
    assert without_thinking(reply) == said


def test_a_model_known_for_unmarked_thinking_is_heard_only_after_it() -> None:
    """It is held back from the first letter; a reply without it comes whole, a cut one not."""
    thinking = ThinkingFilter(unmarked=True)
    assert [thinking.feed(each) for each in ("I should ", "greet.</thi", "nk>\n\nHello.")] == [
        "", "", "Hello.",
    ]  # fmt: skip
    assert thinking.ended_unmarked and not thinking.anew
    assert passed_on(["Hello", " there."], unmarked=True) == "Hello there."
    assert passed_on(["I should think on"], unmarked=True, cut_off=True) == ""


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<thi", "nk>", "[THINK]", "a", " ", "\n", "/"])
    ),
    st.booleans(),
)
def test_the_pieces_make_no_difference(pieces: list[str], unmarked: bool) -> None:
    """What is passed on depends on the text alone."""
    assert passed_on(pieces, unmarked=unmarked) == passed_on(["".join(pieces)], unmarked=unmarked)
