"""Requests of a session wait for their end: a bounded number, each once."""

import asyncio

import pytest

from foremind.domain.errors import Conflict, Overloaded
from foremind.gateway.flow_control import MAX_WAITING_MESSAGES
from foremind.gateway.turns.request_queue import RequestKey, RequestQueue

FIRST: RequestKey = ("message", "m0")
SECOND: RequestKey = ("message", "m1")


async def test_requests_beyond_the_bound_are_refused_until_one_ends() -> None:
    """Those that another connection answers count as well."""
    queue, ended = RequestQueue(), asyncio.Event()
    for number in range(MAX_WAITING_MESSAGES):
        queue.check_room("id")
        queue.start(("message", f"m{number}"), _until(ended), "answer")
    queue.follow(FIRST)
    with pytest.raises(Overloaded) as refused:
        queue.check_room("id")
    assert refused.value.param == "id"
    ended.set()
    await queue.settle()
    queue.check_room("id")
    assert not queue.busy


async def test_a_request_is_known_while_it_waits() -> None:
    """By its key; with another text it is another one."""
    queue, ended = RequestQueue(), asyncio.Event()
    assert not queue.contains(FIRST, "Hello.")
    queue.start(FIRST, _until(ended), "answer", "Hello.")
    assert queue.contains(FIRST, "Hello.")
    assert not queue.contains(("regenerate", FIRST[1]))
    with pytest.raises(Conflict):
        queue.contains(FIRST, "Goodbye.")
    ended.set()
    await queue.settle()
    assert not queue.contains(FIRST, "Goodbye.")


async def test_only_requests_answered_here_supersede_a_reply() -> None:
    """A reply need not stop for a message that another connection answers."""
    queue, ended = RequestQueue(), asyncio.Event()
    queue.start(FIRST, _until(ended), "answer")
    assert not queue.newer_waiting
    queue.follow(SECOND)
    queue.start(SECOND, _until(ended), "follow")
    assert not queue.newer_waiting
    assert queue.is_newest(SECOND)
    queue.unfollow(SECOND)
    assert queue.newer_waiting
    ended.set()
    await queue.settle()


async def test_a_request_that_ended_early_may_be_made_again() -> None:
    """The end of the first task is not that of the second request."""
    queue, first_ended, second_ended = RequestQueue(), asyncio.Event(), asyncio.Event()
    failing: set[asyncio.Task[None]] = set()

    async def fail() -> None:
        task = asyncio.current_task()
        assert task is not None
        failing.add(task)
        queue.end(FIRST, task)
        await first_ended.wait()

    queue.start(FIRST, fail(), "answer", "Hello.")
    await asyncio.sleep(0)
    assert not queue.busy
    queue.start(FIRST, _until(second_ended), "answer", "Hello.")
    first_ended.set()
    await asyncio.wait(failing)
    assert queue.contains(FIRST, "Hello.")
    second_ended.set()
    await queue.settle()


async def test_closing_waits_for_replies_but_not_for_those_of_others() -> None:
    """Replies are stopped, again and again: the next one may have begun meanwhile."""
    queue, stopped = RequestQueue(), asyncio.Event()
    queue.start(FIRST, _until(stopped), "answer")
    queue.follow(SECOND)
    queue.start(SECOND, _until(asyncio.Event()), "follow")
    await queue.close(stopped.set)
    assert not queue.busy


async def _until(event: asyncio.Event) -> None:
    await event.wait()
