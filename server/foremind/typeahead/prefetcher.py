"""Watches one session's draft: one timer, one preparation in flight, the latest text wins."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog

from foremind.domain.clock import Clock, Timer
from foremind.domain.errors import TemporaryError
from foremind.llm.prompt.sections import StandingLayers
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin, stop
from foremind.typeahead.context_builder import ContextBuilder, RetrievalScope
from foremind.typeahead.context_cache import ContextCache, PreparedContext
from foremind.typeahead.debounce import Debouncer, DraftSettled, TypingPaused, Wait
from foremind.typeahead.draft_text import normalise, says_something
from foremind.typeahead.prefetch_policy import PrefetchPolicy

Outcome = Literal["hit", "refreshed", "miss"]
Trigger = Literal["pause", "eager", "send"]

_log = structlog.get_logger("foremind.typeahead")


@dataclass(frozen=True, slots=True)
class ContextAtEnter:
    """The context for a sent text, and how much of it was there before Enter.

    `trigger` says what made a context that the player has not been told of yet, else None.
    Context is None where there was nothing to search for, or the search failed; the reply then
    goes without memories. `standing` is what stands in every prompt, also then.
    """

    context: PreparedContext | None
    standing: StandingLayers
    outcome: Outcome
    trigger: Trigger | None = None


@dataclass(slots=True)
class _InFlight:
    text: str
    task: asyncio.Task[PreparedContext]
    trigger: Trigger


class Prefetcher:
    """Prepares contexts while a player types, and hands one over on Enter.

    Args:
        subject: whose memories, and the versions in force now.
        on_ready: called with a draft as typed, normalised equal, the context made for it, and
            what made it be made.
        pacing: the rest in seconds that counts as a pause, and whether to prepare at settled
            drafts too, not only at pauses; as of now.
        timeout_s: what recall may take on Enter; later than that, the answer goes without memories.
    """

    def __init__(
        self,
        preparer: ContextBuilder,
        cache: ContextCache,
        subject: Callable[[], RetrievalScope],
        on_ready: Callable[[str, PreparedContext, Trigger], None],
        pacing: Callable[[], tuple[float, bool]],
        timeout_s: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._preparer = preparer
        self._cache = cache
        self._subject = subject
        self._on_ready = on_ready
        self._timeout_s = timeout_s
        self._clock = clock
        self._metrics = metrics
        self._pacing = pacing
        self._rests = Debouncer(pacing()[0])
        self._eagerness = PrefetchPolicy(preparer.is_word)
        self._draft = ""
        self._typed = ""
        self._timer: Timer | None = None
        self._due = 0.0  # when it runs
        self._flight: _InFlight | None = None
        self._sent: list[_InFlight] = []  # in flight for what was sent: typing on leaves them

    def update(self, text: str) -> None:
        """The draft now reads `text`."""
        self._typed = text
        draft = normalise(text)
        now = self._clock.monotonic()
        self._rests.pause_s, eager = self._pacing()
        speaks = says_something(draft)
        settle_s = self._settle_s(text, now) if speaks and eager else None
        if draft == self._draft:  # but a word may be whole now
            if settle_s is not None:
                self._rests.settle_by(now + settle_s)
        else:
            self._draft = draft
            self._supersede(draft)
            if speaks:
                self._rests.typed(draft, now, settle_s)
            else:
                self._rests.cleared()
        self._look(now)

    def clear(self) -> None:
        """The draft was given up."""
        self._begin_anew()
        self._supersede("")

    def enter(self, text: str) -> None:
        """Enter was pressed on `text`: the draft is empty, what is prepared for it goes on."""
        self._begin_anew()
        self._supersede(normalise(text))
        if self._flight is not None:
            self._sent.append(self._flight)
            self._flight = None

    async def take(
        self, text: str, subject: Callable[[], RetrievalScope] | None = None
    ) -> ContextAtEnter:
        """Return the context for a text that was sent.

        What was prepared for exactly this text is used, one in flight for it is awaited, and
        anything else is made now. Trouble gives a reply without memories, never no reply.

        Args:
            subject: whose memories, where it is not as while typing.
        """
        subject = subject or self._subject
        wanted = normalise(text)
        if not says_something(wanted):
            standing = await self._preparer.standing(subject(), recalled=True)
            return ContextAtEnter(None, standing, "miss")
        ready = self._valid(wanted, subject)
        if ready is not None:
            return ContextAtEnter(ready, ready.standing, "hit")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._landed(wanted, subject) or await self._made_on_enter(
                    wanted, subject
                )
        except (TemporaryError, TimeoutError) as error:
            _log.warning("context.unavailable", reason=type(error).__name__)
        except Exception:  # a defect in recall must not cost the player the reply
            _log.exception("context.failed")
        standing = await self._preparer.standing(subject(), recalled=False)
        return ContextAtEnter(None, standing, "miss")

    async def close(self) -> None:
        """Stop the timer and the preparation, and wait for its end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        flights = [each.task for each in (self._flight, *self._sent) if each is not None]
        await stop(*flights)

    def _look(self, now: float) -> None:
        """Do what is due, and have the timer run when the next thing is.

        A timer that would run too early is left: it only looks again.
        """
        match self._rests.poll(now):
            case Wait(until):
                if self._timer is None or until < self._due:
                    self._wake_at(until)
            case DraftSettled(draft):
                self._start(draft, "eager")
                self._look(now)
            case TypingPaused(draft):
                self._start(draft, "pause")

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = when
        self._timer = self._clock.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._look(self._clock.monotonic())

    def _start(self, draft: str, trigger: Trigger) -> None:
        """Prepare for a draft; latest wins, one in flight."""
        if self._flight is not None:  # for this draft, else it would be superseded
            self._flight.trigger = trigger
            self._preparer.hasten(draft, Priority.PAUSE)
            return
        ready = self._valid(draft, self._subject)
        if ready is not None:
            self._on_ready(self._typed, ready, trigger)
            return
        if trigger == "eager":
            self._eagerness.spent(self._preparer.usual_s)
        priority = Priority.EAGER if trigger == "eager" else Priority.PAUSE
        known = self._cache.get(self._subject().relationship_id, draft)
        task = begin(self._make(draft, self._subject, priority, known), "prepare-context")
        self._flight = flight = _InFlight(draft, task, trigger)
        task.add_done_callback(lambda _: self._landing(flight))

    def _settle_s(self, typed: str, now: float) -> float | None:
        """Return the rest after which the draft is worth preparing for before the pause."""
        self._eagerness.typed(typed, now)
        settle_s = self._eagerness.settle_s(typed, self._preparer.busy)
        if isinstance(settle_s, str):
            self._metrics.held_back.labels(settle_s).inc()
            return None
        return settle_s

    def _begin_anew(self) -> None:
        """The draft is empty."""
        self._typed = self._draft = ""
        self._rests.cleared()
        self._eagerness.begin()

    def _landing(self, flight: _InFlight) -> None:
        if self._flight is flight:
            self._flight = None
        elif flight in self._sent:
            self._sent.remove(flight)
        if flight.task.cancelled():
            self._metrics.dropped.labels("superseded").inc()
            return
        error = flight.task.exception()
        if error is not None:
            level = _log.warning if isinstance(error, TemporaryError) else _log.error
            level("prepare.failed", reason=type(error).__name__)
            return
        self._metrics.prepared.labels(flight.trigger).inc()
        context = flight.task.result()
        if context.text == self._draft and "memories" not in context.left_out:
            self._on_ready(self._typed, context, flight.trigger)

    async def _make(
        self,
        text: str,
        subject: Callable[[], RetrievalScope],
        priority: Priority,
        known: PreparedContext | None,
    ) -> PreparedContext:
        context = await self._preparer.prepare(text, subject, priority, known)
        if not context.left_out:
            self._cache.put(subject().relationship_id, context)
        return context

    def _valid(self, text: str, subject: Callable[[], RetrievalScope]) -> PreparedContext | None:
        """Return what is prepared for `text`, if everything it depends on still holds."""
        whose = subject()
        context = self._cache.get(whose.relationship_id, text)
        return context if context is not None and context.validity == whose.validity else None

    async def _landed(
        self, text: str, subject: Callable[[], RetrievalScope]
    ) -> ContextAtEnter | None:
        """Wait for the preparation of `text`, if one is in flight; None where it is no use."""
        sent = next((each for each in self._sent if each.text == text), None)
        if sent is None:
            return None
        self._preparer.hasten(text, Priority.ENTER)
        # Waiting does not raise what the preparation raised: Enter then tries for itself.
        await asyncio.wait({sent.task})
        context = self._valid(text, subject)
        return (
            None
            if context is None
            else ContextAtEnter(context, context.standing, "hit", sent.trigger)
        )

    async def _made_on_enter(
        self, text: str, subject: Callable[[], RetrievalScope]
    ) -> ContextAtEnter:
        known = self._cache.get(subject().relationship_id, text)
        context = await self._make(text, subject, Priority.ENTER, known)
        self._metrics.prepared.labels("send").inc()
        reused = known is not None and known.vector is context.vector
        return ContextAtEnter(context, context.standing, "refreshed" if reused else "miss", "send")

    def _supersede(self, text: str) -> None:
        """Cancel a preparation for any other text than `text`."""
        if self._flight is not None and self._flight.text != text:
            self._flight.task.cancel()
            self._flight = None
