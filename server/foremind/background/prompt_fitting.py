"""Shortens a background prompt to fit into a model's context."""

from collections.abc import Sequence

from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import TEMPLATE_TOKENS, CountTokens, prompt_tokens

_MIN_LINE_CHARS = 40  # shorter lines carry no meaning: drop whole lines instead
_GAP = " … "


def fit_prompt(
    messages: Sequence[Message], max_tokens: int, count_tokens: CountTokens
) -> list[Message]:
    """Return a prompt of at most `max_tokens`, by shortening the last message, which is data.

    The instructions before it are never cut; where they alone exceed the limit, the data is cut to
    its minimum.
    """
    *task, data = messages
    remaining = max_tokens - prompt_tokens(task, count_tokens) - TEMPLATE_TOKENS
    return [*task, {**data, "content": shorten(data["content"], remaining, count_tokens)}]


def shorten(text: str, max_tokens: int, count_tokens: CountTokens) -> str:
    """Return a text of at most `max_tokens`, cutting the middle of its longest lines first.

    Where there are too many lines for that, those in the middle are dropped.
    """
    tokens = count_tokens(text)
    lines = text.split("\n")
    characters = len(text)
    while tokens > max_tokens and characters > _MIN_LINE_CHARS:
        # Tokens are spread unevenly over a text, so the first cut may not be enough.
        characters = min(characters * max(max_tokens, 1) // tokens, characters * 9 // 10)
        text = "\n".join(_shorten_lines(lines, characters))
        tokens = count_tokens(text)
    return text


def _shorten_lines(lines: Sequence[str], characters: int) -> list[str]:
    """Return lines of about `characters` in total."""
    max_lines = max(2, characters // _MIN_LINE_CHARS)
    if len(lines) > max_lines and sum(map(len, lines)) > characters:
        lines = [*lines[: (max_lines + 1) // 2], *lines[-(max_lines // 2) :]]
    max_length = _max_line_length([len(line) for line in lines], characters - len(lines))
    return [_cut_middle(line, max_length) for line in lines]


def _max_line_length(lengths: Sequence[int], room: int) -> int:
    """Return the length to which the longest lines are cut so that all of them fit."""
    ascending = sorted(lengths)
    for index, length in enumerate(ascending):
        share = room // (len(ascending) - index)
        if length > share:
            return max(0, share)
        room -= length
    return ascending[-1]


def _cut_middle(line: str, max_length: int) -> str:
    if len(line) <= max_length:
        return line
    kept = max(0, max_length - len(_GAP))
    return f"{line[: (kept + 1) // 2]}{_GAP}{line[len(line) - kept // 2 :]}"
