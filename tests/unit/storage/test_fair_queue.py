"""Who goes next: everybody in turn, whatever anybody asks for."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.errors import RateLimited
from foremind.storage.fair_queue import ConnectionQueue, FairQueue
from foremind.testing.virtual_time import VirtualLoop

_STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "leave", "give up"]), st.integers(0, 5)), max_size=300
)


@given(_STEPS, st.integers(1, 4), st.integers(1, 3))
def test_nobody_is_passed_over(steps: list[tuple[str, int]], places: int, each: int) -> None:
    """There is never more inside than may be, nobody waits beside a free place, and between two of
    one owner's everybody else who may has one."""
    line: FairQueue[tuple[int, int]] = FairQueue(places, each, 5)
    inside: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    passed: Counter[int] = Counter()  # by owner: those let in since it began to wait
    for number, (step, owner) in enumerate(steps):
        if step == "ask":
            mine = [ticket for ticket in waiting if ticket[0] == owner]
            if len(mine) >= 5:
                with pytest.raises(RateLimited):
                    line.ask(owner, (owner, number))
            else:
                line.ask(owner, (owner, number))
                waiting.append((owner, number))
        elif step == "leave" and inside:
            line.left(inside.pop(owner % len(inside))[0])
        elif step == "give up" and waiting:
            ticket = waiting.pop(owner % len(waiting))
            assert line.gave_up(ticket[0], ticket)
            passed[ticket[0]] = 0
        while (let_in := line.next()) is not None:
            who = let_in[0]
            assert let_in == next(one for one in waiting if one[0] == who)  # its first
            waiting.remove(let_in)
            inside.append(let_in)
            passed[who] = 0
            taken = Counter(one[0] for one in inside)
            for other in {one[0] for one in waiting} - {who}:
                if taken[other] < each:
                    passed[other] += 1
                    assert passed[other] <= 6
        counts = Counter(one[0] for one in inside)
        assert len(inside) <= places
        assert all(count <= each for count in counts.values())
        if len(inside) < places:
            assert all(counts[one[0]] >= each for one in waiting)


def test_who_waits_too_long_or_gives_up_takes_nobodys_place() -> None:
    """On a clock that the test moves: everybody else comes in, in turn."""

    async def crowd() -> None:
        line = ConnectionQueue(2, 1, 20, patience_s=10.0)
        done: list[str] = []

        async def use(owner: str, seconds: float) -> None:
            async with line.turn(owner):
                await asyncio.sleep(seconds)
                done.append(owner)

        greedy = [asyncio.create_task(use("ana", 4.0)) for _ in range(20)]
        await asyncio.sleep(1)
        greedy[1].cancel()
        others = [asyncio.create_task(use(name, 1.0)) for name in ("bo", "cy")]
        await asyncio.gather(*others)
        assert done == ["bo", "cy"]
        outcomes = await asyncio.gather(*greedy, return_exceptions=True)
        assert done.count("ana") == 3  # the others waited for ten seconds
        assert sum(isinstance(outcome, RateLimited) for outcome in outcomes) == 16
        await use("ana", 1.0)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(crowd())
