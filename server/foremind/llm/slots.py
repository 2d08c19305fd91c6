"""Slots of a model server, where chunks of prompts can be read ahead.

Prefixes of a prompt, each a little longer, with which a server prefills it in chunks.

A server with one slot finishes a prefill even if the request is abandoned, and a player who presses
Enter waits for that. So the prompt is prefilled in chunks: each repeats the one before, which the
server has cached, and adds as much as it can process in a moment.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from foremind.llm.prompt.layout import Message

# Chat templates require a non-empty user message at the end.
_PLACEHOLDER: Message = {"role": "user", "content": "."}


def prompt_prefix(messages: Sequence[Message], chars: int) -> list[Message]:
    """Return a prefix of a prompt of `chars` characters or a few more, as valid messages.

    The companion's replies are never truncated: the user message that follows one is included too.
    """
    prefix: list[Message] = []
    remaining = chars
    for message in messages:
        content = message["content"]
        prefix.append(message)
        if message["role"] != "assistant" and remaining <= len(content):
            prefix[-1] = {"role": message["role"], "content": content[: max(remaining, 1)]}
            break
        remaining -= len(content)
    if prefix and prefix[-1]["role"] != "user":
        prefix.append(_PLACEHOLDER)
    return prefix


def shared_prefix_chars(first: Sequence[Message], second: Sequence[Message]) -> int:
    """Return the number of leading characters that two prompts have in common."""
    chars = 0
    for left, right in zip(first, second, strict=False):
        if left == right:
            chars += len(left["content"])
            continue
        if left["role"] == right["role"]:
            chars += _shared_prefix(left["content"], right["content"])
        break
    return chars


def prompt_chars(messages: Sequence[Message]) -> int:
    """Return the number of characters in a prompt."""
    return sum(len(message["content"]) for message in messages)


def _shared_prefix(first: str, second: str) -> int:
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(index for index in range(limit) if first[index] != second[index])


# A background request that has waited this long is let through, one per such period.
_PATIENCE_S = 600.0
# A player who types is expected to press Enter within this time of the last keystroke.
_TYPING_S = 5.0


class Preempted(Exception):
    """Repeatable work was cancelled in favour of work with a higher priority."""


class SlotLease:
    """The lease of a slot by preemptible work; `promote` turns it into foreground work."""

    def __init__(self, slots: "SlotPool", task: "asyncio.Task[object]") -> None:
        self._slots = slots
        self.task = task
        self.preempted = False
        self.promoted = False

    def promote(self) -> None:
        """Turn the work into foreground work: nothing preempts it, and it preempts other work."""
        self._slots.promote(self)

    def preempt(self) -> None:
        """Cancel the work."""
        if not self.preempted:
            self.preempted = True
            self.task.cancel()


class SlotPool:
    """Schedules requests on a server's slots, so that repeatable work never delays a player.

    Foreground work, which a player waits for, is never held up here. Speculative work starts only
    when one of the server's `count` slots is free, in turn, and is preempted as soon as its slot is
    needed. Background work does the same, yields to speculative work as well, and is held back
    while a player types. Restoring the prompt cache after background work comes last. Requests
    of others to the same server, such as other processes, are not known here.

    Args:
        patience_s: a background request that has waited this long is no longer preempted or held
            back; one at a time, and no other within the same time.
        typing_s: how long after a keystroke a slot is reserved.
    """

    def __init__(
        self, count: int, patience_s: float = _PATIENCE_S, typing_s: float = _TYPING_S
    ) -> None:
        self._count = count
        self._patience_s = patience_s
        self._typing_s = typing_s
        self._foreground = 0
        self._speculative: list[SlotLease] = []
        self._speculative_queue: deque[asyncio.Future[None]] = deque()  # at most one per session
        self._background: list[SlotLease] = []
        # At most as many as steps of background work, ratings and behaviours run at once.
        self._background_queue: deque[asyncio.Future[None]] = deque()
        self._queued_tasks: set[asyncio.Task[object] | None] = set()  # of `_background_queue`
        self._restoring: SlotLease | None = None
        self._overdue_started_at = float("-inf")  # when an overdue request was last let through
        self._typing_until = float("-inf")
        self._typing_timer: asyncio.TimerHandle | None = None
        self._prompts: deque[list[Message]] = deque(maxlen=count)  # most recently used last
        #: What the next foreground request is expected to begin with: the prompt of the last one,
        #: or what a session has assembled since.
        self.expected_prompt: Sequence[Message] = ()

    @contextmanager
    def foreground(self) -> Iterator[None]:
        """Run foreground work in the context."""
        self._foreground += 1
        self._preempt_excess()
        try:
            yield
        finally:
            self._foreground -= 1
            self._wake_next()

    @asynccontextmanager
    async def speculative(self) -> AsyncIterator[SlotLease]:
        """Wait for a free slot; run speculative work in the context, in the task that entered it.

        Raises:
            Preempted: the slot is needed; the task's cancellation has been undone.
        """
        while self._free < 1:
            await self._queue_in(self._speculative_queue)
        async with self._leased(self._speculative) as lease:
            self._preempt_excess()
            yield lease

    @asynccontextmanager
    async def background(self, since: float) -> AsyncIterator[SlotLease]:
        """Wait for a slot that nothing else needs; run background work in the context.

        Args:
            since: when the work first requested a slot, by the event loop's clock.

        Raises:
            Preempted: as `speculative`.
        """
        now = asyncio.get_running_loop().time
        task = asyncio.current_task()
        self._queued_tasks.add(task)
        try:
            while self._free_for_background < 1 and now() < self._overdue_at(since):
                await self._queue_in(self._background_queue, self._overdue_at(since))
        finally:
            self._queued_tasks.discard(task)
        overdue = self._free_for_background < 1
        async with self._leased(self._background) as lease:
            if overdue:
                self._overdue_started_at = now()
                lease.promote()
            else:
                self._preempt_excess()
            yield lease

    def is_queued(self, task: "asyncio.Task[object]") -> bool:
        """Return whether a task's background request is queued for a slot."""
        return task in self._queued_tasks

    @asynccontextmanager
    async def restoring(self) -> AsyncIterator[None]:
        """Restore the prompt cache in the context, while nothing else uses the server.

        Raises:
            Preempted: the server is in use, or its cache is already being restored.
        """
        if (
            self._restoring is not None
            or self._unused < 1
            or (self._background_queue and self._free_for_background > 0)
        ):
            raise Preempted
        leases: list[SlotLease] = []
        try:
            async with self._leased(leases) as self._restoring:
                yield
        finally:
            self._restoring = None

    def record_keystroke(self) -> None:
        """Record a keystroke, which reserves a slot for a while."""
        loop = asyncio.get_running_loop()
        self._typing_until = loop.time() + self._typing_s
        self._preempt_excess()
        if self._typing_timer is None:
            self._typing_timer = loop.call_at(self._typing_until, self._on_typing_timer)

    def record_prompt(self, messages: Sequence[Message]) -> None:
        """Record a prompt that is sent: it extends a cached prefix of its own, or takes a new slot.

        An estimate: servers choose the most similar prompt first, then the least recently used.
        """
        for prompt in list(self._prompts):
            if shared_prefix_chars(prompt, messages) == prompt_chars(prompt):
                self._prompts.remove(prompt)
        self._prompts.append(list(messages))

    def clear_prompts(self) -> None:
        """Drop all recorded prompts and stop restoring them: they may contain erased text."""
        self._prompts.clear()
        self.expected_prompt = ()
        if self._restoring is not None:
            self._restoring.preempt()

    def cached_chars(self, messages: Sequence[Message]) -> int:
        """Return how many leading characters of a prompt some slot has probably cached."""
        return max((shared_prefix_chars(prompt, messages) for prompt in self._prompts), default=0)

    def caches(self, messages: Sequence[Message]) -> bool:
        """Return whether some slot has probably cached this very prompt, and how it ends."""
        return list(messages) in self._prompts

    def promote(self, lease: SlotLease) -> None:
        """Turn preemptible work into foreground work."""
        for leases in (self._speculative, self._background):
            if lease in leases and not lease.preempted:
                leases.remove(lease)
                lease.promoted = True
                self._foreground += 1
                self._preempt_excess()

    @property
    def _free(self) -> int:
        """Slots for speculative work."""
        return self._count - self._foreground - len(self._speculative)

    @property
    def _free_for_background(self) -> int:
        return self._unused - self._reserved

    @property
    def _unused(self) -> int:
        return self._free - len(self._speculative_queue) - len(self._background)

    @property
    def _reserved(self) -> int:
        """Slots that will soon be needed: one, however many players type."""
        return int(asyncio.get_running_loop().time() < self._typing_until)

    def _overdue_at(self, since: float) -> float:
        return max(since, self._overdue_started_at) + self._patience_s

    def _preempt_excess(self) -> None:
        available = max(0, self._count - self._foreground)
        for lease in self._speculative[available:]:
            lease.preempt()
        for lease in self._background[
            max(0, available - len(self._speculative) - self._reserved) :
        ]:
            lease.preempt()
        if self._restoring is not None and self._unused < 1:
            self._restoring.preempt()

    @asynccontextmanager
    async def _leased(self, leases: list[SlotLease]) -> AsyncIterator[SlotLease]:
        task = asyncio.current_task()
        assert task is not None
        lease = SlotLease(self, task)
        leases.append(lease)
        self._wake_next()  # there may be another free slot
        try:
            yield lease
        except asyncio.CancelledError:
            # As `asyncio.timeout` does: only the pool's own cancellation is undone.
            if lease.preempted and task.uncancel() == 0:
                raise Preempted from None
            raise
        finally:
            if lease.promoted:
                self._foreground -= 1
            else:
                leases.remove(lease)
            self._wake_next()

    async def _queue_in(
        self, queue: "deque[asyncio.Future[None]]", until: float | None = None
    ) -> None:
        """Wait in a queue until woken, or until a time of the event loop's clock."""
        loop = asyncio.get_running_loop()
        ticket: asyncio.Future[None] = loop.create_future()
        queue.append(ticket)
        timer = None if until is None else loop.call_at(until, _wake, ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():
                self._wake_next()  # woken and cancelled at once: pass the slot on
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if ticket in queue:
                queue.remove(ticket)

    def _wake_next(self) -> None:
        for queue, free_slots in (
            (self._speculative_queue, self._free),
            (self._background_queue, self._free_for_background),
        ):
            while free_slots > 0 and queue:
                ticket = queue.popleft()
                if not ticket.done():
                    ticket.set_result(None)
                    return

    def _on_typing_timer(self) -> None:
        """Release the reserved slot, or restart the timer if there were keystrokes since."""
        loop = asyncio.get_running_loop()
        still_typing = loop.time() < self._typing_until
        self._typing_timer = (
            loop.call_at(self._typing_until, self._on_typing_timer) if still_typing else None
        )
        self._wake_next()


def _wake(ticket: "asyncio.Future[None]") -> None:
    if not ticket.done():
        ticket.set_result(None)
