"""What is done ahead makes way for what is waited for."""

import asyncio

import pytest

from foremind.llm.slots import Preempted, SlotLease, SlotPool


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


class Worker:
    """Something done ahead that goes on until it is told to end."""

    def __init__(self, slots: SlotPool) -> None:
        self.end = asyncio.Event()
        self.seat: SlotLease | None = None
        self._slots = slots
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> str:
        try:
            async with self._slots.spare() as self.seat:
                await self.end.wait()
        except Preempted:
            return "displaced"
        return "done"


async def test_work_ahead_takes_turns_for_a_free_slot() -> None:
    """One after the other, in the order they came."""
    slots = SlotPool(1)
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
    slots = SlotPool(1)
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
    slots = SlotPool(2)
    first, second = Worker(slots), Worker(slots)
    await settle()
    with slots.taken():
        assert await second.task == "displaced"
        assert not first.task.done()
    first.end.set()
    assert await first.task == "done"


async def test_work_that_is_kept_is_waited_for_from_then_on() -> None:
    """Others make way for it, nothing displaces it, and it counts until it ends."""
    slots = SlotPool(2)
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
    slots = SlotPool(1)
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


class InBackground:
    """Something in the background that goes on until it is told to end, from the start if need be.

    Attributes:
        displaced: how often it had to make way.
    """

    def __init__(self, slots: SlotPool) -> None:
        self.end = asyncio.Event()
        self.seat: SlotLease | None = None
        self.displaced = 0
        self._slots = slots
        self.task = asyncio.create_task(self._work())

    @property
    def seated(self) -> bool:
        """True while it has a slot."""
        return self.seat is not None

    async def _work(self) -> None:
        since = asyncio.get_running_loop().time()
        while True:
            try:
                async with self._slots.background(since) as self.seat:
                    await self.end.wait()
                    return
            except Preempted:
                self.displaced += 1
            finally:
                self.seat = None


async def test_background_work_makes_way_for_a_reply_and_is_done_again() -> None:
    """Also for one that nobody waits for yet; the slot is its own once nobody wants it."""
    slots = SlotPool(1)
    notes = InBackground(slots)
    await settle()
    assert notes.seated
    with slots.taken():
        await settle()
        assert notes.displaced == 1 and not notes.seated
    await settle()
    assert notes.seated
    ahead = Worker(slots)
    await settle()
    assert notes.displaced == 2 and ahead.seat is not None
    ahead.end.set()
    await settle()
    assert notes.seated
    notes.end.set()
    await notes.task


async def test_background_work_takes_all_slots_that_nobody_wants_in_turn() -> None:
    """The newest goes first."""
    slots = SlotPool(2)
    works = [InBackground(slots) for _ in range(3)]
    await settle()
    assert [work.seated for work in works] == [True, True, False]
    with slots.taken():
        await settle()
        assert [work.displaced for work in works] == [0, 1, 0]
        works[0].end.set()
        await settle()
        assert [work.seated for work in works] == [False, False, True]
    await settle()
    assert [work.seated for work in works] == [False, True, True]
    for work in works:
        work.end.set()
        await work.task


async def test_one_slot_is_held_free_for_whoever_types() -> None:
    """For a while after each keystroke; of two slots the background keeps one."""
    one, two = SlotPool(1, typing_s=0.05), SlotPool(2, typing_s=0.05)
    held, goes_on = InBackground(one), InBackground(two)
    await settle()
    for slots in (one, two):
        slots.typed()
        slots.typed()
    await settle()
    assert held.displaced == 1 and not held.seated
    assert goes_on.displaced == 0
    held.end.set()
    await held.task  # it has its turn once nobody types
    goes_on.end.set()
    await goes_on.task


async def test_background_work_is_let_through_when_it_has_waited_too_long() -> None:
    """Then nothing displaces it, once in that time; it is no matter how busy the server is."""
    slots = SlotPool(1, patience_s=0.02)
    with slots.taken():
        first, second = InBackground(slots), InBackground(slots)
        while first.seat is None and second.seat is None:
            await asyncio.sleep(0)
        let, waits = (first, second) if first.seat is not None else (second, first)
        assert let.seat is not None and let.seat.kept and waits.seat is None
        with slots.taken():
            await settle()
            assert let.displaced == 0
        let.end.set()
        await let.task
        while waits.seat is None:
            await asyncio.sleep(0)
        waits.end.set()
        await waits.task


async def test_a_cancelled_wait_gives_its_turn_to_the_next() -> None:
    """And what is cancelled is not done again."""
    slots = SlotPool(1)
    with slots.taken():
        first, second = InBackground(slots), InBackground(slots)
        await settle()
    first.task.cancel()
    await settle()
    assert first.task.cancelled() and second.seat is not None
    second.task.cancel()
    await settle()
    assert second.task.cancelled() and second.displaced == 0


async def test_reading_again_takes_the_place_of_nothing() -> None:
    """It begins where nobody is and goes when anybody comes; one at a time."""
    slots = SlotPool(1)

    async def read_again() -> str:
        try:
            async with slots.returning():
                await asyncio.Event().wait()
        except Preempted:
            return "displaced"
        return "done"

    with slots.taken():
        assert await read_again() == "displaced"
    notes = InBackground(slots)
    await settle()
    assert await read_again() == "displaced"
    notes.end.set()
    await notes.task
    for comes in (InBackground, Worker):
        again = asyncio.create_task(read_again())
        await settle()
        assert await read_again() == "displaced"
        new = comes(slots)
        assert await again == "displaced"
        await settle()
        assert new.seat is not None
        new.end.set()
        await new.task
    again = asyncio.create_task(read_again())
    await settle()
    slots.typed()  # that is what it is for
    await settle()
    assert not again.done()
    with slots.taken():
        assert await again == "displaced"
