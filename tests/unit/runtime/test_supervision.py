"""Background tasks are restarted with exponential backoff, and their health is reported."""

import ast
import asyncio
from contextlib import suppress

import pytest

from foremind.domain.errors import StorageUnavailable
from foremind.runtime import supervision
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import (
    SupervisedLoop,
    Supervisor,
    begin,
    is_owned,
    restart_delay_s,
    stop,
)
from foremind_eval.doubles.manual_clock import ManualClock
from tests.conftest import ROOT

PACKAGE = ROOT / "server" / "foremind"
# Separate programs: their tasks end with them.
OTHER_PROGRAMS = {"cli"}
TASK_CREATORS = {"create_task", "ensure_future", "TaskGroup"}


class SupervisedLoops:
    """A supervisor with a clock that the test controls."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.supervisor = Supervisor(self.clock, self.metrics)

    def value(self, name: str, task: str) -> float | None:
        """A metric of a task."""
        return self.metrics.registry.get_sample_value(name, {"task": task})


@pytest.mark.parametrize("failures", range(1, 40))
@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_delays_double_up_to_a_limit_with_jitter(failures: int, jitter: float) -> None:
    """So that many servers do not retry in lockstep."""
    max_delay_s = min(10.0, 0.5 * 2 ** (failures - 1))
    assert max_delay_s / 2 <= restart_delay_s(failures, jitter) <= max_delay_s


@pytest.mark.parametrize(
    "error", [StorageUnavailable("down"), ValueError("a bug"), asyncio.CancelledError(), None]
)
async def test_a_loop_is_restarted_however_it_ended(error: BaseException | None) -> None:
    """By a temporary failure, by a bug, by the cancellation of what it awaited, or by returning."""
    world = SupervisedLoops()
    starts = 0

    async def work(loop: SupervisedLoop) -> None:
        nonlocal starts
        starts += 1
        if starts < 4:
            if error is not None:
                raise error
            return
        loop.report_progress()
        await asyncio.Event().wait()

    async with world.supervisor as supervisor:
        supervisor.start("work", work)
        await world.clock.advance(0.0)
        assert starts == 1
        assert world.value("foremind_task_up", "work") == 0
        await world.clock.advance(0.5)
        assert starts == 2
        await world.clock.advance(60.0)
        assert starts == 4
        assert world.value("foremind_task_up", "work") == 1
        assert world.value("foremind_task_restarts_total", "work") == 3
        assert supervisor.problems() == {}


async def test_a_long_failure_is_reported_until_there_is_progress() -> None:
    """After a grace period, by name and reason."""
    world = SupervisedLoops()
    is_down = True

    async def work(loop: SupervisedLoop) -> None:
        if is_down:
            raise StorageUnavailable("down")
        loop.report_progress()
        await asyncio.Event().wait()

    async with world.supervisor as supervisor:
        supervisor.start("work", work)
        supervisor.start("other", _idle)
        await world.clock.advance(1.0)
        assert supervisor.problems() == {}
        await world.clock.advance(20.0)
        assert supervisor.problems().keys() == {"work"}
        assert supervisor.problems()["work"].code == "storage_unavailable"
        is_down = False
        await world.clock.advance(10.0)
        assert supervisor.problems() == {}


async def test_a_recovered_dependency_ends_every_delay() -> None:
    """Nobody waits up to ten seconds after the database is back."""
    world = SupervisedLoops()
    starts = 0

    async def work(_: SupervisedLoop) -> None:
        nonlocal starts
        starts += 1
        raise StorageUnavailable("down")

    async with world.supervisor as supervisor:
        supervisor.start("work", work)
        await world.clock.advance(60.0)
        before = starts
        supervisor.restart_now()
        await world.clock.advance(0.0)
        assert starts == before + 1


async def test_a_loop_that_hangs_is_reported() -> None:
    """Once it reports neither progress nor failure for longer than it may."""
    world = SupervisedLoops()
    async with world.supervisor as supervisor:
        supervisor.start("hangs", _idle, max_silence_s=30.0)
        supervisor.start("waits", _idle)
        await world.clock.advance(29.0)
        assert supervisor.problems() == {}
        await world.clock.advance(2.0)
        assert supervisor.problems() == {"hangs": ("no heartbeat for 31 s", None)}


async def test_a_periodic_job_survives_failures() -> None:
    """It runs at once, then at its interval."""
    world = SupervisedLoops()
    runs: list[float] = []

    async def job() -> None:
        runs.append(world.clock.monotonic())
        if len(runs) == 2:
            raise ValueError("a bug")

    async with world.supervisor as supervisor:
        supervisor.every("job", 100.0, job)
        await world.clock.advance(0.0)
        await world.clock.advance(1000.0)
    assert runs[:2] == [0.0, 100.0]
    assert 100.25 <= runs[2] <= 100.5
    since = [later - runs[2] for later in runs[2:]]
    assert since == pytest.approx([100.0 * number for number in range(9)])


async def test_stopping_ends_every_loop_even_while_it_is_delayed() -> None:
    """No task is left."""
    world = SupervisedLoops()

    async def fails(_: SupervisedLoop) -> None:
        raise ValueError("a bug")

    async with world.supervisor as supervisor:
        loops = [supervisor.start("fails", fails), supervisor.start("idle", _idle)]
        await world.clock.advance(0.0)
    assert all(loop.task.done() for loop in loops)


async def test_a_task_that_swallows_its_cancellation_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As libraries do that catch it while they clean up."""
    monkeypatch.setattr(supervision, "_CANCEL_AGAIN_S", 0.01)
    swallowed = 0

    async def go_on() -> None:
        nonlocal swallowed
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed += 1
        await asyncio.Event().wait()

    task = begin(go_on(), "swallows")
    await asyncio.sleep(0)
    await stop(task)
    assert swallowed == 1
    assert task.cancelled()


async def test_two_loops_of_one_name_are_an_error() -> None:
    """One would hide the other."""
    world = SupervisedLoops()
    async with world.supervisor as supervisor:
        supervisor.start("work", _idle)
        with pytest.raises(ValueError, match="work"):
            supervisor.start("work", _idle)


async def test_an_exception_of_a_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Even if nobody awaits the task."""

    async def fails() -> None:
        raise ValueError("a bug")

    task = begin(fails(), "fails")
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert is_owned(task)
    assert "task.broken" in caplog.text
    assert "ValueError" in caplog.text


def test_every_task_of_the_server_is_created_in_one_place() -> None:
    """So that each has an owner, and no exception is lost."""
    creators = []
    for path in sorted(PACKAGE.rglob("*.py")):
        package = path.relative_to(PACKAGE).parts[0]
        if package in OTHER_PROGRAMS or path.name == "supervision.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in TASK_CREATORS:
                creators.append((path.name, node.attr))
    # A task group awaits its children itself.
    assert set(creators) <= {
        ("context_builder.py", "TaskGroup"),
        ("context_builder.py", "create_task"),
    }


async def _idle(_: SupervisedLoop) -> None:
    await asyncio.Event().wait()
