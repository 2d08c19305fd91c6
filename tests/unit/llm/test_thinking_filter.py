"""A model's thinking is removed from its reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.llm.thinking_filter import ThinkingFilter, without_thinking


def final_text(
    pieces: list[str], *, speaker: str = "", unmarked: bool = False, cut_off: bool = False
) -> str:
    """The final text of a streamed reply."""
    thinking = ThinkingFilter(speaker=speaker, unmarked=unmarked)
    parts: list[str] = []
    for piece in pieces:
        text = thinking.feed(piece)
        if thinking.restarted:
            parts.clear()
        parts.append(text)
    return "".join([*parts, thinking.end(cut_off=cut_off)])


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Hello there.", "Hello there."),
        ("<think>\nShe greets me.\n</think>\n\nHello there.", "Hello there."),
        ("\n<think>\n\n</think>\n\nHello.", "Hello."),
        ("<thinking>Hm.</thinking>Hello.", "Hello."),
        ("<THINK>Hm.</Think>Hello.", "Hello."),
        ("[THINK]Hm.[/THINK]Hello.", "Hello."),
        ("<seed:think>Hm.</seed:think>Hello.", "Hello."),
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
def test_thinking_is_removed_wherever_it_is(reply: str, expected: str) -> None:
    """However the reply is split: not at all, or into single characters."""
    assert final_text([reply]) == expected
    assert final_text(list(reply)) == expected
    assert without_thinking(reply) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('<memories>\n- "Ana" said: "I row."\n</memories>\nYou row.', "You row."),
        ("You row. <instructions> You speak in short sentences.", "You row. "),
        ("<Profile>\n- goal: row", ""),
        ("<memories>- <think></memories>You row.", "You row."),
        ("<summary>Show more</summary>", "<summary>Show more</summary>"),
        ("<memory>", "<memory>"),
    ],
)
def test_sections_of_the_prompt_are_removed_and_are_no_thinking(reply: str, expected: str) -> None:
    """Only in replies: an answer in JSON may quote anything."""
    for pieces in ([reply], [*reply]):
        removing = ThinkingFilter(sections=True)
        text = "".join(map(removing.feed, pieces)) + removing.end()
        assert (text, removing.thought) == (expected, False)
    if "<think>" not in reply:
        assert without_thinking(reply) == reply


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Wren: Hello", "Hello"),
        ("**Wren:** Hello", "Hello"),
        ("**Wren**: Hello", "Hello"),
        ("_Wren:_ Hello", "Hello"),
        ("[Wren]: Hello", "Hello"),
        ("Wren： Hello", "Hello"),
        ("Wren : Hello", "Hello"),
        ("\n\nWREN:\n\nHello", "Hello"),
        ("<think>Wren: hm</think>\nWren: Hello", "Hello"),
        ("Wren: I should greet.\n</think>\n\nWren: Hello", "Hello"),
        ("Wren: *smiles* Hello", "*smiles* Hello"),
        ("Wren: Wren: Hello", "Wren: Hello"),
        ("Wren is my name: Wren", "Wren is my name: Wren"),
        ("Wrenches: five", "Wrenches: five"),
        ("Ana: Hello", "Ana: Hello"),
        ("**Hello** Wren: hi", "**Hello** Wren: hi"),
        ("Wren", "Wren"),
        ("Wren:", ""),
    ],
)
def test_the_speakers_name_does_not_begin_a_reply(reply: str, expected: str) -> None:
    """However the reply is split; another name, or one within the reply, stays."""
    assert final_text([reply], speaker="Wren") == expected
    assert final_text(list(reply), speaker="Wren") == expected
    assert final_text([reply]) == without_thinking(reply)


def test_a_reply_that_does_not_begin_with_the_name_is_not_held_back() -> None:
    """Not by one character."""
    thinking = ThinkingFilter(speaker="Wren")
    assert [thinking.feed(piece) for piece in ("H", "i", " Wr", "en: ")] == [
        "H",
        "i",
        " Wr",
        "en: ",
    ]


def test_unmarked_thinking_of_a_known_model_is_buffered() -> None:
    """From the first character; without thinking, a complete reply is kept, a truncated one not."""
    thinking = ThinkingFilter(unmarked=True)
    assert [thinking.feed(piece) for piece in ("I should ", "greet.</thi", "nk>\n\nHello.")] == [
        "", "", "Hello.",
    ]  # fmt: skip
    assert thinking.ended_unmarked and not thinking.restarted
    assert final_text(["Hello", " there."], unmarked=True) == "Hello there."
    assert final_text(["I should think on"], unmarked=True, cut_off=True) == ""


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<thi", "nk>", "[THINK]", "a", " ", "\n", "/"])
    ),
    st.booleans(),
)
def test_the_split_into_pieces_makes_no_difference(pieces: list[str], unmarked: bool) -> None:
    """The result depends on the text alone."""
    assert final_text(pieces, unmarked=unmarked) == final_text(["".join(pieces)], unmarked=unmarked)
