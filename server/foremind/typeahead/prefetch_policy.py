"""Decides when a draft is embedded, and which of its texts are worth it. Pure."""

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a draft is to be idle before it is reported, in seconds; None for not at all.

    What would come at the pause or later is not reported.
    """

    pause_s: float
    settle_s: float | None = None
    prefetch_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`, in monotonic seconds."""

    until: float


@dataclass(frozen=True, slots=True)
class DraftSettled:
    """`draft` has been stable for long enough."""

    draft: str


@dataclass(frozen=True, slots=True)
class PrefetchDue:
    """`draft` may be sent as it is: it is worth a context."""

    draft: str


@dataclass(frozen=True, slots=True)
class TypingPaused:
    """The player stopped typing at `draft`."""

    draft: str


Report = DraftSettled | PrefetchDue | TypingPaused
_REPORTS: tuple[type[Report], ...] = (DraftSettled, PrefetchDue, TypingPaused)


class Debouncer:
    """Follows one draft; reports each state of it as settled, as due and as paused at most once.

    The default pause of 500 ms is the threshold derived from keystroke logs of chat in a game
    (Chukharev-Hudilainen 2014, doi 10.17239/jowr-2014.06.01.3).
    """

    def __init__(self) -> None:
        self._draft = ""
        self._due: list[tuple[float, Report]] = []

    def typed(self, draft: str, now: float, delays: Delays) -> None:
        """Record a key, after which the draft is `draft`; what was not reported yet waits again."""
        reports = [type(report) for _, report in self._due] if draft == self._draft else _REPORTS
        self._draft = draft
        idle_s = (delays.settle_s, delays.prefetch_s, delays.pause_s)
        self._due = [
            (now + delay_s, report(draft))
            for report, delay_s in zip(_REPORTS, idle_s, strict=True)
            if delay_s is not None and report in reports
            if delay_s < delays.pause_s or report is TypingPaused
        ]
        self._due.sort(key=lambda due: due[0])

    def cleared(self) -> None:
        """Record that the draft is empty: sent or discarded."""
        self._draft = ""
        self._due = []

    def poll(self, now: float) -> Wait | Report | None:
        """Return what is due at `now`; None if there is no draft or its pause was reported."""
        if not self._due:
            return None
        when, report = self._due[0]
        if now < when:
            return Wait(when)
        del self._due[0]
        return report


def normalise(text: str) -> str:
    """Return `text` in NFC with whitespace collapsed; drafts with equal results are the same."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def has_searchable_text(text: str) -> bool:
    """Return whether `text` contains a letter, a digit or a pictograph to search for."""
    return any(_carries_meaning(character) for character in text)


def _carries_meaning(character: str) -> bool:
    category = unicodedata.category(character)
    # "So" contains emoji, but also signs such as degree and copyright, below U+2190.
    return category[0] in "LN" or (category == "So" and character >= "\u2190")


DeferReason = Literal["busy", "allowance"]

#: CPU seconds that prefetching may take per message: initially, and for each character typed;
#: 158 ms for sixty characters; likely ends may overdraw it by half, signs by all of it.
ALLOWANCE_S = 0.050
ALLOWANCE_S_PER_CHAR = 0.0018

# A hasty Enter comes 80 ms after the last key; what is in flight then is a hit as well. Few keys
# follow each other within these times.
_SIGN_S, _WORD_S = 0.030, 0.065
_SATURATED_S = 0.140  # where the embedding thread is busy: about what lies between two keys
_POSSIBLE_S = 0.180  # before an Enter after 200 ms
_SETTLED_S = 0.080  # where nothing is prefetched: few keys follow each other within it
_MAX_WORD_CHARS = 32  # of the last word are examined
# A word counts as complete if at least this share of the words that begin like it end with it; of
# those with a capital fewer, as most that begin like a name are none.
_MIN_SHARE, _MIN_SHARE_OF_NAME = 0.05, 0.015
_ABBREVIATED = 4  # letters of a name that are no word, but may be sent for one: "Tues"
_LONG_PAUSES = 3  # of the usual pause, after which a hardly likely draft has a context
_FIRST_WORDS = 3  # of a message, after which it has a context wherever it ends
_BUSY, _SATURATED = 0.5, 0.8  # utilization of the embedding thread

# How a draft ends, and the share of the allowance that must remain to prefetch for it.
_Ending = Literal["sign", "word", "possible", "leading word", "part of a word"]
_MIN_ALLOWANCE_SHARE = {"sign": -1.0, "word": -0.5, "possible": 0.95}

_WORD_AT_END = re.compile(r"\w+$")
# A sign that something follows: what opens a quotation, an apostrophe or a hyphen within a word.
_OPEN_AT_END = re.compile(r"""(?:(?:^|\s)["'*:;&]|\w['’‘`-]|[–—(\[{<@#“«\\])$""")


class PrefetchPolicy:
    """Follows the messages being typed.

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
        self._prefetched = False
        self._allowance_s = ALLOWANCE_S

    def spent(self, seconds: float) -> None:
        """Charge a prefetch's CPU time to the allowance."""
        self._prefetched = True
        self._allowance_s -= seconds

    def typed(
        self, draft: str, utilization: float, pause_s: float, leading_words: Collection[str] = ()
    ) -> tuple[Delays, DeferReason | None]:
        """Return how long to wait after a key, and why only a pause counts, if it does for now.

        Args:
            draft: as typed, not normalised.
            utilization: of the embedding thread, 0 to 1.
            pause_s: the idle time that is a pause.
            leading_words: those that a message hardly ever ends with, in lower case.
        """
        added = max(0, len(draft) - self._length)
        self._length = len(draft)
        self._allowance_s = min(ALLOWANCE_S, self._allowance_s + added * ALLOWANCE_S_PER_CHAR)
        ending = self._ending(draft, leading_words)
        settle_s = None if ending in ("part of a word", "possible") else _SETTLED_S
        if ending in ("leading word", "part of a word"):
            part = ending == "part of a word"
            if part or self._prefetched or len(draft.split()) < _FIRST_WORDS:
                return Delays(_LONG_PAUSES * pause_s, settle_s), None
            ending = "possible"
        if utilization >= (_BUSY if ending == "possible" else _SATURATED):
            return Delays(pause_s, settle_s), "busy"
        if self._allowance_s <= _MIN_ALLOWANCE_SHARE[ending] * ALLOWANCE_S:
            return Delays(pause_s, settle_s), "allowance"
        if ending == "possible":
            prefetch_s = _POSSIBLE_S
        else:
            prefetch_s = _SIGN_S if ending == "sign" else _WORD_S
            share = max(0.0, (utilization - _BUSY) / (_SATURATED - _BUSY))
            prefetch_s *= 1 + share * (_SATURATED_S / _WORD_S - 1)
        return Delays(pause_s, min(prefetch_s, settle_s or prefetch_s), prefetch_s), None

    def _ending(self, draft: str, leading_words: Collection[str]) -> _Ending:
        spaced, draft = draft[-1:].isspace(), draft.rstrip()
        last = _WORD_AT_END.search(draft[-_MAX_WORD_CHARS:])
        if last is None:
            return "leading word" if _OPEN_AT_END.search(draft[-2:]) else "sign"
        letters = last.group()
        if letters.casefold() in leading_words:
            return "leading word"
        if len(letters) == 1 and letters.isascii():
            return "part of a word"
        share = self._word_share(letters)
        capital = letters[0].isupper()
        if share is None or share >= (_MIN_SHARE_OF_NAME if capital else _MIN_SHARE):
            return "word"
        abbreviated = capital and len(letters) >= _ABBREVIATED and not spaced
        return "possible" if abbreviated else "part of a word"
