"""When a draft is worth prefetching for before a pause. Pure: drafts and load in, delays out.

Players press Enter 80 to 300 ms after the last letter, so that a context prefetched at a pause is
rarely for the text that is sent. Prefetching at every key would be too expensive, and most drafts
end in part of a word, at which nobody presses Enter. Therefore a draft has to settle: be idle for a
moment at the end of a sentence or word, and longer where the last word probably continues. While
the embedding thread has room, that moment is shorter than a hasty Enter's; the busier it is, the
longer, until only pauses count. The cost per message is limited by an allowance.
"""

import re
from collections.abc import Callable
from typing import Literal

DeferReason = Literal["busy", "allowance"]

#: CPU seconds that prefetching may take per message: initially, and for each character typed;
#: 176 ms for sixty characters, more than is measured for them; with all related work, a message of
#: that length takes less than 200 ms.
ALLOWANCE_S = 0.050
ALLOWANCE_S_PER_CHAR = 0.0021

# A hasty Enter comes 80 ms after the last key; what is in flight then is a hit as well. Few keys
# follow each other within these times, so that shorter ones would cost little more, and longer ones
# would save as little.
_WORD_S, _UNKNOWN_WORD_S = 0.045, 0.055
_SATURATED_WORD_S = 0.140  # about what lies between two keys
_PART_OF_WORD_S = 0.180  # a draft that is hardly ever sent as it is
_UNPREPARED_S = 0.080  # where nothing is prefetched: few keys follow each other within it
_AFTER_SIGN, _AFTER_SPACE = 0.5, 0.75
_MAX_WORD_CHARS = 32  # of the last word are examined
# A word counts as complete if at least this share of the words that begin like it end with it.
_MIN_SHARE = 0.01
_BUSY, _SATURATED = 0.5, 0.8  # utilization of the embedding thread

# How a draft ends, and the share of the allowance that must remain to prefetch for it: the likelier
# the draft is to be sent, the less; after a sentence's end the allowance may be overdrawn.
_Ending = Literal["part of a word", "unknown word", "word", "space", "sign"]
_MIN_ALLOWANCE_SHARE: dict[_Ending, float] = {
    "part of a word": 0.9, "unknown word": 0.2, "word": 0.0, "space": 0.0, "sign": -0.3,
}  # fmt: skip

_WORD_AT_END = re.compile(r"\w+$")


class PrefetchPolicy:
    """Follows the message being typed.

    Args:
        word_share: returns what share of the words that begin with some letters ends there, None
            if no known word begins with them, so that they may be a name or a misspelling.
    """

    def __init__(self, word_share: Callable[[str], float | None]) -> None:
        self._word_share = word_share
        self.begin()

    def begin(self) -> None:
        """Start a new message, with a full allowance."""
        self._length = 0
        self._allowance_s = ALLOWANCE_S

    def typed(self, draft: str) -> None:
        """Record that the draft changed to `draft`."""
        added = max(0, len(draft) - self._length)
        self._length = len(draft)
        self._allowance_s = min(ALLOWANCE_S, self._allowance_s + added * ALLOWANCE_S_PER_CHAR)

    def spent(self, seconds: float) -> None:
        """Charge a prefetch's CPU time to the allowance."""
        self._allowance_s -= seconds

    def settle_s(self, draft: str, utilization: float) -> float | DeferReason:
        """Return the idle time after which `draft` is settled, or why to wait for a pause.

        Args:
            draft: as typed, not normalised.
            utilization: of the embedding thread, 0 to 1.
        """
        ending = self._ending(draft)
        unlikely = ending in ("part of a word", "unknown word")
        if utilization >= (_BUSY if unlikely else _SATURATED):
            return "busy"
        if self._allowance_s <= _MIN_ALLOWANCE_SHARE[ending] * ALLOWANCE_S:
            return "allowance"
        if ending == "part of a word":
            return _PART_OF_WORD_S
        if ending == "unknown word":
            return _UNKNOWN_WORD_S
        share = max(0.0, (utilization - _BUSY) / (_SATURATED - _BUSY))
        settle = _WORD_S + share * (_SATURATED_WORD_S - _WORD_S)
        return settle * {"sign": _AFTER_SIGN, "space": _AFTER_SPACE}.get(ending, 1.0)

    def unprepared_settle_s(self, draft: str) -> float | None:
        """Return when a draft for which nothing is prefetched is settled; None within a word."""
        return None if self._ending(draft) == "part of a word" else _UNPREPARED_S

    def _ending(self, draft: str) -> _Ending:
        last = _WORD_AT_END.search(draft[-_MAX_WORD_CHARS:])
        if last is None:
            return "space" if draft[-1:].isspace() else "sign"
        share = self._word_share(last.group())
        if share is None:
            return "unknown word"
        return "word" if share >= _MIN_SHARE else "part of a word"
