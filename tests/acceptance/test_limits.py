"""Limits over real sockets: who is slowed, who is closed, and who is told what."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from foremind.client import Client, Closed
from foremind.testing.clock import ManualClock
from tests.conftest import StartServer, eventually

Result = TypeVar("Result")


async def closed(client: Client) -> tuple[int, list[str]]:
    """The code that a connection is closed with, and the errors before it."""
    errors = []
    with pytest.raises(Closed) as caught:
        while True:
            event = await client.next_event()
            if event["type"] == "error":
                errors.append(event["error"]["code"])
    return caught.value.code, errors


async def as_time_passes(clock: ManualClock, outcome: Coroutine[Any, Any, Result]) -> Result:
    """What comes of something, while the server's time goes on."""
    pending = asyncio.create_task(outcome)
    async with asyncio.timeout(20):
        while not pending.done():
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
    return pending.result()


async def test_a_flooder_is_slowed_then_told_then_closed(start: StartServer) -> None:
    """And nobody else notices; the limits were announced."""
    clock = ManualClock()
    server = await start(clock, drafts_per_s=10)
    other = await server.session("bo")
    flooder = await server.connect()
    opened = await flooder.open_session("wren", user_id="ana", name="Ana")
    assert opened["limits"]["drafts_per_s"] == 10
    for number in range(400):
        await flooder.draft(f"Draft number {number}")
    assert await as_time_passes(clock, closed(flooder)) == (4429, ["rate_limited"])
    await other.send("Hello")
    assert (await other.expect("message.accepted"))["type"] == "message.accepted"


async def test_who_was_closed_for_flooding_is_shut_out_for_a_while(start: StartServer) -> None:
    """Its user, on any connection, and is let wait before it is told; nobody else."""
    clock = ManualClock()
    server = await start(clock, drafts_per_s=10)
    flooder = await server.session("ana")
    for number in range(400):
        await flooder.draft(f"Draft number {number}")
    assert await as_time_passes(clock, closed(flooder)) == (4429, ["rate_limited"])
    assert await server.session("bo")
    again = await server.connect()
    opening = again.open_session("wren", user_id="ana", name="Ana")
    error = (await as_time_passes(clock, opening))["error"]
    assert (error["code"], error["retryable"]) == ("rate_limited", True)
    assert await closed(again) == (4429, [])
    await clock.advance(30.0)
    assert await server.session("ana")


async def test_a_user_has_only_so_many_sessions(start: StartServer) -> None:
    """One more is refused and may be tried again; one that lost its connection makes room."""
    server = await start(max_sessions_per_user=2)
    first, second = await server.session("ana"), await server.session("ana")
    third = await server.connect()
    refused = await third.open_session("wren", user_id="ana", name="Ana")
    assert (refused["error"]["code"], refused["error"]["retryable"]) == ("overloaded", True)
    assert await closed(third) == (4429, [])
    assert await server.session("bo")
    await first.close()
    await eventually(lambda: any(each.detached_at for each in server.app.registry._all()))
    assert await server.session("ana")
    await second.send("Still here")
    assert (await second.expect("response.done"))["status"] == "completed"


async def test_what_was_slowed_is_answered_all_the_same(start: StartServer) -> None:
    """A burst of messages with their ids again: nothing is lost, nothing is done twice."""
    server = await start(sends_per_s=20)
    client = await server.session()
    for _ in range(100):
        await client.send("Once and no more", "m1")
    accepted = await client.expect("message.accepted")
    assert accepted["id"] == "m1"
    assert (await client.expect("response.done"))["status"] == "completed"


async def test_what_is_poured_in_at_once_is_read_whole_and_in_order(start: StartServer) -> None:
    """Half a megabyte of frames, smaller and larger than what is taken in at a time."""
    server = await start()
    client = await server.session()
    for number in range(60):
        await client.draft("\N{GRINNING FACE}" * (number * 130))
    await client.send("And this at the end", "m1")
    kinds = set()
    while (event := await client.next_event())["type"] != "response.done":
        kinds.add(event["type"])
    assert "error" not in kinds
    assert event["status"] == "completed"
