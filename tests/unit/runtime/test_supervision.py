"""What runs in the background is started again, with growing pauses, and told of."""

import ast
import asyncio
from pathlib import Path

import pytest

from foremind.domain.errors import StorageUnavailable
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor, begin, is_owned, pause_s
from foremind.testing.manual_clock import ManualClock

PACKAGE = Path(__file__).parents[3] / "server" / "foremind"
# Programs of their own: what they begin ends with them.
ELSEWHERE = {"cli", "client", "evaluation", "testing"}
BEGINS = {"create_task", "ensure_future", "TaskGroup"}


class World:
    """A supervisor on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.supervisor = Supervisor(self.clock, self.metrics)

    def value(self, name: str, task: str) -> float | None:
        """A metric of a task."""
        return self.metrics.registry.get_sample_value(name, {"task": task})


@pytest.mark.parametrize("failures", range(1, 40))
@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999])
def test_pauses_double_up_to_a_bound_and_are_spread(failures: int, draw: float) -> None:
    """So that a crowd of servers does not come back in step."""
    whole = min(10.0, 0.5 * 2 ** (failures - 1))
    assert whole / 2 <= pause_s(failures, draw) <= whole


@pytest.mark.parametrize(
    "error", [StorageUnavailable("gone"), ValueError("a defect"), asyncio.CancelledError(), None]
)
async def test_a_loop_comes_back_however_it_ended(error: BaseException | None) -> None:
    """Failed for a while, broken by a defect, cancelled by what it waited for, or just ended."""
    world = World()
    begun = 0

    async def work(loop: SupervisedLoop) -> None:
        nonlocal begun
        begun += 1
        if begun < 4:
            if error is not None:
                raise error
            return
        loop.well()
        await asyncio.Event().wait()

    async with world.supervisor as supervisor:
        supervisor.start("work", work)
        await world.clock.advance(0.0)
        assert begun == 1
        assert world.value("foremind_task_up", "work") == 0
        await world.clock.advance(0.5)
        assert begun == 2
        await world.clock.advance(60.0)
        assert begun == 4
        assert world.value("foremind_task_up", "work") == 1
        assert world.value("foremind_task_restarts_total", "work") == 3
        assert supervisor.troubles() == {}


async def test_what_fails_for_long_is_trouble_until_it_gets_somewhere() -> None:
    """A moment is tolerated; then its name and reason are shown."""
    world = World()
    gone = True

    async def work(loop: SupervisedLoop) -> None:
        if gone:
            raise StorageUnavailable("gone")
        loop.well()
        await asyncio.Event().wait()

    async with world.supervisor as supervisor:
        supervisor.start("work", work)
        supervisor.start("other", _idle)
        await world.clock.advance(1.0)
        assert supervisor.troubles() == {}
        await world.clock.advance(20.0)
        assert supervisor.troubles().keys() == {"work"}
        assert supervisor.troubles()["work"].startswith("storage_unavailable for ")
        gone = False
        await world.clock.advance(10.0)
        assert supervisor.troubles() == {}


async def test_what_it_waited_for_ends_every_pause() -> None:
    """Nobody waits ten seconds longer than the database was away."""
    world = World()
    begun = 0

    async def work(_: SupervisedLoop) -> None:
        nonlocal begun
        begun += 1
        raise StorageUnavailable("gone")

    async with world.supervisor as supervisor:
        supervisor.start("work", work)
        await world.clock.advance(60.0)
        before = begun
        supervisor.try_again()
        await world.clock.advance(0.0)
        assert begun == before + 1


async def test_a_loop_that_hangs_is_trouble() -> None:
    """Neither failing nor getting anywhere, for longer than it may be silent."""
    world = World()
    async with world.supervisor as supervisor:
        supervisor.start("hangs", _idle, silent_s=30.0)
        supervisor.start("waits", _idle)
        await world.clock.advance(29.0)
        assert supervisor.troubles() == {}
        await world.clock.advance(2.0)
        assert supervisor.troubles() == {"hangs": "no sign of life for 31 s"}


async def test_a_duty_comes_round_and_survives_its_failures() -> None:
    """At once, then as often as was said."""
    world = World()
    done: list[float] = []

    async def duty() -> None:
        done.append(world.clock.monotonic())
        if len(done) == 2:
            raise ValueError("a defect")

    async with world.supervisor as supervisor:
        supervisor.every("duty", 100.0, duty)
        await world.clock.advance(0.0)
        await world.clock.advance(1000.0)
    assert done[:2] == [0.0, 100.0]
    assert 100.25 <= done[2] <= 100.5
    since = [later - done[2] for later in done[2:]]
    assert since == pytest.approx([100.0 * number for number in range(9)])


async def test_stopping_ends_every_loop_even_in_its_pause() -> None:
    """And nothing is left behind."""
    world = World()

    async def fails(_: SupervisedLoop) -> None:
        raise ValueError("a defect")

    async with world.supervisor as supervisor:
        loops = [supervisor.start("fails", fails), supervisor.start("idle", _idle)]
        await world.clock.advance(0.0)
    assert all(loop.task.done() for loop in loops)


async def test_two_loops_of_one_name_are_a_defect() -> None:
    """One would hide the other."""
    world = World()
    async with world.supervisor as supervisor:
        supervisor.start("work", _idle)
        with pytest.raises(ValueError, match="work"):
            supervisor.start("work", _idle)


async def test_what_a_task_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Though nobody may ever ask for it."""

    async def fails() -> None:
        raise ValueError("a defect")

    task = begin(fails(), "fails")
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert is_owned(task)
    assert "task.broken" in caplog.text
    assert "ValueError" in caplog.text


def test_every_task_of_the_server_is_begun_in_one_place() -> None:
    """So each has an owner, and how it ends is never lost."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        if room in ELSEWHERE or path.name == "supervision.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in BEGINS:
                found.append((path.name, node.attr))
    # A task group awaits its children itself.
    assert set(found) <= {
        ("context_builder.py", "TaskGroup"),
        ("context_builder.py", "create_task"),
    }


async def _idle(_: SupervisedLoop) -> None:
    await asyncio.Event().wait()
