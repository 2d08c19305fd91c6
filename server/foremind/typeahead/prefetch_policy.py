"""When a draft is worth prefetching for before a pause. Pure: times and load in, delays out.

Players press Enter 150 to 300 ms after the last letter, so that a context prefetched at a pause is
rarely for the text that is sent. Prefetching at every key would be too expensive. Therefore a draft
has to settle: be idle for a little longer than this typist's usual interval between keys; less at
the end of a sentence or word, more where the last word may continue. The cost per message is
limited by an allowance, and the busier the embedding thread, the less is prefetched, until only
pauses trigger it.
"""

import re
from collections.abc import Callable
from typing import Literal

DeferReason = Literal["busy", "allowance"]

#: CPU seconds that prefetching may take per message: initially, and for each character typed;
#: about 150 ms for sixty characters, which leaves 50 ms for related work.
ALLOWANCE_S = 0.040
ALLOWANCE_S_PER_CHAR = 0.0018

_MIN_SETTLE_S, _MAX_SETTLE_S = 0.080, 0.140  # the earliest Enter is at 150 ms
_UNLIKELY_END_SETTLE_S = 0.180  # for drafts that are unlikely to be sent as they are
_INTERVAL_FACTOR = 1.2  # settling time as a multiple of this typist's interval
_INITIAL_INTERVAL_S = 0.150  # until the typist's is measured
_SMOOTHING = 0.15  # weight of the newest interval in the moving average
_MAX_INTERVAL_S = 1.0  # a longer one is thinking, not typing
_AFTER_SIGN, _AFTER_SPACE = 0.5, 0.75
_MAX_WORD_CHARS = 32  # of the last word are examined
_SHORT_WORD_CHARS = 2  # a word this short is often the beginning of another
_BUSY, _SATURATED = 0.5, 0.8  # utilization of the embedding thread

# How a draft ends, and the share of the allowance that must remain to prefetch for it: the likelier
# the draft is to be sent, the less; after a sentence's end the allowance may be overdrawn.
_Ending = Literal["part of a word", "short word", "word", "space", "sign"]
_MIN_ALLOWANCE_SHARE: dict[_Ending, float] = {
    "part of a word": 0.5, "short word": 0.2, "word": 0.15, "space": 0.15, "sign": -0.3,
}  # fmt: skip

_WORD_AT_END = re.compile(r"\w+$")


class PrefetchPolicy:
    """Follows one typist and the current message.

    Args:
        is_word: returns whether letters are a whole word; it may be wrong about rare words.
    """

    def __init__(self, is_word: Callable[[str], bool]) -> None:
        self._is_word = is_word
        self._interval_s = _INITIAL_INTERVAL_S
        self._typed_at: float | None = None
        self.begin()

    def begin(self) -> None:
        """Start a new message, with a full allowance."""
        self._length = 0
        self._allowance_s = ALLOWANCE_S

    def typed(self, draft: str, now: float) -> None:
        """Record that the draft changed to `draft`."""
        if self._typed_at is not None:
            interval = min(_MAX_INTERVAL_S, now - self._typed_at)
            self._interval_s += _SMOOTHING * (interval - self._interval_s)
        self._typed_at = now
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
        if utilization >= (_BUSY if ending == "part of a word" else _SATURATED):
            return "busy"
        if self._allowance_s <= _MIN_ALLOWANCE_SHARE[ending] * ALLOWANCE_S:
            return "allowance"
        if ending in ("part of a word", "short word"):
            return _UNLIKELY_END_SETTLE_S
        base = min(max(_INTERVAL_FACTOR * self._interval_s, _MIN_SETTLE_S), _MAX_SETTLE_S)
        scarcity = 1.0 - max(0.0, self._allowance_s) / ALLOWANCE_S
        scarcity = min(1.0, max(scarcity, (utilization - _BUSY) / (_SATURATED - _BUSY)))
        settle = base + scarcity * (_MAX_SETTLE_S - base)
        return settle * {"sign": _AFTER_SIGN, "space": _AFTER_SPACE}.get(ending, 1.0)

    def _ending(self, draft: str) -> _Ending:
        last = _WORD_AT_END.search(draft[-_MAX_WORD_CHARS:])
        if last is None:
            return "space" if draft[-1:].isspace() else "sign"
        if not self._is_word(last.group()):
            return "part of a word"
        return "short word" if len(last.group()) <= _SHORT_WORD_CHARS else "word"
