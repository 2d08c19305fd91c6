"""The beginnings of a prompt that a model is asked to read ahead."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.prefill_chunks import beginning, length, shared

SYSTEM: Message = {"role": "system", "content": "You are Wren, who keeps the harbour."}
PROMPT: list[Message] = [
    SYSTEM,
    {"role": "user", "content": "Good morning!"},
    {"role": "assistant", "content": "Good morning, Ana."},
    {"role": "user", "content": "Do you remember the storm?"},
]


def text(messages: list[Message]) -> str:
    """What a chat template would make of it, roughly."""
    return "".join(f"<{message['role']}>{message['content']}" for message in messages)


def test_the_beginning_of_the_persona_is_followed_by_a_word_of_the_user() -> None:
    """Many chat templates want the user to speak last."""
    cut = beginning(PROMPT, 10)
    assert cut == [{"role": "system", "content": "You are Wr"}, {"role": "user", "content": "."}]


def test_a_reply_is_never_cut() -> None:
    """What comes after it is begun as well."""
    chars = length(PROMPT[:2]) + 3
    assert beginning(PROMPT, chars) == [*PROMPT[:3], {"role": "user", "content": "D"}]


@given(st.integers(1, 200))
def test_every_beginning_is_one_to_the_letter(chars: int) -> None:
    """So that a server which has kept it reads only what is new."""
    cut = beginning(PROMPT, chars)
    if cut[-1] == {"role": "user", "content": "."}:
        cut = cut[:-1]
    assert text(PROMPT).startswith(text(cut))
    assert cut[-1]["role"] != "assistant"


def test_a_prompt_that_ends_with_a_reply_is_followed_by_a_word_of_the_user() -> None:
    """It is read before anything is typed."""
    assert beginning(PROMPT[:3], 10_000) == [*PROMPT[:3], {"role": "user", "content": "."}]


def test_all_of_a_prompt_is_its_longest_beginning() -> None:
    """However much is asked for."""
    assert beginning(PROMPT, length(PROMPT)) == PROMPT
    assert beginning(PROMPT, 10_000) == PROMPT


def test_what_two_prompts_share_ends_at_the_first_difference() -> None:
    """Messages count with what they hold, and only from the beginning on."""
    other = [*PROMPT[:3], Message(role="user", content="Do you know the storm?")]
    assert shared(PROMPT, other) == length(PROMPT[:3]) + len("Do you ")
    assert shared(PROMPT, PROMPT) == length(PROMPT)
    assert shared(PROMPT, PROMPT[1:]) == 0
    assert shared([], PROMPT) == 0
