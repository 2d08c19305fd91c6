"""Debouncing of drafts: when one is settled, and when typing pauses. Pure: times in, events out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`, in monotonic seconds."""

    until: float


@dataclass(frozen=True, slots=True)
class DraftSettled:
    """`draft` has been stable for as long as it was to be."""

    draft: str


@dataclass(frozen=True, slots=True)
class TypingPaused:
    """The player stopped typing at `draft`."""

    draft: str


class Debouncer:
    """Follows one draft; reports each state of it as settled and as paused at most once.

    The default pause of 500 ms is the threshold derived from keystroke logs of chat in a game
    (Chukharev-Hudilainen 2014, doi 10.17239/jowr-2014.06.01.3).
    """

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s  #: may change between two keystrokes
        self._draft: str | None = None
        self._settled = False
        self._settles_at: float | None = None
        self._pauses_at = 0.0

    def typed(self, draft: str, now: float, settle_s: float | None = None) -> None:
        """Record that the draft changed to `draft`.

        Args:
            settle_s: idle time after which it is settled; None to report only a pause.
        """
        self._draft = draft
        self._pauses_at = now + self.pause_s
        self._settled = False
        self._settles_at = None
        if settle_s is not None:
            self.settle_by(now + settle_s)

    def settle_by(self, when: float) -> None:
        """Report the draft as settled at `when` at the latest, unless that was reported already."""
        if self._draft is not None and not self._settled and when < self._pauses_at:
            self._settles_at = when if self._settles_at is None else min(when, self._settles_at)

    def cleared(self) -> None:
        """Record that the draft is empty: sent or discarded."""
        self._draft = None

    def poll(self, now: float) -> Wait | DraftSettled | TypingPaused | None:
        """Return what is due at `now`; None if there is no draft or its pause was reported."""
        if self._draft is None:
            return None
        if now >= self._pauses_at:
            draft, self._draft = self._draft, None
            return TypingPaused(draft)
        if self._settles_at is None:
            return Wait(self._pauses_at)
        if now < self._settles_at:
            return Wait(self._settles_at)
        self._settled, self._settles_at = True, None
        return DraftSettled(self._draft)
