"""Speculative and background work is preempted by foreground work."""

import asyncio

import pytest

from foremind.llm.prompt.layout import Message
from foremind.llm.slots import Preempted, SlotLease, SlotPool


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


class SpeculativeWorker:
    """Speculative work that runs until `end` is set."""

    def __init__(self, slots: SlotPool) -> None:
        self.end = asyncio.Event()
        self.lease: SlotLease | None = None
        self._slots = slots
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> str:
        try:
            async with self._slots.speculative() as self.lease:
                await self.end.wait()
        except Preempted:
            return "preempted"
        return "done"


async def test_speculative_work_queues_for_a_free_slot() -> None:
    """In the order of arrival."""
    slots = SlotPool(1)
    first, second = SpeculativeWorker(slots), SpeculativeWorker(slots)
    await settle()
    assert first.lease is not None and second.lease is None
    first.end.set()
    assert await first.task == "done"
    await settle()
    assert second.lease is not None
    second.end.set()
    assert await second.task == "done"


async def test_foreground_work_preempts_speculative_work_and_never_waits() -> None:
    """The slot is free for others only when it ends."""
    slots = SlotPool(1)
    speculative = SpeculativeWorker(slots)
    await settle()
    with slots.foreground():
        assert await speculative.task == "preempted"
        later = SpeculativeWorker(slots)
        await settle()
        assert later.lease is None
    await settle()
    assert later.lease is not None
    later.end.set()
    assert await later.task == "done"


async def test_only_excess_work_is_preempted() -> None:
    """The newest first."""
    slots = SlotPool(2)
    first, second = SpeculativeWorker(slots), SpeculativeWorker(slots)
    await settle()
    with slots.foreground():
        assert await second.task == "preempted"
        assert not first.task.done()
    first.end.set()
    assert await first.task == "done"


async def test_promoted_work_is_foreground_work_from_then_on() -> None:
    """It preempts other work, nothing preempts it, and it counts until it ends."""
    slots = SlotPool(2)
    mine, other = SpeculativeWorker(slots), SpeculativeWorker(slots)
    await settle()
    assert mine.lease is not None
    mine.lease.promote()
    with slots.foreground():
        assert await other.task == "preempted"
        await settle()
        assert not mine.task.done()
    mine.end.set()
    assert await mine.task == "done"


async def test_a_cancellation_from_outside_is_not_undone() -> None:
    """Only that of a preemption is; a cancelled waiter passes its slot on."""
    slots = SlotPool(1)
    first, second, third = (
        SpeculativeWorker(slots),
        SpeculativeWorker(slots),
        SpeculativeWorker(slots),
    )
    await settle()
    first.task.cancel()
    second.task.cancel()
    for worker in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await worker.task
    await settle()
    assert third.lease is not None
    third.end.set()
    assert await third.task == "done"


class BackgroundRequest:
    """Background work that runs until `end` is set, and starts over when it is preempted.

    Attributes:
        preempted: how often it was preempted.
    """

    def __init__(self, slots: SlotPool) -> None:
        self.end = asyncio.Event()
        self.lease: SlotLease | None = None
        self.preempted = 0
        self._slots = slots
        self.task = asyncio.create_task(self._work())

    @property
    def has_lease(self) -> bool:
        """Whether it has a slot."""
        return self.lease is not None

    async def _work(self) -> None:
        since = asyncio.get_running_loop().time()
        while True:
            try:
                async with self._slots.background(since) as self.lease:
                    await self.end.wait()
                    return
            except Preempted:
                self.preempted += 1
            finally:
                self.lease = None


async def test_background_work_is_preempted_by_replies_and_starts_over() -> None:
    """Also by speculative ones; it gets the slot back once it is free."""
    slots = SlotPool(1)
    notes = BackgroundRequest(slots)
    await settle()
    assert notes.has_lease
    with slots.foreground():
        await settle()
        assert notes.preempted == 1 and not notes.has_lease
    await settle()
    assert notes.has_lease
    speculative = SpeculativeWorker(slots)
    await settle()
    assert notes.preempted == 2 and speculative.lease is not None
    speculative.end.set()
    await settle()
    assert notes.has_lease
    notes.end.set()
    await notes.task


async def test_background_work_uses_all_free_slots() -> None:
    """The newest is preempted first."""
    slots = SlotPool(2)
    workers = [BackgroundRequest(slots) for _ in range(3)]
    await settle()
    assert [worker.has_lease for worker in workers] == [True, True, False]
    with slots.foreground():
        await settle()
        assert [worker.preempted for worker in workers] == [0, 1, 0]
        workers[0].end.set()
        await settle()
        assert [worker.has_lease for worker in workers] == [False, False, True]
    await settle()
    assert [worker.has_lease for worker in workers] == [False, True, True]
    for worker in workers:
        worker.end.set()
        await worker.task


async def test_one_slot_is_reserved_while_a_player_types() -> None:
    """For a while after each keystroke; of two slots background work keeps one."""
    one, two = SlotPool(1, typing_s=0.05), SlotPool(2, typing_s=0.05)
    held_back, running = BackgroundRequest(one), BackgroundRequest(two)
    await settle()
    for slots in (one, two):
        slots.record_keystroke()
        slots.record_keystroke()
    await settle()
    assert held_back.preempted == 1 and not held_back.has_lease
    assert running.preempted == 0
    held_back.end.set()
    await held_back.task  # it gets the slot once nobody types
    running.end.set()
    await running.task


async def test_overdue_background_work_is_let_through() -> None:
    """Then nothing preempts it, however busy the server is; one request per period."""
    slots = SlotPool(1, patience_s=0.02)
    with slots.foreground():
        first, second = BackgroundRequest(slots), BackgroundRequest(slots)
        while first.lease is None and second.lease is None:
            await asyncio.sleep(0)
        overdue, waiting = (first, second) if first.lease is not None else (second, first)
        assert overdue.lease is not None and overdue.lease.promoted and waiting.lease is None
        with slots.foreground():
            await settle()
            assert overdue.preempted == 0
        overdue.end.set()
        await overdue.task
        while waiting.lease is None:
            await asyncio.sleep(0)
        waiting.end.set()
        await waiting.task


async def test_a_cancelled_waiter_passes_its_slot_on() -> None:
    """And cancelled work does not start over."""
    slots = SlotPool(1)
    with slots.foreground():
        first, second = BackgroundRequest(slots), BackgroundRequest(slots)
        await settle()
    first.task.cancel()
    await settle()
    assert first.task.cancelled() and second.lease is not None
    second.task.cancel()
    await settle()
    assert second.task.cancelled() and second.preempted == 0


async def test_restoring_the_cache_preempts_nothing() -> None:
    """It starts on an idle server and is preempted by any other work; one at a time."""
    slots = SlotPool(1)

    async def restore() -> str:
        try:
            async with slots.restoring():
                await asyncio.Event().wait()
        except Preempted:
            return "preempted"
        return "done"

    with slots.foreground():
        assert await restore() == "preempted"
    notes = BackgroundRequest(slots)
    await settle()
    assert await restore() == "preempted"
    notes.end.set()
    await notes.task
    for worker_class in (BackgroundRequest, SpeculativeWorker):
        restoring = asyncio.create_task(restore())
        await settle()
        assert await restore() == "preempted"
        new = worker_class(slots)
        assert await restoring == "preempted"
        await settle()
        assert new.lease is not None
        new.end.set()
        await new.task
    restoring = asyncio.create_task(restore())
    await settle()
    slots.record_keystroke()  # the player's prompt is what is being restored
    await settle()
    assert not restoring.done()
    with slots.foreground():
        assert await restoring == "preempted"


async def test_a_prompt_is_cached_to_its_end_if_it_was_sent_itself() -> None:
    """A longer one begins with it, but a server's chat template ends each message."""
    slots = SlotPool(1)
    shorter: list[Message] = [{"role": "user", "content": "I won a marathon"}]
    longer: list[Message] = [{"role": "user", "content": "I won a marathons"}]
    slots.record_prompt(longer)
    assert slots.cached_chars(shorter) == len("I won a marathon") and not slots.caches(shorter)
    slots.record_prompt(shorter)
    assert slots.caches(shorter) and not slots.caches(longer)
