"""The embedding service: whoever gives up at whatever moment, nobody else is hurt."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foremind.domain.errors import Interrupted, Overloaded
from foremind.domain.settings import load_settings
from foremind.retrieval.embedding.manifest import Manifest
from foremind.retrieval.embedding.model_registry import find_model
from foremind.retrieval.embedding.priority_queue import EmbeddingQueue, Priority
from foremind.retrieval.embedding.service import EmbeddingService, Vector
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.testing.virtual_time import VirtualClock, VirtualLoop

CAPACITY = 2
TAKES_S = 0.004
SETTINGS = load_settings()
MANIFEST: Manifest = find_model(SETTINGS.embedding_model, SETTINGS.models_dir)


class Encoder:
    """Gives every text a vector of its own; breaks off as the real one does, or over a bad text."""

    def encode(self, texts: list[str], stop: Any) -> Vector:
        """Return the number that a text is, or fail."""
        if stop.run.terminate:
            raise Interrupted("Something more urgent came.")
        number = int(texts[0])
        if number % 7 == 6:
            raise ValueError("a bad text")
        return np.array([[number]], np.float32)

    def is_word(self, letters: str) -> bool:
        """Not asked here."""
        return bool(letters)


class Crowd:
    """Whoever asks for a vector, waits, presses on, or gives up."""

    def __init__(self, service: EmbeddingService) -> None:
        self._service = service
        self._asking: list[tuple[Priority, asyncio.Task[Vector]]] = []
        self._gave_up: set[int] = set()

    def ask(self, priority: Priority) -> None:
        """Ask for the vector of the next number."""
        text = str(len(self._asking))
        asking = asyncio.get_running_loop().create_task(
            self._service.embed_query(text, priority), name=text
        )
        self._asking.append((priority, asking))

    def give_up(self, which: int) -> None:
        """Wait no longer; who waits is told of it in the next turn of the loop."""
        if self._asking:
            number = -which % len(self._asking)  # mostly of the newest
            self._asking[number][1].cancel()
            self._gave_up.add(number)

    def hasten(self, which: int) -> None:
        """Press Enter on what was asked for."""
        if self._asking:
            self._service.hasten(str(which % len(self._asking)), Priority.ENTER)

    async def check(self) -> None:
        """Everybody gets the vector of the own text, or a typed error, or gave up."""
        asking = [task for _, task in self._asking]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for number, (answer, (priority, _)) in enumerate(zip(answers, self._asking, strict=True)):
            if isinstance(answer, asyncio.CancelledError):
                assert number in self._gave_up
            elif isinstance(answer, Overloaded | Interrupted):
                before = [each for each, _ in self._asking]
                assert len(before) > CAPACITY or priority is not Priority.ENTER
            elif isinstance(answer, ValueError):
                assert number % 7 == 6
            else:
                assert not isinstance(answer, BaseException), repr(answer)
                assert answer.tolist() == [number]


steps = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(Priority)),
    st.tuples(st.just("ask"), st.sampled_from(Priority)),
    st.tuples(st.just("give_up"), st.integers(0, 6)),
    st.tuples(st.just("hasten"), st.integers(0, 30)),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.0, TAKES_S / 2, TAKES_S])),
)


async def _live(happens: list[tuple[str, Any]]) -> None:
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    metrics, clock = Metrics(), VirtualClock()
    async with (
        Supervisor(clock, metrics) as supervisor,
        EmbeddingService(Encoder(), MANIFEST, CAPACITY, clock, metrics, supervisor) as service,
    ):
        crowd = Crowd(service)
        for name, value in happens:
            if name == "pass":
                await asyncio.sleep(value)
            else:
                getattr(crowd, name)(value)
        await crowd.check()
        last = asyncio.create_task(service.embed_query("0", Priority.ENTER))
        assert (await last).tolist() == [0], "the line goes on"
    assert not unhandled
    restarts = metrics.registry.get_sample_value(
        "foremind_task_restarts_total", {"task": "embedding"}
    )
    assert restarts == 0


def _run(work: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop(lambda: TAKES_S)
    try:
        loop.run_until_complete(work)
        assert not asyncio.all_tasks(loop)
    finally:
        with contextlib.suppress(RuntimeError):
            loop.close()


@settings(max_examples=500, deadline=None)
@given(st.lists(steps, min_size=5, max_size=40))
def test_giving_up_at_any_moment_hurts_nobody_else(happens: list[tuple[str, Any]]) -> None:
    """Between two turns of the loop, while it waits, while it is embedded, after it gave way."""
    _run(_live(happens))


def test_what_gives_way_for_enter_may_have_been_given_up_a_moment_before() -> None:
    """In the same turn of the loop: the line still holds what nobody waits for."""
    full = [("ask", Priority.ENTER), ("pass", 0.0), *[("ask", Priority.EAGER)] * CAPACITY]
    for which in range(CAPACITY + 1):
        enter = [("pass", 0.0), ("ask", Priority.ENTER), ("give_up", which), ("pass", 0.0)]
        _run(_live([*full, *enter]))


def test_what_was_given_up_takes_nobodys_place() -> None:
    """A line full of it has room for whoever comes, however little in a hurry."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(CAPACITY, lambda item: item == "given up")
    for _ in range(CAPACITY):
        queue.push("given up", Priority.ENTER)
    assert queue.push("job", Priority.BACKGROUND) is None
    assert (queue.pop(), queue.pop()) == ("job", None)
