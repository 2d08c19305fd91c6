"""Owners are admitted in turn, however much one of them asks for."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.errors import RateLimited
from foremind.runtime.fair_queue import ConnectionQueue, FairQueue
from foremind_eval.doubles.virtual_time import VirtualLoop

_STEPS = st.lists(
    st.tuples(st.sampled_from(["enqueue", "release", "withdraw"]), st.integers(0, 5)), max_size=300
)


@given(_STEPS, st.integers(1, 4), st.integers(1, 3))
def test_no_owner_starves(steps: list[tuple[str, int]], capacity: int, max_per_owner: int) -> None:
    """The limits hold, no ticket waits while it could be admitted, and between two admissions of
    one owner every other eligible owner is admitted."""
    queue: FairQueue[tuple[int, int]] = FairQueue(capacity, max_per_owner, 5)
    admitted: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    overtaken: Counter[int] = Counter()  # by owner: admissions of others while it could have been
    for number, (step, owner) in enumerate(steps):
        if step == "enqueue":
            own = [ticket for ticket in waiting if ticket[0] == owner]
            if len(own) >= 5:
                with pytest.raises(RateLimited):
                    queue.enqueue(owner, (owner, number))
            else:
                queue.enqueue(owner, (owner, number))
                waiting.append((owner, number))
        elif step == "release" and admitted:
            queue.release(admitted.pop(owner % len(admitted))[0])
        elif step == "withdraw" and waiting:
            ticket = waiting.pop(owner % len(waiting))
            assert queue.withdraw(ticket[0], ticket)
            overtaken[ticket[0]] = 0
        while (following := queue.admit_next()) is not None:
            ticket = following
            assert ticket == next(other for other in waiting if other[0] == ticket[0])  # its first
            waiting.remove(ticket)
            admitted.append(ticket)
            overtaken[ticket[0]] = 0
            counts = Counter(owner for owner, _ in admitted)
            for other in {owner for owner, _ in waiting} - {ticket[0]}:
                if counts[other] < max_per_owner:
                    overtaken[other] += 1
                    assert overtaken[other] <= 6
        counts = Counter(owner for owner, _ in admitted)
        assert len(admitted) <= capacity
        assert all(count <= max_per_owner for count in counts.values())
        if len(admitted) < capacity:
            assert all(counts[owner] >= max_per_owner for owner, _ in waiting)


def test_tickets_that_time_out_or_are_cancelled_take_no_place() -> None:
    """On a virtual clock: the other owners are admitted in turn."""

    async def crowd() -> None:
        queue = ConnectionQueue(2, 1, 20, timeout_s=10.0)
        done: list[str] = []

        async def use(owner: str, seconds: float) -> None:
            async with queue.turn(owner):
                await asyncio.sleep(seconds)
                done.append(owner)

        greedy = [asyncio.create_task(use("ana", 4.0)) for _ in range(20)]
        await asyncio.sleep(1)
        greedy[1].cancel()
        others = [asyncio.create_task(use(name, 1.0)) for name in ("bo", "cy")]
        await asyncio.gather(*others)
        assert done == ["bo", "cy"]
        outcomes = await asyncio.gather(*greedy, return_exceptions=True)
        assert done.count("ana") == 3  # the others timed out after ten seconds
        assert sum(isinstance(outcome, RateLimited) for outcome in outcomes) == 16
        await use("ana", 1.0)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(crowd())


def test_one_more_than_may_wait_is_refused() -> None:
    """Of one owner: others still may."""
    queue: FairQueue[int] = FairQueue(1, 1, 2)
    queue.enqueue("ana", 1)
    queue.enqueue("ana", 2)
    with pytest.raises(RateLimited):
        queue.enqueue("ana", 3)
    queue.enqueue("bo", 4)
    assert queue.admit_next() == 1
    queue.enqueue("ana", 5)
