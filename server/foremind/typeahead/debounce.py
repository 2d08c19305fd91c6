"""When a rest in typing is settled, and when it is a pause. Pure: times in, decisions out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`, in seconds of the clock's monotonic time."""

    until: float


@dataclass(frozen=True, slots=True)
class DraftSettled:
    """The player rests at `draft` for longer than between two keys."""

    draft: str


@dataclass(frozen=True, slots=True)
class TypingPaused:
    """The player rests at `draft`."""

    draft: str


class Debouncer:
    """Follows one draft; each state of it is reported settled and paused at most once.

    The default rest of 500 ms is the threshold that keystroke logs of chat in a game gave
    (Chukharev-Hudilainen 2014, doi 10.17239/jowr-2014.06.01.3).
    """

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s  #: may change between two keystrokes
        self._draft: str | None = None
        self._settled = False
        self._settles_at: float | None = None
        self._pauses_at = 0.0

    def typed(self, draft: str, now: float, settle_s: float | None = None) -> None:
        """The draft now reads `draft`, which differs from before.

        Args:
            settle_s: the rest after which it is settled; None where only a pause counts.
        """
        self._draft = draft
        self._pauses_at = now + self.pause_s
        self._settled = False
        self._settles_at = None
        if settle_s is not None:
            self.settle_by(now + settle_s)

    def settle_by(self, when: float) -> None:
        """Report the draft settled at `when` at the latest, unless it was."""
        if self._draft is not None and not self._settled and when < self._pauses_at:
            self._settles_at = when if self._settles_at is None else min(when, self._settles_at)

    def cleared(self) -> None:
        """The draft is empty, sent or given up."""
        self._draft = None

    def poll(self, now: float) -> Wait | DraftSettled | TypingPaused | None:
        """Return what to do at `now`; None until something is typed."""
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
