"""When a draft is worth preparing for before the pause. Pure: times and loads in, waits out.

People press Enter 150 to 300 ms after the last letter, so that a context prepared at pauses is
rarely the one that is sent. Preparing at every key would be, at a cost that nobody would pay. So a
draft has to settle: a rest a little longer than this typist's usual one, shorter where a sentence
or word ends, longer where the last word may go on. What it may cost is bounded by an allowance, and
the busier the embedding thread, the less is prepared, until only pauses count.
"""

import re
from collections.abc import Callable
from typing import Literal

HeldBack = Literal["busy", "allowance"]

#: CPU seconds that preparing may take for a message: at once, and for each character that is typed;
#: about 150 ms for sixty characters, which leaves 50 for what comes with it.
ALLOWANCE_S = 0.040
ALLOWANCE_S_PER_CHAR = 0.0018

_SHORTEST_S, _LONGEST_S = 0.080, 0.140  # before Enter at its earliest, 150 ms after the last letter
_LATE_S = 0.180  # for what hardly ends a message
_OVER_USUAL = 1.2  # of this typist's intervals
_FIRST_INTERVAL_S = 0.150  # until the typist is known
_NEWEST = 0.15  # share of the newest interval in the usual one
_A_THOUGHT_S = 1.0  # what is longer says nothing about typing
_AFTER_SIGN, _AFTER_SPACE = 0.5, 0.75
_LONGEST_WORD = 32  # letters that are looked at
_SHORT = 2  # letters: a word that may as well be the beginning of another
_BUSY, _FULL = 0.5, 0.8  # shares of its time that the embedding thread works

# How a draft ends, and the share of the allowance that has to be left for it: the more likely it is
# sent like that, the less; after a full stop and the like a little may be owed.
_Ending = Literal["part of a word", "short word", "word", "space", "sign"]
_RESERVE: dict[_Ending, float] = {
    "part of a word": 0.5, "short word": 0.2, "word": 0.15, "space": 0.15, "sign": -0.3,
}  # fmt: skip

_WORD_AT_END = re.compile(r"\w+$")


class PrefetchPolicy:
    """Follows one typist and one message.

    Args:
        is_word: tells whether some letters are a whole word; rare words may be taken for parts.
    """

    def __init__(self, is_word: Callable[[str], bool]) -> None:
        self._is_word = is_word
        self._usual_s = _FIRST_INTERVAL_S
        self._typed_at: float | None = None
        self.begin()

    def begin(self) -> None:
        """A new message begins, with an allowance of its own."""
        self._length = 0
        self._allowance_s = ALLOWANCE_S

    def typed(self, draft: str, now: float) -> None:
        """The draft now reads `draft`."""
        if self._typed_at is not None:
            interval = min(_A_THOUGHT_S, now - self._typed_at)
            self._usual_s += _NEWEST * (interval - self._usual_s)
        self._typed_at = now
        grown = max(0, len(draft) - self._length)
        self._length = len(draft)
        self._allowance_s = min(ALLOWANCE_S, self._allowance_s + grown * ALLOWANCE_S_PER_CHAR)

    def spent(self, seconds: float) -> None:
        """A preparation took `seconds` of CPU."""
        self._allowance_s -= seconds

    def settle_s(self, draft: str, busy: float) -> float | HeldBack:
        """Return the rest after which `draft` as typed is settled, or why only a pause counts.

        Args:
            busy: the share of its time that the embedding thread worked lately, 0 to 1.
        """
        ending = self._ending(draft)
        if busy >= (_BUSY if ending == "part of a word" else _FULL):
            return "busy"
        if self._allowance_s <= _RESERVE[ending] * ALLOWANCE_S:
            return "allowance"
        if ending in ("part of a word", "short word"):
            return _LATE_S
        usual = min(max(_OVER_USUAL * self._usual_s, _SHORTEST_S), _LONGEST_S)
        scarce = 1.0 - max(0.0, self._allowance_s) / ALLOWANCE_S
        scarce = min(1.0, max(scarce, (busy - _BUSY) / (_FULL - _BUSY)))
        settle = usual + scarce * (_LONGEST_S - usual)
        return settle * {"sign": _AFTER_SIGN, "space": _AFTER_SPACE}.get(ending, 1.0)

    def _ending(self, draft: str) -> _Ending:
        last = _WORD_AT_END.search(draft[-_LONGEST_WORD:])
        if last is None:
            return "space" if draft[-1:].isspace() else "sign"
        if not self._is_word(last.group()):
            return "part of a word"
        return "short word" if len(last.group()) <= _SHORT else "word"
