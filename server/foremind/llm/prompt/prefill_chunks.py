"""Prefixes of a prompt, each a little longer, with which a server prefills it in chunks. Pure.

A server with one slot finishes a prefill even if the request is abandoned, and a player who presses
Enter waits for that. So the prompt is prefilled in chunks: each repeats the one before, which the
server has cached, and adds as much as it can process in a moment.
"""

from collections.abc import Sequence

from foremind.llm.prompt.layout import Message

# Chat templates require a non-empty user message at the end.
_PLACEHOLDER: Message = {"role": "user", "content": "."}


def prompt_prefix(messages: Sequence[Message], chars: int) -> list[Message]:
    """Return a prefix of a prompt of `chars` characters or a few more, as valid messages.

    The companion's replies are never truncated: the user message that follows one is included too.
    """
    prefix: list[Message] = []
    remaining = chars
    for message in messages:
        content = message["content"]
        prefix.append(message)
        if message["role"] != "assistant" and remaining <= len(content):
            prefix[-1] = {"role": message["role"], "content": content[: max(remaining, 1)]}
            break
        remaining -= len(content)
    if prefix and prefix[-1]["role"] != "user":
        prefix.append(_PLACEHOLDER)
    return prefix


def shared_prefix_chars(first: Sequence[Message], second: Sequence[Message]) -> int:
    """Return the number of leading characters that two prompts have in common."""
    chars = 0
    for left, right in zip(first, second, strict=False):
        if left == right:
            chars += len(left["content"])
            continue
        if left["role"] == right["role"]:
            chars += _shared_prefix(left["content"], right["content"])
        break
    return chars


def prompt_chars(messages: Sequence[Message]) -> int:
    """Return the number of characters in a prompt."""
    return sum(len(message["content"]) for message in messages)


def _shared_prefix(first: str, second: str) -> int:
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(index for index in range(limit) if first[index] != second[index])
