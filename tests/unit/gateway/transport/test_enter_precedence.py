"""While a message waits to be stored, other work is held back, but not for long."""

import asyncio

from foremind.gateway.transport.fair_scheduling import MAX_HOLD_S, EnterPrecedence
from tests.unit.gateway.transport.test_fair_scheduling import FakeTime, run_loop


def message() -> "asyncio.Future[int]":
    """A message that is not stored yet."""
    return asyncio.get_running_loop().create_future()


async def test_others_are_held_back_until_the_message_is_stored() -> None:
    """Or has failed."""
    precedence = EnterPrecedence(FakeTime())
    for fail in (False, True):
        assert not precedence.holds
        stored = message()
        precedence.hold_until(stored)
        assert precedence.holds
        if fail:
            stored.cancel()
        else:
            stored.set_result(1)
        await run_loop(1)
        assert not precedence.holds


async def test_no_message_holds_others_back_for_longer_than_is_allowed() -> None:
    """As when the database hangs."""
    time = FakeTime(100.0)
    precedence = EnterPrecedence(time)
    precedence.hold_until(message())
    time.now += MAX_HOLD_S * 0.99
    assert precedence.holds
    time.now += MAX_HOLD_S * 0.01
    assert not precedence.holds


async def test_overlapping_messages_share_one_hold() -> None:
    """A crowd that sends without a gap cannot hold others back for ever."""
    time = FakeTime(100.0)
    precedence = EnterPrecedence(time)
    waiting: list[asyncio.Future[int]] = []
    held = 0.0
    for _ in range(1000):
        waiting.append(message())
        precedence.hold_until(waiting[-1])
        if len(waiting) > 1:
            waiting.pop(0).set_result(1)
        await run_loop(1)
        held += 0.01 * precedence.holds
        time.now += 0.01
    assert held <= MAX_HOLD_S
    waiting.pop().set_result(1)
    await run_loop(1)
    precedence.hold_until(message())
    assert precedence.holds
