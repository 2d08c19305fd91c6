"""Lines of a prompt that quote something, sentence by sentence. Pure.

So a sentence that stands elsewhere in the prompt can be left out, and a line be cut where one ends.
"""

import json
from collections.abc import Callable, Sequence, Set

import msgspec

from foremind.text.sentences import keys_of, sentences_in

_LEAST_WORDS = 6  # of a sentence that is cut because not even one of a line has room
_CUT = "…"

# What could close a tag, begin a line, or turn the direction of what follows.
_ESCAPED = {
    ord(each): f"\\u{ord(each):04x}"
    for each in "<\x7f\x85\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
}


def quoted(text: str) -> str:
    """Return `text` on one line between quotation marks that it cannot close, nor any tag."""
    return json.dumps(text, ensure_ascii=False).translate(_ESCAPED)


class Quote(msgspec.Struct, frozen=True, gc=False):
    """A quotation, with what stands before it, and what tells its sentences from others."""

    before: str
    sentences: tuple[str, ...]
    keys: tuple[int, ...]


class QuotedLine(msgspec.Struct, frozen=True, gc=False):
    """Quotations on one line; `by_hand`: a user or developer wrote them."""

    quotes: tuple[Quote, ...]
    after: str
    by_hand: bool
    keys: frozenset[int]

    def text(self) -> str:
        """Return the line as the model is given it."""
        return "".join([*(_written(quote) for quote in self.quotes), self.after])


def line(
    *quotes: tuple[str, str], after: str = "", by_hand: bool = False, sentences: bool = True
) -> QuotedLine:
    """Return a line of texts to be quoted, each with what stands before it.

    What is said twice in it is said once.

    Args:
        sentences: false for values that say something only after what stands before them.
    """
    made: list[Quote] = []
    known: frozenset[int] = frozenset()
    for before, text in quotes:
        parts = sentences_in(text)
        keys = keys_of(parts) if sentences else [0] * len(parts)
        whole = _once(Quote(before, tuple(parts), tuple(keys)))
        quote = _without(whole, known) if made else whole
        if any(quote.keys) or not made:
            made.append(quote)
        known |= set(whole.keys) - {0}
    return QuotedLine(tuple(made), after, by_hand, known)


def without(told: QuotedLine, known: Set[int]) -> QuotedLine | None:
    """Return a line without the sentences that are known; None where it then says nothing."""
    if told.keys.isdisjoint(known):
        return told
    if told.keys <= known:
        return None
    first, *others = (_without(quote, known) for quote in told.quotes)
    quotes = (first, *(other for other in others if other.sentences))
    keys = frozenset(key for quote in quotes for key in quote.keys) - {0}
    return QuotedLine(quotes, told.after, told.by_hand, keys) if keys else None


def shortened(told: QuotedLine, tokens: int, count: Callable[[str], int]) -> QuotedLine | None:
    """Return as much of a line as fits, cut where a sentence ends; None where that is nothing.

    Of a first sentence without room as many words are taken as there is.
    """
    sentences = sum(len(each.sentences) for each in told.quotes)
    taken = _most(sentences, lambda number: count(_first(told, number).text()) <= tokens)
    if taken:
        return _first(told, taken)
    opening = next((each for each in told.quotes if each.sentences), None)
    if opening is None:
        return None
    words = opening.sentences[0].split()

    def begun(number: int) -> QuotedLine:
        quote = Quote(opening.before, (" ".join(words[:number]) + _CUT,), (0,))
        return QuotedLine((quote,), told.after, told.by_hand, frozenset())

    fitting = _most(len(words) - 1, lambda number: count(begun(number).text()) <= tokens)
    return begun(fitting) if fitting >= _LEAST_WORDS else None


def _first(told: QuotedLine, number: int) -> QuotedLine:
    """Return a line with only its first sentences."""
    quotes: list[Quote] = []
    for quote in told.quotes:
        if number <= 0 and quotes:
            break
        quotes.append(Quote(quote.before, _ended(quote.sentences[:number]), quote.keys[:number]))
        number -= len(quote.sentences)
    keys = frozenset(key for quote in quotes for key in quote.keys) - {0}
    return QuotedLine(tuple(quotes), told.after, told.by_hand, keys)


def _once(quote: Quote) -> Quote:
    """Return a quotation with each of its sentences where it stands first."""
    first: dict[int, int] = {}
    for place, key in enumerate(quote.keys):
        first.setdefault(key, place)
    kept = [place for place, key in enumerate(quote.keys) if not key or first[key] == place]
    if len(kept) == len(quote.keys):
        return quote
    sentences = _ended([quote.sentences[each] for each in kept])
    return Quote(quote.before, sentences, tuple(quote.keys[each] for each in kept))


def _without(quote: Quote, known: Set[int]) -> Quote:
    kept = [
        (sentence, key)
        for sentence, key in zip(quote.sentences, quote.keys, strict=True)
        if key not in known
    ]
    if len(kept) == len(quote.sentences):
        return quote
    sentences = _ended([sentence for sentence, _ in kept])
    return Quote(quote.before, sentences, tuple(key for _, key in kept))


def _ended(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return sentences without the white space that led to the next."""
    return (*sentences[:-1], *(sentence.rstrip() for sentence in sentences[-1:]))


def _written(quote: Quote) -> str:
    if not quote.sentences:
        return quote.before
    return quote.before + quoted("".join(quote.sentences))


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` that fits, where less than what fits does too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
