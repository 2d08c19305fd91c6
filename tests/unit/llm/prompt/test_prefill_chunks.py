"""The prefixes with which a prompt is prefilled in chunks."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.llm.prompt.layout import Message
from foremind.llm.slots import prompt_chars, prompt_prefix, shared_prefix_chars

SYSTEM: Message = {"role": "system", "content": "You are Wren, who keeps the harbour."}
PROMPT: list[Message] = [
    SYSTEM,
    {"role": "user", "content": "Good morning!"},
    {"role": "assistant", "content": "Good morning, Ana."},
    {"role": "user", "content": "Do you remember the storm?"},
]


def text(messages: list[Message]) -> str:
    """Approximately what a chat template renders."""
    return "".join(f"<{message['role']}>{message['content']}" for message in messages)


def test_a_prefix_of_the_persona_is_followed_by_a_user_message() -> None:
    """Many chat templates require it."""
    prefix = prompt_prefix(PROMPT, 10)
    assert prefix == [{"role": "system", "content": "You are Wr"}, {"role": "user", "content": "."}]


def test_a_reply_is_never_truncated() -> None:
    """The message after it is included too."""
    chars = prompt_chars(PROMPT[:2]) + 3
    assert prompt_prefix(PROMPT, chars) == [*PROMPT[:3], {"role": "user", "content": "D"}]


@given(st.integers(1, 200))
def test_every_prefix_is_exact(chars: int) -> None:
    """So that a server which has cached it processes only what is new."""
    prefix = prompt_prefix(PROMPT, chars)
    if prefix[-1] == {"role": "user", "content": "."}:
        prefix = prefix[:-1]
    assert text(PROMPT).startswith(text(prefix))
    assert prefix[-1]["role"] != "assistant"


def test_a_prompt_that_ends_with_a_reply_is_followed_by_a_user_message() -> None:
    """It is prefilled before anything is typed."""
    assert prompt_prefix(PROMPT[:3], 10_000) == [*PROMPT[:3], {"role": "user", "content": "."}]


def test_the_longest_prefix_is_the_prompt() -> None:
    """However many characters are requested."""
    assert prompt_prefix(PROMPT, prompt_chars(PROMPT)) == PROMPT
    assert prompt_prefix(PROMPT, 10_000) == PROMPT


def test_the_shared_prefix_ends_at_the_first_difference() -> None:
    """Only the content of messages counts."""
    other = [*PROMPT[:3], Message(role="user", content="Do you know the storm?")]
    assert shared_prefix_chars(PROMPT, other) == prompt_chars(PROMPT[:3]) + len("Do you ")
    assert shared_prefix_chars(PROMPT, PROMPT) == prompt_chars(PROMPT)
    assert shared_prefix_chars(PROMPT, PROMPT[1:]) == 0
    assert shared_prefix_chars([], PROMPT) == 0
