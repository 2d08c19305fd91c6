"""Prefetches contexts for one session's draft: one timer, one build in flight, latest text wins."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from foremind.domain.clock import Clock, Timer
from foremind.domain.errors import TemporaryError
from foremind.domain.turn import Outcome, Trigger
from foremind.llm.prompt.sections import StandingLayers
from foremind.lore.activation import NO_LORE, ActiveLore
from foremind.retrieval.embedding.service import Priority
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin, stop
from foremind.text.languages.language_files import LANGUAGES
from foremind.typeahead.context_builder import ContextBuilder, RetrievalScope
from foremind.typeahead.context_cache import ContextCache, PreparedContext
from foremind.typeahead.prefetch_policy import (
    Debouncer,
    Delays,
    DraftSettled,
    PrefetchDue,
    PrefetchPolicy,
    TypingPaused,
    Wait,
    has_searchable_text,
    normalise,
)

_log = structlog.get_logger("foremind.typeahead")


@dataclass(frozen=True, slots=True)
class ContextAtEnter:
    """The context for a sent text, and whether it was prefetched.

    `context` is None if there was nothing to search for or retrieval failed; the reply then has no
    memories. `standing` are the layers that every prompt includes, and `lore` what the text
    activates, even then. `trigger` is what started the build of a context that `on_ready` has not
    reported, else None.
    """

    context: PreparedContext | None
    standing: StandingLayers
    outcome: Outcome
    lore: ActiveLore
    trigger: Trigger | None = None


@dataclass(frozen=True, slots=True)
class PrefetchCallbacks:
    """What is called as a draft is typed, with the draft as typed.

    Attributes:
        on_settled: it has settled, whether or not a context is prefetched for it.
        on_ready: a context for it is ready (its text is equal once normalised); with what triggered
            its build.
    """

    on_settled: Callable[[str], None]
    on_ready: Callable[[str, PreparedContext, Trigger], None]


@dataclass(slots=True)
class _Build:
    text: str
    task: asyncio.Task[PreparedContext]
    trigger: Trigger


class Prefetcher:
    """Builds contexts while a player types, and returns the matching one on Enter.

    Args:
        current_scope: returns whose memories to search, and the versions in force now.
        pacing: returns the idle time in seconds that counts as a pause, and whether to prefetch at
            settled drafts as well as at pauses.
        language: that the player writes in, for what may still follow a draft.
        timeout_s: deadline for retrieval on Enter, after which the reply has no memories.
    """

    def __init__(
        self,
        builder: ContextBuilder,
        cache: ContextCache,
        current_scope: Callable[[], RetrievalScope],
        callbacks: PrefetchCallbacks,
        pacing: Callable[[], tuple[float, bool]],
        timeout_s: float,
        clock: Clock,
        metrics: Metrics,
        language: str,
    ) -> None:
        self._builder = builder
        self._cache = cache
        self._current_scope = current_scope
        self._callbacks = callbacks
        self._timeout_s = timeout_s
        self._clock = clock
        self._metrics = metrics
        self._pacing = pacing
        known = LANGUAGES.get(language.partition("-")[0])
        self._leading_words = known.leading_words if known is not None else ()
        self._debouncer = Debouncer()
        self._policy = PrefetchPolicy(builder.word_share)
        self._draft = ""
        self._typed = ""
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._in_flight: _Build | None = None
        self._sent: list[_Build] = []  # in flight for sent texts; typing does not cancel them

    def update(self, text: str) -> None:
        """Record that the draft changed to `text`."""
        self._typed = text
        draft = normalise(text)
        now = self._clock.monotonic()
        if draft != self._draft:
            self._draft = draft
            self._cancel_superseded(draft)
        if has_searchable_text(draft):
            self._debouncer.typed(draft, now, self._delays(text))
        else:
            self._debouncer.cleared()
        self._poll(now)

    def clear(self) -> None:
        """Record that the draft was discarded."""
        self._reset_draft()
        self._cancel_superseded("")

    def enter(self, text: str) -> None:
        """Record that `text` was sent: the draft is empty, but a build for `text` continues."""
        self._reset_draft()
        self._cancel_superseded(normalise(text))
        if self._in_flight is not None:
            self._sent.append(self._in_flight)
            self._in_flight = None

    async def context_at_enter(
        self, text: str, current_scope: Callable[[], RetrievalScope] | None = None
    ) -> ContextAtEnter:
        """Return the context for a sent text.

        A valid cached context for exactly this text is used, a build in flight for it is awaited,
        otherwise one is built now. If that fails, no error is raised and there are no memories.

        Args:
            current_scope: replaces the scope that applies while typing.
        """
        current_scope = current_scope or self._current_scope
        draft = normalise(text)
        if not has_searchable_text(draft):
            return await self._without_context(draft, current_scope, recalled=True)
        cached = self._valid(draft, current_scope)
        if cached is not None:
            return ContextAtEnter(cached, cached.standing, "hit", cached.lore)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._await_in_flight(
                    draft, current_scope
                ) or await self._build_on_enter(draft, current_scope)
        except (TemporaryError, TimeoutError) as error:
            _log.warning("context.unavailable", reason=type(error).__name__)
        except Exception:  # a defect in retrieval must not cost the player the reply
            _log.exception("context.failed")
        return await self._without_context(draft, current_scope, recalled=False)

    async def _without_context(
        self, draft: str, current_scope: Callable[[], RetrievalScope], *, recalled: bool
    ) -> ContextAtEnter:
        """Return what a prompt includes in any case; `recalled`: not because retrieval failed."""
        standing = await self._builder.standing(current_scope(), recalled=recalled)
        lore = NO_LORE
        try:
            lore = (await current_scope().lore(draft)).active
        except TemporaryError as error:
            _log.warning("lore.unavailable", reason=type(error).__name__)
        return ContextAtEnter(None, standing, "miss", lore)

    async def close(self) -> None:
        """Cancel the timer and all builds, and wait for them to end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        builds = [self._in_flight, *self._sent]
        await stop(*(build.task for build in builds if build is not None))

    def _poll(self, now: float) -> None:
        """Do what is due and set the timer for what is next.

        A timer that would run too early is not moved: it only polls again.
        """
        while True:
            match self._debouncer.poll(now):
                case DraftSettled():
                    self._callbacks.on_settled(self._typed)
                case PrefetchDue(draft):
                    self._start(draft, "eager")
                case TypingPaused(draft):
                    self._start(draft, "pause")
                case Wait(until):
                    if self._timer is None or until < self._timer_at:
                        self._wake_at(until)
                    return
                case None:
                    return

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._poll(self._clock.monotonic())

    def _start(self, draft: str, trigger: Trigger) -> None:
        """Start a build for a draft, or raise the priority of the one in flight."""
        if self._in_flight is not None:  # for this draft: any other was cancelled
            self._in_flight.trigger = trigger
            self._builder.raise_priority(draft, Priority.PAUSE)
            return
        scope = self._current_scope()
        known = self._cache.get(scope.relationship_id, draft)
        if (
            known is not None
            and known.cache_key == scope.cache_key
            and self._builder.is_fresh(scope.relationship_id)
        ):
            self._callbacks.on_ready(self._typed, known, trigger)
            return
        if trigger == "eager":
            self._policy.spent(self._builder.typical_cpu_s)
        priority = Priority.EAGER if trigger == "eager" else Priority.PAUSE
        task = begin(self._build(draft, self._current_scope, priority, known), "prepare-context")
        self._in_flight = build = _Build(draft, task, trigger)
        task.add_done_callback(lambda _: self._on_build_done(build))

    def _delays(self, typed: str) -> Delays:
        pause_s, eager = self._pacing()
        if not eager:
            return Delays(pause_s)
        delays, reason = self._policy.typed(
            typed, self._builder.utilization, pause_s, self._leading_words
        )
        if reason is not None:
            self._metrics.held_back.labels(reason).inc()
        return delays

    def _reset_draft(self) -> None:
        self._typed = self._draft = ""
        self._debouncer.cleared()
        self._policy.begin()

    def _on_build_done(self, build: _Build) -> None:
        if self._in_flight is build:
            self._in_flight = None
        elif build in self._sent:
            self._sent.remove(build)
        if build.task.cancelled():
            self._metrics.dropped.labels("superseded").inc()
            return
        error = build.task.exception()
        if error is not None:
            log = _log.warning if isinstance(error, TemporaryError) else _log.error
            log("prepare.failed", reason=type(error).__name__)
            return
        self._metrics.prepared.labels(build.trigger).inc()
        context = build.task.result()
        if context.text == self._draft and "memories" not in context.missing_layers:
            self._callbacks.on_ready(self._typed, context, build.trigger)

    async def _build(
        self,
        text: str,
        current_scope: Callable[[], RetrievalScope],
        priority: Priority,
        known: PreparedContext | None,
    ) -> PreparedContext:
        """Build a context, and cache it if no layer is missing."""
        context = await self._builder.prepare(text, current_scope, priority, known)
        if not context.missing_layers:
            self._cache.put(current_scope().relationship_id, context)
        return context

    def _valid(
        self, text: str, current_scope: Callable[[], RetrievalScope]
    ) -> PreparedContext | None:
        """Return the cached context for `text`, unless it is stale."""
        scope = current_scope()
        context = self._cache.get(scope.relationship_id, text)
        return context if context is not None and context.cache_key == scope.cache_key else None

    async def _await_in_flight(
        self, text: str, current_scope: Callable[[], RetrievalScope]
    ) -> ContextAtEnter | None:
        """Wait for a build of `text` in flight; None if there is none or its result is stale."""
        build = next((build for build in self._sent if build.text == text), None)
        if build is None:
            return None
        self._builder.raise_priority(text, Priority.ENTER)
        # Does not raise the build's error: the caller then tries again.
        await asyncio.wait({build.task})
        context = self._valid(text, current_scope)
        return (
            None
            if context is None
            else ContextAtEnter(context, context.standing, "hit", context.lore, build.trigger)
        )

    async def _build_on_enter(
        self, text: str, current_scope: Callable[[], RetrievalScope]
    ) -> ContextAtEnter:
        known = self._cache.get(current_scope().relationship_id, text)
        context = await self._build(text, current_scope, Priority.ENTER, known)
        self._metrics.prepared.labels("send").inc()
        reused = known is not None and known.vector is context.vector
        outcome: Outcome = "refreshed" if reused else "miss"
        return ContextAtEnter(context, context.standing, outcome, context.lore, "send")

    def _cancel_superseded(self, text: str) -> None:
        """Cancel a build in flight for any text other than `text`."""
        if self._in_flight is not None and self._in_flight.text != text:
            self._in_flight.task.cancel()
            self._in_flight = None
