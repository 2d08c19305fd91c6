"""Debouncing of drafts: when one is settled, and when typing pauses. Pure: times in, events out."""

from dataclasses import dataclass


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
    """`draft` has been stable for as long as it was to be."""

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
