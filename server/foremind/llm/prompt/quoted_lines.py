"""What a prompt shows of a text: nothing invisible, and quotations on lines of their own. Pure.

Lines that quote text are sequences of sentences.

So sentences that appear elsewhere in the prompt can be omitted, and lines truncated at sentence
ends.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from foremind.domain.settings.setting_definitions import LAYERS
from foremind.text.folding import visible
from foremind.text.sentences import is_day, sentence_keys, sentences_in

_MIN_WORDS = 6  # of a truncated sentence, where not even one sentence of a line fits
_ELLIPSIS = "…"

#: The names of the prompt's tags.
PROMPT_TAGS = ("lore", "instructions", *LAYERS)
# What opens or closes one.
_PROMPT_TAG = re.compile(rf"<(?=[\s/]*(?:{'|'.join(PROMPT_TAGS)})\b)", re.IGNORECASE)
# Characters that could close a tag or begin a line.
_ESCAPED = re.compile("[<\x7f\x85\u2028\u2029]")


def quoted(text: str) -> str:
    """Return `text` on one line in quotation marks; it can close neither them nor any tag."""
    written = json.dumps(visible(text), ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", written)


def without_tags(text: str) -> str:
    """Return the text of a card, in which what looks like a tag of the prompt is none."""
    return _PROMPT_TAG.sub(r"\\u003c", visible(text))


def has_tags(text: str) -> bool:
    """Return whether a text has tags of the prompt, as what a model repeats of one does."""
    return _PROMPT_TAG.search(text) is not None


class Quote(msgspec.Struct, frozen=True, gc=False):
    """A quotation as sentences, with the text before it and each sentence's key (0: no key)."""

    before: str
    sentences: tuple[str, ...]
    keys: tuple[int, ...]


class QuotedLine(msgspec.Struct, frozen=True, gc=False):
    """Quotations on one line; `is_manual`: a user or developer wrote them.

    `day` is the only day on the line, in words, if it quotes nobody but the user; empty if it has
    no day, None where others may be quoted as well. `states` are the keys of other sentences that
    say no more than this line, each with the day of the statement; an empty one stands for any.
    """

    quotes: tuple[Quote, ...]
    after: str
    is_manual: bool
    keys: frozenset[int]
    day: str | None = None
    states: Mapping[int, str] | None = None

    def text(self) -> str:
        """Return the line as it appears in the prompt."""
        return "".join([*(_rendered(quote) for quote in self.quotes), self.after])


def line(
    *quotes: tuple[str, str],
    after: str = "",
    is_manual: bool = False,
    sentences: bool = True,
    day: str | None = None,
    states: Mapping[int, str] | None = None,
) -> QuotedLine:
    """Return a line of quotations, each given as the text before it and the text to quote.

    Sentences that occur twice in the line are kept once.

    Args:
        sentences: False for values that are meaningless without the text before them.
    """
    line_quotes: list[Quote] = []
    known: frozenset[int] = frozenset()
    for before, text in quotes:
        parts = sentences_in(text)
        keys = sentence_keys(parts) if sentences else [0] * len(parts)
        unique = _unique(Quote(before, tuple(parts), tuple(keys)))
        quote = _without(unique, known) if line_quotes else unique
        if any(quote.keys) or not line_quotes:
            line_quotes.append(quote)
        known |= set(unique.keys) - {0}
    stated = {key: of_day for key, of_day in (states or {}).items() if key}
    return QuotedLine(tuple(line_quotes), after, is_manual, known, day, stated or None)


def witnessed_key(text: str, *, own: bool) -> int:
    """Return the key of what a mind of a world witnessed, or said itself.

    Unlike that of a sentence, it is the same only for the same words of the same speaker.
    """
    return hash((own, text)) or 1


def whole_line(before: str, text: str, key: int) -> QuotedLine:
    """Return a line whose quotation is shown as a whole, as it begins with who said it."""
    return QuotedLine((Quote(before, (text,), (key,)),), "", False, frozenset({key}))


def without(quoted_line: QuotedLine, known: Set[int]) -> QuotedLine | None:
    """Return a line without the sentences in `known`; None if nothing is left."""
    if quoted_line.keys.isdisjoint(known):
        return quoted_line
    if quoted_line.keys <= known:
        return None
    first, *others = (_without(quote, known) for quote in quoted_line.quotes)
    quotes = (first, *(other for other in others if other.sentences))
    keys = frozenset(key for quote in quotes for key in quote.keys) - {0}
    return replace(quoted_line, quotes=quotes, keys=keys, states=None) if keys else None


def shortened(
    quoted_line: QuotedLine, tokens: int, count: Callable[[str], int]
) -> QuotedLine | None:
    """Return as much of a line as fits, truncated at a sentence end; None if nothing fits.

    If not even the first sentence fits, that is truncated at a word.
    """
    total = sum(len(quote.sentences) for quote in quoted_line.quotes)
    fitting = _largest(
        total, lambda number: count(_first_sentences(quoted_line, number).text()) <= tokens
    )
    if fitting:
        return _first_sentences(quoted_line, fitting)
    opening = next((quote for quote in quoted_line.quotes if quote.sentences), None)
    if opening is None:
        return None
    words = opening.sentences[0].split()

    def first_words(number: int) -> QuotedLine:
        quote = Quote(opening.before, (" ".join(words[:number]) + _ELLIPSIS,), (0,))
        return replace(quoted_line, quotes=(quote,), keys=frozenset(), states=None)

    fitting = _largest(len(words) - 1, lambda number: count(first_words(number).text()) <= tokens)
    return first_words(fitting) if fitting >= _MIN_WORDS else None


def _first_sentences(quoted_line: QuotedLine, number: int) -> QuotedLine:
    quotes: list[Quote] = []
    for quote in quoted_line.quotes:
        if number <= 0 and quotes:
            break
        sentences = _stripped(quote.sentences[:number])
        quotes.append(Quote(quote.before, sentences, quote.keys[:number]))
        number -= len(quote.sentences)
    keys = frozenset(key for quote in quotes for key in quote.keys) - {0}
    return replace(quoted_line, quotes=tuple(quotes), keys=keys, states=None)


def _unique(quote: Quote) -> Quote:
    """Return a quotation with only the first occurrence of each sentence."""
    first: dict[int, int] = {}
    for position, key in enumerate(quote.keys):
        first.setdefault(key, position)
    kept = [
        position for position, key in enumerate(quote.keys) if not key or first[key] == position
    ]
    if len(kept) == len(quote.keys):
        return quote
    sentences = _stripped([quote.sentences[position] for position in kept])
    return Quote(quote.before, sentences, tuple(quote.keys[position] for position in kept))


def _without(quote: Quote, known: Set[int]) -> Quote:
    kept = [
        (sentence, key)
        for sentence, key in zip(quote.sentences, quote.keys, strict=True)
        if key not in known
    ]
    if len(kept) == len(quote.sentences):
        return quote
    kept = _without_empty_days(kept)
    sentences = _stripped([sentence for sentence, _ in kept])
    return Quote(quote.before, sentences, tuple(key for _, key in kept))


def _without_empty_days(kept: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return sentences without the days of which nothing is left."""
    shown: list[tuple[str, int]] = []
    for sentence, key in reversed(kept):
        if key or not is_day(sentence) or (shown and not is_day(shown[-1][0])):
            shown.append((sentence, key))
    return shown[::-1]


def _stripped(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return sentences without the trailing white space of the last one."""
    return (*sentences[:-1], *(sentence.rstrip() for sentence in sentences[-1:]))


def _rendered(quote: Quote) -> str:
    if not quote.sentences:
        return quote.before
    return quote.before + quoted("".join(quote.sentences))


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` that fits; `fits` is monotonic.

    By exponential search: no number above twice the result is tried, however large the limit.
    """
    low, step = 0, 1
    while low + step <= limit and fits(low + step):
        low, step = low + step, 2 * step
    high = min(limit, low + step - 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
