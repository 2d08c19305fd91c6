"""Cuts a background prompt to what a model's context has room for."""

from collections.abc import Sequence

from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import CountTokens

TEMPLATE_TOKENS = 8  # that a chat template adds to each message

_LEAST_LINE = 40  # characters of a line that still says something; below, lines go instead
_GAP = " … "


def tokens_of(messages: Sequence[Message], count: CountTokens) -> int:
    """Return the tokens that a prompt takes, with those of the chat template around it."""
    return sum(count(message["content"]) + TEMPLATE_TOKENS for message in messages)


def fitted(messages: Sequence[Message], room: int, count: CountTokens) -> list[Message]:
    """Return a prompt of at most `room` tokens: the last message, which is data, is shortened.

    The instructions before it are never cut; where they alone take all the room, the data is as
    short as it can be.
    """
    *task, data = messages
    left = room - tokens_of(task, count) - TEMPLATE_TOKENS
    return [*task, {**data, "content": within(data["content"], left, count)}]


def within(text: str, room: int, count: CountTokens) -> str:
    """Return lines of at most `room` tokens: of the longest the middle goes first.

    Where there are more lines than would say anything so, those in the middle go.
    """
    tokens = count(text)
    lines = text.split("\n")
    characters = len(text)
    while tokens > room and characters > _LEAST_LINE:
        # Tokens are spread unevenly over a text, so the first cut may not be enough.
        characters = min(characters * max(room, 1) // tokens, characters * 9 // 10)
        text = "\n".join(_shortened(lines, characters))
        tokens = count(text)
    return text


def _shortened(lines: Sequence[str], characters: int) -> list[str]:
    """Return lines of about so many characters in all."""
    most = max(2, characters // _LEAST_LINE)
    if len(lines) > most and sum(map(len, lines)) > characters:
        lines = [*lines[: (most + 1) // 2], *lines[-(most // 2) :]]
    level = _level([len(line) for line in lines], characters - len(lines))
    return [_cut(line, level) for line in lines]


def _level(lengths: Sequence[int], room: int) -> int:
    """Return the length to which the longest are cut so that all together fit."""
    ascending = sorted(lengths)
    for place, length in enumerate(ascending):
        share = room // (len(ascending) - place)
        if length > share:
            return max(0, share)
        room -= length
    return ascending[-1]


def _cut(line: str, most: int) -> str:
    if len(line) <= most:
        return line
    kept = max(0, most - len(_GAP))
    return f"{line[: (kept + 1) // 2]}{_GAP}{line[len(line) - kept // 2 :]}"
