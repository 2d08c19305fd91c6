"""When a rest in typing is a pause. Pure: times come in, decisions go out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`, in seconds of the clock's monotonic time."""

    until: float


@dataclass(frozen=True, slots=True)
class Paused:
    """The player rests at `draft`."""

    draft: str


class PauseDetector:
    """Follows one draft; each state of it is reported as paused at most once.

    The default rest of 500 ms is the threshold that keystroke logs of chat in a game gave
    (Chukharev-Hudilainen 2014, doi 10.17239/jowr-2014.06.01.3).
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._draft: str | None = None
        self._changed_at = 0.0

    def typed(self, draft: str, now: float) -> None:
        """The draft now reads `draft`, which differs from before."""
        self._draft = draft
        self._changed_at = now

    def cleared(self) -> None:
        """The draft is empty, sent or given up."""
        self._draft = None

    def poll(self, now: float) -> Wait | Paused | None:
        """Return what to do at `now`; None until something is typed."""
        if self._draft is None:
            return None
        until = self._changed_at + self._pause_s
        if now < until:
            return Wait(until)
        draft, self._draft = self._draft, None
        return Paused(draft)
