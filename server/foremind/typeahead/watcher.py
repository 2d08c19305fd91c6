"""Watches one session's draft: one timer, one preparation in flight, the latest text wins."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog

from foremind.clock import Clock, Timer
from foremind.embedding.queue import Priority
from foremind.errors import TemporaryError
from foremind.metrics import Metrics
from foremind.typeahead.draft import normalise, says_something
from foremind.typeahead.pause import Paused, PauseDetector, Wait
from foremind.typeahead.prepare import Preparer, Subject
from foremind.typeahead.prepared import PreparedCache, PreparedContext

Outcome = Literal["hit", "refreshed", "miss"]
Trigger = Literal["pause", "eager", "send"]

# On Enter, recall may take this long; a database slower than that is answered without memories.
_PATIENCE_S = 2.0

_log = structlog.get_logger("foremind.typeahead")


@dataclass(frozen=True, slots=True)
class Taken:
    """The context for a sent text, and how much of it was there before Enter.

    `trigger` says what made a context that the player has not been told of yet, else None.
    Context is None where there was nothing to search for, or the search failed; the reply then
    goes without memories.
    """

    context: PreparedContext | None
    outcome: Outcome
    trigger: Trigger | None = None


@dataclass(frozen=True, slots=True)
class _Flight:
    text: str
    task: asyncio.Task[PreparedContext]


class DraftWatcher:
    """Prepares contexts while a player types, and hands one over on Enter.

    Args:
        subject: whose memories, and the versions in force now.
        on_ready: called with a draft as typed, normalised equal, and the context made for it.
    """

    def __init__(
        self,
        preparer: Preparer,
        cache: PreparedCache,
        subject: Callable[[], Subject],
        on_ready: Callable[[str, PreparedContext], None],
        pause_s: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._preparer = preparer
        self._cache = cache
        self._subject = subject
        self._on_ready = on_ready
        self._clock = clock
        self._metrics = metrics
        self._pause = PauseDetector(pause_s)
        self._draft = ""
        self._typed = ""
        self._timer: Timer | None = None
        self._flight: _Flight | None = None

    def update(self, text: str) -> None:
        """The draft now reads `text`."""
        self._typed = text
        draft = normalise(text)
        if draft == self._draft:
            return
        self._draft = draft
        self._supersede(draft)
        if says_something(draft):
            self._pause.typed(draft, self._clock.monotonic())
            self._arm()
        else:
            self._pause.cleared()

    def clear(self) -> None:
        """The draft was given up."""
        self._typed = self._draft = ""
        self._pause.cleared()
        self._supersede("")

    def enter(self, text: str) -> None:
        """Enter was pressed on `text`: the draft is empty, what is prepared for it goes on."""
        self._typed = self._draft = ""
        self._pause.cleared()
        self._supersede(normalise(text))

    async def take(self, text: str, subject: Callable[[], Subject] | None = None) -> Taken:
        """Return the context for a text that was sent.

        What was prepared for exactly this text is used, one in flight for it is awaited, and
        anything else is made now. Trouble gives a reply without memories, never no reply.

        Args:
            subject: whose memories, where it is not as while typing.
        """
        subject = subject or self._subject
        wanted = normalise(text)
        if not says_something(wanted):
            return Taken(None, "miss")
        ready = self._valid(wanted, subject)
        if ready is not None:
            return Taken(ready, "hit")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._landed(wanted, subject) or await self._made_on_enter(
                    wanted, subject
                )
        except (TemporaryError, TimeoutError) as error:
            _log.warning("context.unavailable", reason=type(error).__name__)
        except Exception:  # a defect in recall must not cost the player the reply
            _log.exception("context.failed")
        return Taken(None, "miss")

    async def close(self) -> None:
        """Stop the timer and the preparation, and wait for its end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        flight = self._flight
        self._supersede("")
        if flight is not None:
            await asyncio.gather(flight.task, return_exceptions=True)

    def _arm(self) -> None:
        """Start the timer unless it runs: a keystroke only moves what it will find."""
        if self._timer is None:
            self._poll()

    def _poll(self) -> None:
        self._timer = None
        decision = self._pause.poll(self._clock.monotonic())
        if isinstance(decision, Wait):
            self._timer = self._clock.call_at(decision.until, self._poll)
        elif isinstance(decision, Paused):
            self._start(decision.draft)

    def _start(self, draft: str) -> None:
        ready = self._valid(draft, self._subject)
        if ready is not None:
            self._on_ready(self._typed, ready)
            return
        known = self._cache.get(self._subject().relationship_id, draft)
        task = asyncio.create_task(
            self._make(draft, self._subject, Priority.PAUSE, known), name="prepare-context"
        )
        self._flight = _Flight(draft, task)
        task.add_done_callback(self._landing)

    def _landing(self, task: asyncio.Task[PreparedContext]) -> None:
        if self._flight is not None and self._flight.task is task:
            self._flight = None
        if task.cancelled():
            self._metrics.dropped.labels("superseded").inc()
            return
        error = task.exception()
        if error is not None:
            level = _log.warning if isinstance(error, TemporaryError) else _log.error
            level("prepare.failed", reason=type(error).__name__)
            return
        self._metrics.prepared.labels("pause").inc()
        if task.result().text == self._draft and "memories" not in task.result().left_out:
            self._on_ready(self._typed, task.result())

    async def _make(
        self,
        text: str,
        subject: Callable[[], Subject],
        priority: Priority,
        known: PreparedContext | None,
    ) -> PreparedContext:
        context = await self._preparer.prepare(text, subject, priority, known)
        if not context.left_out:
            self._cache.put(subject().relationship_id, context)
        self._metrics.prepared_contexts.set(len(self._cache))
        return context

    def _valid(self, text: str, subject: Callable[[], Subject]) -> PreparedContext | None:
        """Return what is prepared for `text`, if everything it depends on still holds."""
        whose = subject()
        context = self._cache.get(whose.relationship_id, text)
        return context if context is not None and context.validity == whose.validity else None

    async def _landed(self, text: str, subject: Callable[[], Subject]) -> Taken | None:
        """Wait for the preparation of `text`, if one is in flight; None where it is no use."""
        if self._flight is None or self._flight.text != text:
            return None
        self._preparer.hasten(text)
        # Waiting does not raise what the preparation raised: Enter then tries for itself.
        await asyncio.wait({self._flight.task})
        context = self._valid(text, subject)
        return None if context is None else Taken(context, "hit", "pause")

    async def _made_on_enter(self, text: str, subject: Callable[[], Subject]) -> Taken:
        known = self._cache.get(subject().relationship_id, text)
        context = await self._make(text, subject, Priority.ENTER, known)
        self._metrics.prepared.labels("send").inc()
        reused = known is not None and known.vector is context.vector
        return Taken(context, "refreshed" if reused else "miss", "send")

    def _supersede(self, text: str) -> None:
        """Cancel a preparation for any other text than `text`."""
        if self._flight is not None and self._flight.text != text:
            self._flight.task.cancel()
            self._flight = None
