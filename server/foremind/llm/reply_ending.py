"""Ends a reply that is cut off, by its limit or in a loop, at the end of a sentence. Pure."""

from foremind.text.sentences import whole_sentences

# Held back sentence by sentence from here on: three quarters of the pieces that the limit allows,
# which are mostly tokens, or two bytes for each, which are fewer than any language has.
_HELD_SHARE = 0.75
_HELD_BYTES_PER_TOKEN = 2
_MAX_HELD_CHARS = 1000  # without the end of a sentence; then it is passed on up to a word
# What a loop is: its last so many characters are a third of them, or less, again and again.
_LOOP_CHARS = (240, 600)


class SentenceBuffer:
    """Passes a reply on, near its limit by whole sentences, so that it can end with one."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._pieces = self._bytes = 0
        self._held = ""
        self._ended = False  # whether what was passed on ends with a sentence

    def feed(self, piece: str) -> str:
        """Return what can be passed on once `piece` has arrived."""
        self._pieces += 1
        self._bytes += len(piece.encode("utf-8", "surrogatepass"))
        text = self._held + piece
        is_near = (
            self._pieces >= _HELD_SHARE * self._max_tokens
            or self._bytes >= _HELD_BYTES_PER_TOKEN * self._max_tokens
        )
        passed = whole_sentences(text) if is_near else text
        if is_near and passed == text:  # a quotation mark may follow
            passed = ""
        if not passed and len(text) > _MAX_HELD_CHARS:
            passed = text[: text.rfind(" ") + 1] or text
        self._held = text[len(passed) :]
        if passed.strip():
            self._ended = is_near or whole_sentences(passed.rstrip()) == passed.rstrip()
        return passed

    def restart(self) -> None:
        """Forget what was said: it turned out not to belong to the reply."""
        self._held, self._ended = "", False

    def end(self, *, cut_off: bool) -> str:
        """Return the rest of the reply; if a limit cut it off, without what it left unfinished.

        Where no sentence had ended since the reply was held back, it ends with a word.
        """
        held, self._held = self._held, ""
        if not cut_off or not held.strip():
            return held
        whole = whole_sentences(held)
        if whole or self._ended:
            return whole
        words = held.rsplit(None, 1)[0] if len(held.split()) > 1 else held
        return f"{words.rstrip(' ,;:–—-')}…"


def loop_period(text: str) -> int:
    """Return the length of the passage that a text ends in, word for word, again and again.

    A model that does so goes on until a limit ends it. 0 if the text ends in no loop.
    """
    for chars in _LOOP_CHARS:
        end = text[-chars:]
        period = end.find(end[: -chars // 3], 1) if len(end) == chars else 0
        if period > 0 and end[period:] == end[:-period]:
            return period
    return 0


def without_loop(text: str, period: int) -> str:
    """Return a text that ends in a loop up to the first time that the passage was said."""
    start = len(text) - period
    while start > 0 and text[start - 1] == text[start - 1 + period]:
        start -= 1
    end = start + period
    while end < len(text) and not text[end].isalnum():  # the stop before it may belong to it
        end += 1
    once = text[:end]
    return (whole_sentences(once) or once).rstrip()
