"""What is done ahead makes way for what is waited for."""

import asyncio

import pytest

from foremind.generation.slots import Displaced, Seat, Slots


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


class Worker:
    """Something done ahead that goes on until it is told to end."""

    def __init__(self, slots: Slots) -> None:
        self.end = asyncio.Event()
        self.seat: Seat | None = None
        self._slots = slots
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> str:
        try:
            async with self._slots.spare() as self.seat:
                await self.end.wait()
        except Displaced:
            return "displaced"
        return "done"


async def test_work_ahead_takes_turns_for_a_free_slot() -> None:
    """One after the other, in the order they came."""
    slots = Slots(1)
    first, second = Worker(slots), Worker(slots)
    await settle()
    assert first.seat is not None and second.seat is None
    first.end.set()
    assert await first.task == "done"
    await settle()
    assert second.seat is not None
    second.end.set()
    assert await second.task == "done"


async def test_what_is_waited_for_displaces_work_ahead_and_never_waits() -> None:
    """The slot is free for others only when it ends."""
    slots = Slots(1)
    ahead = Worker(slots)
    await settle()
    with slots.taken():
        assert await ahead.task == "displaced"
        later = Worker(slots)
        await settle()
        assert later.seat is None
    await settle()
    assert later.seat is not None
    later.end.set()
    assert await later.task == "done"


async def test_a_slot_for_each_displaces_nobody() -> None:
    """Only as many as do not fit go, the newest first."""
    slots = Slots(2)
    first, second = Worker(slots), Worker(slots)
    await settle()
    with slots.taken():
        assert await second.task == "displaced"
        assert not first.task.done()
    first.end.set()
    assert await first.task == "done"


async def test_work_that_is_kept_is_waited_for_from_then_on() -> None:
    """Others make way for it, nothing displaces it, and it counts until it ends."""
    slots = Slots(2)
    mine, other = Worker(slots), Worker(slots)
    await settle()
    assert mine.seat is not None
    mine.seat.keep()
    with slots.taken():
        assert await other.task == "displaced"
        await settle()
        assert not mine.task.done()
    mine.end.set()
    assert await mine.task == "done"


async def test_a_cancellation_from_outside_stays_one() -> None:
    """Only the displacement is taken back; who waited leaves no gap."""
    slots = Slots(1)
    first, second, third = Worker(slots), Worker(slots), Worker(slots)
    await settle()
    first.task.cancel()
    second.task.cancel()
    for each in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await each.task
    await settle()
    assert third.seat is not None
    third.end.set()
    assert await third.task == "done"
