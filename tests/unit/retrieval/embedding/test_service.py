"""The embedding service: a request cancelled at any moment does not affect the others."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foremind.app.configuration import load_settings
from foremind.domain.errors import Interrupted, Overloaded
from foremind.retrieval.embedding.service import (
    EmbeddingQueue,
    EmbeddingService,
    LocalBackend,
    Priority,
    Vector,
)
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind_eval.doubles.virtual_time import VirtualClock, VirtualLoop
from foremind_models import Manifest, find_model

CAPACITY = 2
ENCODE_S = 0.004
SETTINGS = load_settings()
MANIFEST: Manifest = find_model(SETTINGS.embedding_model, SETTINGS.models_dir)


class NumberEncoder:
    """Encodes each text as its own number; can be interrupted, and fails on bad texts."""

    def encode(self, texts: list[str], stop: Any) -> Vector:
        """Return the text's number, or fail."""
        if stop.is_set:
            raise Interrupted("Interrupted for a more urgent text.")
        number = int(texts[0])
        if number % 7 == 6:
            raise ValueError("a bad text")
        return np.array([[number]], np.float32)

    def word_share(self, letters: str) -> float | None:
        """Not used here."""
        return None if letters else 0.0


class Callers:
    """Callers that request vectors, raise their priority, or cancel."""

    def __init__(self, service: EmbeddingService) -> None:
        self._service = service
        self._requests: list[tuple[Priority, asyncio.Task[Vector]]] = []
        self._cancelled: set[int] = set()

    def request(self, priority: Priority) -> None:
        """Request the vector of the next number."""
        text = str(len(self._requests))
        task = asyncio.get_running_loop().create_task(
            self._service.embed_query(text, priority), name=text
        )
        self._requests.append((priority, task))

    def cancel(self, which: int) -> None:
        """Cancel a request; its caller notices in the next iteration of the loop."""
        if self._requests:
            number = -which % len(self._requests)  # mostly among the newest
            self._requests[number][1].cancel()
            self._cancelled.add(number)

    def raise_priority(self, which: int) -> None:
        """Press Enter on a requested text."""
        if self._requests:
            self._service.raise_priority(str(which % len(self._requests)), Priority.ENTER)

    async def check(self) -> None:
        """Check that every request got its own vector or a typed error, or was cancelled."""
        tasks = [task for _, task in self._requests]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, (result, (priority, _)) in enumerate(zip(results, self._requests, strict=True)):
            if isinstance(result, asyncio.CancelledError):
                assert number in self._cancelled
            elif isinstance(result, Overloaded | Interrupted):
                assert len(self._requests) > CAPACITY or priority is not Priority.ENTER
            elif isinstance(result, ValueError):
                assert number % 7 == 6
            else:
                assert not isinstance(result, BaseException), repr(result)
                assert result.tolist() == [number]


STEPS = st.one_of(
    st.tuples(st.just("request"), st.sampled_from(Priority)),
    st.tuples(st.just("request"), st.sampled_from(Priority)),
    st.tuples(st.just("cancel"), st.integers(0, 6)),
    st.tuples(st.just("raise_priority"), st.integers(0, 30)),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.0, ENCODE_S / 2, ENCODE_S])),
)


async def _run_steps(steps: list[tuple[str, Any]]) -> None:
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    metrics, clock = Metrics(), VirtualClock()
    async with (
        Supervisor(clock, metrics) as supervisor,
        EmbeddingService(
            LocalBackend(NumberEncoder()), MANIFEST, CAPACITY, clock, metrics, supervisor
        ) as service,
    ):
        callers = Callers(service)
        for name, value in steps:
            if name == "sleep":
                await asyncio.sleep(value)
            else:
                getattr(callers, name)(value)
        await callers.check()
        last = asyncio.create_task(service.embed_query("0", Priority.ENTER))
        assert (await last).tolist() == [0], "the service still works"
    assert not unhandled
    restarts = metrics.registry.get_sample_value(
        "foremind_task_restarts_total", {"task": "embedding"}
    )
    assert restarts == 0


def _run(work: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop(lambda: ENCODE_S)
    try:
        loop.run_until_complete(work)
        assert not asyncio.all_tasks(loop)
    finally:
        with contextlib.suppress(RuntimeError):
            loop.close()


@settings(max_examples=500, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_cancelling_at_any_moment_affects_no_other_request(steps: list[tuple[str, Any]]) -> None:
    """Between two loop iterations, while queued, while being embedded, after eviction."""
    _run(_run_steps(steps))


def test_an_evicted_request_may_have_been_cancelled_just_before() -> None:
    """In the same loop iteration, while the queue still contains the abandoned request."""
    full = [("request", Priority.ENTER), ("sleep", 0.0), *[("request", Priority.EAGER)] * CAPACITY]
    for which in range(CAPACITY + 1):
        enter = [("sleep", 0.0), ("request", Priority.ENTER), ("cancel", which), ("sleep", 0.0)]
        _run(_run_steps([*full, *enter]))


def test_abandoned_items_do_not_take_up_capacity() -> None:
    """A queue full of them accepts an item of any priority."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(CAPACITY, lambda item: item == "abandoned")
    for _ in range(CAPACITY):
        queue.push("abandoned", Priority.ENTER)
    assert queue.push("job", Priority.BACKGROUND) is None
    assert (queue.pop(), queue.pop()) == ("job", None)
