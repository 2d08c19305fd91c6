"""The beginnings of a prompt, each a little longer: what a model is asked to read ahead. Pure.

A server with one slot goes on reading what nobody wants any more, and whoever presses Enter waits
for it. So it is given the prompt in portions; each repeats the one before, which the server has
kept, and adds as much as it reads in a moment.
"""

from collections.abc import Sequence

from foremind.llm.prompt.layout import Message

# Chat templates want the user to speak last, and something said.
_NOTHING_YET: Message = {"role": "user", "content": "."}


def beginning(messages: Sequence[Message], chars: int) -> list[Message]:
    """Return messages that begin as `messages` do, with `chars` characters or a few more.

    A reply of the companion is never cut: the user's message after it is begun as well.
    """
    taken: list[Message] = []
    left = chars
    for message in messages:
        content = message["content"]
        taken.append(message)
        if message["role"] != "assistant" and left <= len(content):
            taken[-1] = {"role": message["role"], "content": content[: max(left, 1)]}
            break
        left -= len(content)
    if taken and taken[-1]["role"] != "user":
        taken.append(_NOTHING_YET)
    return taken


def shared(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many characters two prompts have in common from their beginning on."""
    chars = 0
    for mine, its in zip(one, other, strict=False):
        if mine == its:
            chars += len(mine["content"])
            continue
        if mine["role"] == its["role"]:
            chars += _common(mine["content"], its["content"])
        break
    return chars


def length(messages: Sequence[Message]) -> int:
    """Return the characters of a prompt."""
    return sum(len(message["content"]) for message in messages)


def _common(one: str, other: str) -> int:
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(index for index in range(most) if one[index] != other[index])
