"""The embedding service: a backend behind one bounded priority queue."""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from foremind.domain.clock import Clock
from foremind.domain.errors import Interrupted, Overloaded
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind_models import CancelFlag, EncodingStopped, Manifest

Item = TypeVar("Item")


class Priority(IntEnum):
    """The lowest value is served first; within a priority, users take turns."""

    ENTER = 0  # a player is waiting
    PAUSE = 1  # a player may soon wait
    EAGER = 2  # a player may keep typing
    REQUEST = 3  # a program is waiting
    BACKGROUND = 4  # nobody is waiting


class _UserQueue(Generic[Item]):
    """Items of one priority: owners are served round-robin, each one's items in FIFO order."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[Hashable, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_owner.values()))

    def __iter__(self) -> Iterator[Item]:
        return (item for items in self._by_owner.values() for item in items)

    def append(self, owner: Hashable, item: Item) -> None:
        """Add an item; an owner who had none goes to the end of the round."""
        self._by_owner.setdefault(owner, deque()).append(item)

    def take_first(self) -> Item | None:
        """Remove and return the oldest item of the owner whose turn it is."""
        if not self._by_owner:
            return None
        owner, items = self._by_owner.popitem(last=False)
        item = items.popleft()
        if items:
            self._by_owner[owner] = items
        return item

    def take_newest(self) -> Item:
        """Remove and return the newest item of the owner with the most items."""
        owner = max(reversed(self._by_owner), key=lambda other: len(self._by_owner[other]))
        item = self._by_owner[owner].pop()
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        return item

    def remove(self, owner: Hashable, item: Item) -> bool:
        """Remove an item; return False if it is not queued."""
        items = self._by_owner.get(owner)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del self._by_owner[owner]
        return True


class EmbeddingQueue(Generic[Item]):
    """At most `capacity` waiting items; when full, the least urgent is evicted.

    Items that `is_abandoned` accepts do not count when space is needed: they are dropped first.
    Within a priority, owners are served in turn, however many items each has waiting.
    """

    def __init__(
        self,
        capacity: int,
        is_abandoned: Callable[[Item], bool] = lambda _: False,
        owner: Callable[[Item], Hashable] = lambda _: None,
    ) -> None:
        self._capacity = capacity
        self._is_abandoned = is_abandoned
        self._owner = owner
        self._queues: dict[Priority, _UserQueue[Item]] = {
            priority: _UserQueue() for priority in Priority
        }

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def push(self, item: Item, priority: Priority) -> Item | None:
        """Add `item`; return the item evicted for it, if any.

        It is taken from the least urgent priority below `priority`: the newest item of the owner
        with the most.

        Raises:
            Overloaded: the queue is full of items at least as urgent.
        """
        evicted = None
        if len(self) >= self._capacity:
            self._drop_abandoned()
        if len(self) >= self._capacity:
            evicted = self._evict_below(priority)
            if evicted is None:
                raise Overloaded("Too many texts are waiting to be embedded; try again shortly.")
        self._queues[priority].append(self._owner(item), item)
        return evicted

    def pop(self) -> Item | None:
        """Remove and return the most urgent item, or None."""
        for queue in self._queues.values():
            item = queue.take_first()
            if item is not None:
                return item
        return None

    def discard(self, item: Item) -> bool:
        """Remove an abandoned item; return False if it is not queued."""
        owner = self._owner(item)
        return any(queue.remove(owner, item) for queue in self._queues.values())

    def promote(self, matches: Callable[[Item], bool], priority: Priority) -> list[Item]:
        """Move matching, less urgent items to the end of `priority`'s queue; return them."""
        promoted = []
        for other, queue in self._queues.items():
            if other > priority:
                for item in [item for item in queue if matches(item)]:
                    queue.remove(self._owner(item), item)
                    self._queues[priority].append(self._owner(item), item)
                    promoted.append(item)
        return promoted

    def _drop_abandoned(self) -> None:
        for queue in self._queues.values():
            for item in [item for item in queue if self._is_abandoned(item)]:
                queue.remove(self._owner(item), item)

    def _evict_below(self, priority: Priority) -> Item | None:
        for other in sorted(Priority, reverse=True):
            if other > priority and len(self._queues[other]):
                return self._queues[other].take_newest()
        return None


Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A unit vector, float32 [dimension], and the CPU time that it took, in seconds."""

    vector: Vector
    cpu_s: float


class EmbeddingBackend(Protocol):
    """Embeds one text per call."""

    @property
    def concurrency(self) -> int:
        """The number of texts that it embeds at a time."""

    def health(self) -> dict[str, str]:
        """Return the outcomes of its health checks by name."""

    async def embed(self, text: str, priority: Priority, stop: CancelFlag) -> Embedded:
        """Embed a text; raise Interrupted if `stop` was set."""

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""

    async def close(self) -> None:
        """Wait for the texts in progress, and release what they used."""


class Encoder(Protocol):
    """Encodes texts as unit vectors, on the calling thread."""

    def encode(self, texts: list[str], stop: CancelFlag) -> Vector:
        """Return float32 [len(texts), dimension]; raise EncodingStopped if `stop` was set."""

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""


class LocalBackend:
    """Encodes on threads of this process, `concurrency` texts at a time."""

    def __init__(self, encoder: Encoder, concurrency: int = 1) -> None:
        self.concurrency = concurrency
        self._encoder = encoder
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="foremind-embedding")

    async def embed(self, text: str, priority: Priority, stop: CancelFlag) -> Embedded:
        """Embed a text; the priority has had its effect in the queue.

        Raises:
            Interrupted: `stop` was set.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._timed, text, stop)

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""
        return self._encoder.word_share(letters)

    def health(self) -> dict[str, str]:
        """Return no outcomes: whether the model answers is checked by embedding a text."""
        return {}

    async def close(self) -> None:
        """Wait for the texts in progress."""
        self._threads.shutdown(wait=True)

    def _timed(self, text: str, stop: CancelFlag) -> Embedded:
        started = time.thread_time()
        try:
            vectors = self._encoder.encode([text], stop)
        except EncodingStopped as error:
            raise Interrupted("Interrupted for a more urgent text.") from error
        return Embedded(vectors[0], time.thread_time() - started)


_TIME_CONSTANT_S = 1.0  # of the exponential decay of past work
_SMOOTHING = 0.1  # weight of the newest piece of work in the moving average


class Utilization:
    """Exponentially decaying utilization; times are monotonic, in seconds."""

    def __init__(self, typical_cpu_s: float, workers: int = 1) -> None:
        self.typical_cpu_s = typical_cpu_s  #: moving average of the CPU time of a piece of work
        self._workers = workers
        self._share = 0.0
        self._at = 0.0

    def record(self, started: float, ended: float, cpu_s: float) -> None:
        """Add a piece of work."""
        elapsed = ended - started
        self.typical_cpu_s += _SMOOTHING * (cpu_s - self.typical_cpu_s)
        worked = 1 - math.exp(-elapsed / _TIME_CONSTANT_S)
        self._share = self.share(ended) + worked / self._workers
        self._at = ended

    def share(self, now: float) -> float:
        """Return the recent share of time spent working, 0 to 1."""
        return min(1.0, self._share * math.exp(-max(0.0, now - self._at) / _TIME_CONSTANT_S))


_INITIAL_CPU_S = 0.003  # for a short text, until measured


class _Request:
    """One text to embed; its future is cancelled when the caller stops waiting."""

    __slots__ = ("future", "owner", "priority", "stop", "text")

    def __init__(
        self, text: str, priority: Priority, owner: Hashable, future: asyncio.Future[Vector]
    ) -> None:
        self.text = text
        self.owner = owner
        self.priority = priority
        self.future = future
        self.stop = CancelFlag()

    @property
    def abandoned(self) -> bool:
        """Whether the caller no longer waits; the request may still be queued."""
        return self.future.done()

    def succeed(self, vector: Vector) -> None:
        """Return the vector to the caller."""
        if not self.abandoned:
            self.future.set_result(vector)

    def fail(self, error: Exception) -> None:
        """Raise an error in the caller."""
        if not self.abandoned:
            self.future.set_exception(error)
            self.future.exception()  # marked as retrieved: the caller may be cancelled first


class EmbeddingService:
    """Embeds texts off the event loop, most urgent first.

    Use as an async context manager: exiting waits for the running texts and cancels the others.
    It closes the backend.
    """

    def __init__(
        self,
        backend: EmbeddingBackend,
        manifest: Manifest,
        capacity: int,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self.manifest = manifest
        self._backend = backend
        self._clock = clock
        self._metrics = metrics
        self._queue: EmbeddingQueue[_Request] = EmbeddingQueue(
            capacity, lambda request: request.abandoned, lambda request: request.owner
        )
        self._wake = asyncio.Event()
        self._supervisor = supervisor
        self._workers: list[SupervisedLoop] = []
        self._running: set[_Request] = set()
        #: The backend's utilization, and the typical CPU time of a text.
        self.load = Utilization(_INITIAL_CPU_S, backend.concurrency)
        metrics.embedding_busy.set_function(lambda: self.utilization)

    async def __aenter__(self) -> Self:
        for number in range(self._backend.concurrency):
            name = f"embedding-{number}" if number else "embedding"
            self._workers.append(self._supervisor.start(name, self._run))
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            await worker.stop()
        while (request := self._queue.pop()) is not None:
            request.future.cancel()
        await self._backend.close()

    async def embed_query(self, text: str, priority: Priority, owner: Hashable = None) -> Vector:
        """Return the unit vector, float32 [dimension], of a draft or message.

        Cancelling the call drops the request if it is still queued.

        Args:
            owner: for fairness; within a priority, owners are served in turn.

        Raises:
            Overloaded: too many texts of this or a higher priority are queued.
        """
        return await self.embed(self.manifest.query_prefix + text, priority, owner)

    async def embed_passage(self, text: str) -> Vector:
        """Return the unit vector, float32 [dimension], of a text to be stored.

        Raises:
            Overloaded: too many texts are queued.
        """
        return await self.embed(self.manifest.passage_prefix + text, Priority.BACKGROUND)

    async def embed(self, text: str, priority: Priority, owner: Hashable = None) -> Vector:
        """Return the unit vector, float32 [dimension], of a text that has its prefix already.

        Cancelling, owners and errors are as for `embed_query`.
        """
        request = _Request(text, priority, owner, asyncio.get_running_loop().create_future())
        try:
            evicted = self._queue.push(request, priority)
        except Overloaded:
            self._metrics.dropped.labels("rejected").inc()
            raise
        self._reject_evicted(evicted)
        self._metrics.embedding_queue.set(len(self._queue))
        self._wake.set()
        if priority is Priority.ENTER:
            self._interrupt_eager()
        try:
            return await request.future
        except asyncio.CancelledError:
            if self._queue.discard(request):
                self._metrics.dropped.labels("superseded").inc()
            raise

    def raise_priority(self, text: str, priority: Priority) -> None:
        """Raise the priority of queued or running queries for `text` to at least `priority`."""
        prefixed = self.manifest.query_prefix + text
        requests = self._queue.promote(lambda request: request.text == prefixed, priority)
        if requests and priority is Priority.ENTER:
            self._interrupt_eager()
        requests += [request for request in self._running if request.text == prefixed]
        for request in requests:
            request.priority = min(request.priority, priority)

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""
        return self._backend.word_share(letters)

    @property
    def utilization(self) -> float:
        """The recent share of time that the backend was busy, 0 to 1."""
        return self.load.share(self._clock.monotonic())

    def health(self) -> dict[str, str]:
        """Return the outcomes of the backend's own health checks by name."""
        return self._backend.health()

    @property
    def same_for_query_and_passage(self) -> bool:
        """Whether a query's vector may be stored as the passage's."""
        return self.manifest.same_for_query_and_passage

    def _interrupt_eager(self) -> None:
        """Interrupt a speculative text, so that Enter does not wait for it."""
        if len(self._running) < self._backend.concurrency:
            return
        for request in self._running:
            interruptible = request.priority in (Priority.EAGER, Priority.REQUEST)
            if interruptible and not request.stop.is_set:
                request.stop.set()
                return

    async def _run(self, loop: SupervisedLoop) -> None:
        while True:
            loop.report_progress()
            request = self._queue.pop()
            self._metrics.embedding_queue.set(len(self._queue))
            if request is None:
                self._wake.clear()
                await self._wake.wait()
            elif not request.abandoned:
                self._running.add(request)
                try:
                    await self._encode(request)
                finally:
                    self._running.discard(request)

    async def _encode(self, request: _Request) -> None:
        started = self._clock.monotonic()
        try:
            embedded = await self._backend.embed(request.text, request.priority, request.stop)
        except asyncio.CancelledError:
            request.future.cancel()
            raise
        except Interrupted as error:
            self._metrics.dropped.labels("interrupted").inc()
            self._requeue(request, error)
            return
        except Exception as error:  # one bad text must not stop the worker
            request.fail(error)
            return
        ended = self._clock.monotonic()
        self.load.record(started, ended, embedded.cpu_s)
        self._metrics.stage_seconds.labels("embed").observe(ended - started)
        request.succeed(embedded.vector)

    def _requeue(self, request: _Request, error: Interrupted) -> None:
        """Queue an interrupted request again, if there is space."""
        if request.abandoned:
            return
        request.stop = CancelFlag()
        try:
            evicted = self._queue.push(request, request.priority)
        except Overloaded:
            request.fail(error)
        else:
            self._reject_evicted(evicted)

    def _reject_evicted(self, evicted: _Request | None) -> None:
        if evicted is not None:
            self._metrics.dropped.labels("evicted").inc()
            evicted.fail(Overloaded("Evicted from the embedding queue by more urgent texts."))
