"""Fair scheduling: after what is urgent, one slice of one handler in a turn of the event loop."""

import asyncio
from dataclasses import dataclass

import pytest

from fair_transport.fair_scheduling import (
    MAX_HOLD_S,
    AnonymousScheduler,
    FairScheduler,
    MeteredCoroutine,
    Precedence,
)
from transport_tests.waiting import eventually


@dataclass(eq=False)
class Handler:
    """Runs a number of slices and logs its name for each."""

    name: str
    scheduler: FairScheduler
    log: list[str]
    slices: int = 3

    def run_slice(self) -> None:
        self.log.append(self.name)
        self.slices -= 1
        if self.slices:
            self.scheduler.enqueue(self)


@dataclass
class FakeTime:
    """A time that the test advances."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def run_loop(iterations: int) -> None:
    """Run some iterations of the event loop."""
    for _ in range(iterations):
        await asyncio.sleep(0)


async def test_handlers_run_round_robin() -> None:
    """At most one per iteration of the loop, in the order in which they were queued."""
    log: list[str] = []
    scheduler = FairScheduler(asyncio.get_running_loop(), Precedence())
    handlers = [Handler(name, scheduler, log) for name in "abc"]
    for handler in (*handlers, *handlers):  # queued twice, but runs once
        scheduler.enqueue(handler)
    await run_loop(1)
    assert len(log) <= 1
    for iteration in range(12):
        before = len(log)
        await run_loop(1)
        assert len(log) - before <= 1, iteration
    assert "".join(log) == "abcabcabc"


async def test_connections_are_accepted_however_many_handlers_are_queued() -> None:
    """Every other slice is for accepting."""
    log: list[str] = []
    scheduler = FairScheduler(asyncio.get_running_loop(), Precedence())
    for number in range(100):
        scheduler.enqueue(Handler(f"connection {number}", scheduler, log, slices=1))
    scheduler.enqueue(Handler("acceptor", scheduler, log, slices=1), accepting=True)
    await run_loop(4)
    assert "acceptor" in log


async def test_a_cancelled_handler_does_not_run() -> None:
    """Its connection is closed."""
    log: list[str] = []
    scheduler = FairScheduler(asyncio.get_running_loop(), Precedence())
    handler = Handler("cancelled", scheduler, log)
    scheduler.enqueue(handler)
    scheduler.cancel(handler)
    await run_loop(3)
    assert not log


async def test_a_failing_handler_does_not_stop_the_others() -> None:
    """Its exception goes to the loop's exception handler."""
    loop = asyncio.get_running_loop()
    exceptions: list[object] = []
    loop.set_exception_handler(lambda _, context: exceptions.append(context["exception"]))
    log: list[str] = []
    scheduler = FairScheduler(loop, Precedence())

    class FailingHandler(Handler):
        def run_slice(self) -> None:
            raise ZeroDivisionError

    scheduler.enqueue(FailingHandler("failing", scheduler, log))
    scheduler.enqueue(Handler("other", scheduler, log, slices=1))
    await run_loop(4)
    assert log == ["other"]
    assert isinstance(exceptions[0], ZeroDivisionError)


@pytest.mark.parametrize("kind", [FairScheduler, AnonymousScheduler])
async def test_no_slice_runs_while_something_urgent_waits(kind: type[FairScheduler]) -> None:
    """All of them run once it is done, also while identified connections are active."""
    loop = asyncio.get_running_loop()
    precedence = Precedence(FakeTime())
    scheduler = kind(loop, precedence)
    if isinstance(scheduler, AnonymousScheduler):
        scheduler.note_identified_traffic()
    log: list[str] = []
    scheduler.enqueue(Handler("slice", scheduler, log))
    urgent = loop.create_future()
    precedence.hold_until(urgent)
    await run_loop(20)
    assert not log
    urgent.set_result(1)
    await eventually(lambda: len(log) == 3)


async def test_anonymous_connections_get_a_fifth_of_the_loop_while_others_are_active() -> None:
    """In addition to the initial burst."""
    time = FakeTime(100.0)
    scheduler = AnonymousScheduler(asyncio.get_running_loop(), Precedence(), time)
    charged = 0.0
    started = time.now
    while time.now < started + 60:
        scheduler.note_identified_traffic()
        if (wait := scheduler._wait_s()) > 0:
            time.now += wait
            continue
        scheduler.charge(0.01)
        charged += 0.01
        time.now += 0.01
    assert 0.2 * 60 <= charged <= 0.2 * 60 + 1.1


async def test_anonymous_connections_get_the_whole_loop_while_others_are_idle() -> None:
    """After a restart, a server lets everybody in as fast as it can."""
    time = FakeTime(100.0)
    scheduler = AnonymousScheduler(asyncio.get_running_loop(), Precedence(), time)
    for _ in range(1000):
        assert scheduler._wait_s() == 0.0
        scheduler.charge(0.01)
        time.now += 0.01
    scheduler.note_identified_traffic()
    assert 0.0 < scheduler._wait_s() <= 0.6  # the debt is limited


async def test_a_coroutine_is_metered_while_its_connection_is_anonymous() -> None:
    """Also in a task of its own."""
    scheduler = AnonymousScheduler(asyncio.get_running_loop(), Precedence(), FakeTime())
    charges: list[float] = []
    scheduler.charge = charges.append  # type: ignore[method-assign, assignment]
    identified: list[bool] = []

    async def work() -> None:
        await asyncio.sleep(0)
        identified.append(True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    await asyncio.create_task(MeteredCoroutine(work(), scheduler, lambda: not identified))
    assert len(charges) == 2


async def test_a_metered_coroutine_propagates_errors_and_cancellation() -> None:
    """Like any other coroutine."""
    scheduler = AnonymousScheduler(asyncio.get_running_loop(), Precedence())

    async def fail() -> None:
        raise KeyError

    task = asyncio.create_task(MeteredCoroutine(fail(), scheduler, lambda: True))
    with pytest.raises(KeyError):
        await task
    sleeping = asyncio.create_task(MeteredCoroutine(asyncio.sleep(3600), scheduler, lambda: True))
    await asyncio.sleep(0)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping


def urgent_work() -> "asyncio.Future[int]":
    """Something urgent that is not done yet."""
    return asyncio.get_running_loop().create_future()


async def test_others_are_held_back_until_what_is_urgent_is_done() -> None:
    """Or has failed."""
    precedence = Precedence(FakeTime())
    for fail in (False, True):
        assert not precedence.holds
        urgent = urgent_work()
        precedence.hold_until(urgent)
        assert precedence.holds
        if fail:
            urgent.cancel()
        else:
            urgent.set_result(1)
        await run_loop(1)
        assert not precedence.holds


async def test_nothing_holds_others_back_for_longer_than_is_allowed() -> None:
    """As when a database hangs."""
    time = FakeTime(100.0)
    precedence = Precedence(time)
    precedence.hold_until(urgent_work())
    time.now += MAX_HOLD_S * 0.99
    assert precedence.holds
    time.now += MAX_HOLD_S * 0.01
    assert not precedence.holds


async def test_what_overlaps_shares_one_hold() -> None:
    """A crowd that sends without a gap cannot hold others back for ever."""
    time = FakeTime(100.0)
    precedence = Precedence(time)
    waiting: list[asyncio.Future[int]] = []
    held = 0.0
    for _ in range(1000):
        waiting.append(urgent_work())
        precedence.hold_until(waiting[-1])
        if len(waiting) > 1:
            waiting.pop(0).set_result(1)
        await run_loop(1)
        held += 0.01 * precedence.holds
        time.now += 0.01
    assert held <= MAX_HOLD_S
    waiting.pop().set_result(1)
    await run_loop(1)
    precedence.hold_until(urgent_work())
    assert precedence.holds
