"""One slice of one connection in a turn of the loop."""

import asyncio
from dataclasses import dataclass

import pytest

from foremind.gateway.transport.fair_scheduling import (
    AnonymousScheduler,
    FairScheduler,
    MeteredCoroutine,
)


@dataclass(eq=False)
class Taker:
    """Takes a number of turns, and writes down when."""

    name: str
    line: FairScheduler
    taken: list[str]
    turns: int = 3

    def take_turn(self) -> None:
        self.taken.append(self.name)
        self.turns -= 1
        if self.turns:
            self.line.ask(self)


@dataclass
class Now:
    """A time that a test moves."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


async def pass_turns(number: int) -> None:
    """Let the loop run so often."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_whoever_has_much_takes_it_in_turns_with_the_others() -> None:
    """One in each turn of the loop, in the order of asking."""
    taken: list[str] = []
    line = FairScheduler(asyncio.get_running_loop())
    many = [Taker(name, line, taken) for name in "abc"]
    for each in (*many, *many):  # asking twice gives no second place
        line.ask(each)
    await pass_turns(1)
    assert len(taken) <= 1
    for turn in range(12):
        before = len(taken)
        await pass_turns(1)
        assert len(taken) - before <= 1, turn
    assert "".join(taken) == "abcabcabc"


async def test_people_come_in_however_many_wait_inside() -> None:
    """Every other turn is theirs."""
    taken: list[str] = []
    line = FairScheduler(asyncio.get_running_loop())
    for number in range(100):
        line.ask(Taker(f"inside {number}", line, taken, turns=1))
    line.ask(Taker("door", line, taken, turns=1), at_the_door=True)
    await pass_turns(4)
    assert "door" in taken


async def test_who_has_left_takes_no_turn() -> None:
    """Its connection is gone."""
    taken: list[str] = []
    line = FairScheduler(asyncio.get_running_loop())
    gone = Taker("gone", line, taken)
    line.ask(gone)
    line.leave(gone)
    await pass_turns(3)
    assert not taken


async def test_a_taker_that_fails_stops_nobody() -> None:
    """The others have their turns."""
    loop = asyncio.get_running_loop()
    failed: list[object] = []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    taken: list[str] = []
    line = FairScheduler(loop)

    class Failing(Taker):
        def take_turn(self) -> None:
            raise ZeroDivisionError

    line.ask(Failing("failing", line, taken))
    line.ask(Taker("other", line, taken, turns=1))
    await pass_turns(4)
    assert taken == ["other"]
    assert isinstance(failed[0], ZeroDivisionError)


def waits(line: AnonymousScheduler) -> float:
    """How long its next turn is away."""
    return line._wait_s()


async def test_strangers_have_a_fifth_of_the_loop_while_others_want_it() -> None:
    """After what a crowd that enters together may take at once."""
    now = Now(100.0)
    line = AnonymousScheduler(asyncio.get_running_loop(), now)
    spent = 0.0
    began = now.at
    while now.at < began + 60:
        line.somebody_known()
        if (wait := waits(line)) > 0:
            now.at += wait
            continue
        line.spend(0.01)
        spent += 0.01
        now.at += 0.01
    assert 0.2 * 60 <= spent <= 0.2 * 60 + 1.1


async def test_strangers_have_all_of_it_while_nobody_else_wants_it() -> None:
    """A server that was restarted lets everybody in as fast as it can."""
    now = Now(100.0)
    line = AnonymousScheduler(asyncio.get_running_loop(), now)
    for _ in range(1000):
        assert waits(line) == 0.0
        line.spend(0.01)
        now.at += 0.01
    line.somebody_known()
    assert 0.0 < waits(line) <= 0.6  # what was taken before is not held against those who come now


async def test_what_a_stranger_causes_is_timed_until_it_is_known() -> None:
    """In whatever task it is done."""
    line = AnonymousScheduler(asyncio.get_running_loop(), Now())
    spent: list[float] = []
    line.spend = spent.append  # type: ignore[method-assign, assignment]
    known: list[bool] = []

    async def work() -> None:
        await asyncio.sleep(0)
        known.append(True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    await asyncio.create_task(MeteredCoroutine(work(), line, lambda: not known))
    assert len(spent) == 2


async def test_what_is_timed_can_be_cancelled_and_fails_as_it_would() -> None:
    """It is a coroutine like any other."""
    line = AnonymousScheduler(asyncio.get_running_loop())

    async def fail() -> None:
        raise KeyError

    task = asyncio.create_task(MeteredCoroutine(fail(), line, lambda: True))
    with pytest.raises(KeyError):
        await task
    forever = asyncio.create_task(MeteredCoroutine(asyncio.sleep(3600), line, lambda: True))
    await asyncio.sleep(0)
    forever.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forever
