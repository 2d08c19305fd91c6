"""Limits over real sockets: slowed and closed connections, and their errors."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import pytest
from websockets.asyncio.client import connect as open_socket

from foremind_client import Client, Closed
from foremind_eval.doubles.manual_clock import ManualClock
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    eventually_async,
    owner_of,
)
from tests.unit.auth.test_access_tokens import SECRET, token

Result = TypeVar("Result")


async def closed(client: Client) -> tuple[int, list[str]]:
    """Return the code that a connection is closed with, and the errors before it."""
    errors = []
    with pytest.raises(Closed) as caught:
        while True:
            event = await client.next_event()
            if event["type"] == "error":
                errors.append(event["error"]["code"])
    return caught.value.code, errors


async def while_time_passes(clock: ManualClock, outcome: Coroutine[Any, Any, Result]) -> Result:
    """Await an outcome while the server's clock advances."""
    pending = asyncio.create_task(outcome)
    async with asyncio.timeout(PATIENCE):
        while not pending.done():
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
    return pending.result()


async def test_a_flooding_client_is_slowed_then_warned_then_closed(start: StartServer) -> None:
    """Others are not affected; the limits are announced in `session.opened`."""
    clock = ManualClock()
    server = await start(clock, drafts_per_s=10)
    other = await server.session("bo")
    flooder = await server.connect()
    opened = await flooder.open_session("wren", user_id="ana", name="Ana")
    assert opened["limits"]["drafts_per_s"] == 10
    for number in range(400):
        await flooder.draft(f"Draft number {number}")
    assert await while_time_passes(clock, closed(flooder)) == (4429, ["rate_limited"])
    await other.send("Hello")
    assert (await other.expect("message.accepted"))["type"] == "message.accepted"


async def test_a_user_who_was_closed_for_flooding_is_locked_out_for_a_while(
    start: StartServer,
) -> None:
    """On any connection, and the refusal is delayed; other users are not affected."""
    clock = ManualClock()
    server = await start(clock, drafts_per_s=10)
    flooder = await server.session("ana")
    for number in range(400):
        await flooder.draft(f"Draft number {number}")
    assert await while_time_passes(clock, closed(flooder)) == (4429, ["rate_limited"])
    assert await server.session("bo")
    reconnected = await server.connect()
    opening = reconnected.open_session("wren", user_id="ana", name="Ana")
    error = (await while_time_passes(clock, opening))["error"]
    assert (error["code"], error["retryable"]) == ("rate_limited", True)
    assert await closed(reconnected) == (4429, [])
    await clock.advance(30.0)
    assert await server.session("ana")


async def test_the_number_of_sessions_of_a_user_is_limited(start: StartServer) -> None:
    """One more is refused with a retryable error; a detached session is evicted for a new one."""
    server = await start(max_sessions_per_user=2)
    first, second = await server.session("ana"), await server.session("ana")
    third = await server.connect()
    refused = await third.open_session("wren", user_id="ana", name="Ana")
    assert (refused["error"]["code"], refused["error"]["retryable"]) == ("overloaded", True)
    assert await closed(third) == (4429, [])
    assert await server.session("bo")
    await first.close()
    await eventually(lambda: any(session.detached_at for session in server.app.registry._all()))
    assert await server.session("ana")
    await second.send("Still here")
    assert (await second.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize("limit", ["max_sessions", "max_sessions_per_user"])
async def test_concurrent_opens_do_not_exceed_the_session_limits(
    start: StartServer, limit: str
) -> None:
    """The others are refused, and can open a session once one is detached."""
    server = await start(**{limit: 5})
    clients = [await server.connect() for _ in range(30)]
    responses = await asyncio.gather(
        *(client.open_session("wren", user_id="ana", name="Ana") for client in clients)
    )
    opened = [
        client
        for client, response in zip(clients, responses, strict=True)
        if response["type"] == "session.opened"
    ]
    error_codes = {
        response["error"]["code"] for response in responses if response["type"] == "error"
    }
    assert (len(opened), error_codes) == (5, {"overloaded"})
    await opened[0].close()
    await eventually(lambda: any(session.detached_at for session in server.app.registry._all()))
    assert await server.session("ana")


async def test_messages_slowed_by_a_limit_are_still_answered(start: StartServer) -> None:
    """A burst of repetitions of one message is answered once."""
    server = await start(sends_per_s=20)
    client = await server.session()
    for _ in range(100):
        await client.send("Once and no more", "m1")
    accepted = await client.expect("message.accepted")
    assert accepted["id"] == "m1"
    assert (await client.expect("response.done"))["status"] == "completed"


async def test_a_burst_of_frames_is_read_whole_and_in_order(start: StartServer) -> None:
    """Half a megabyte of frames, smaller and larger than a read."""
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


@asynccontextmanager
async def relayed(server: RunningServer, address: str, count: int) -> AsyncIterator[list[Client]]:
    """Open connections that come from one address, according to a proxy."""
    async with AsyncExitStack() as stack:
        yield [
            Client(
                await stack.enter_async_context(
                    open_socket(
                        server.url, compression=None, proxy=None,
                        additional_headers={"X-Forwarded-For": address},
                    )
                )
            )
            for _ in range(count)
        ]  # fmt: skip


async def test_tokens_of_scope_host_have_no_connection_limit_per_address(
    start: StartServer,
) -> None:
    """Tokens of players from the same address do."""
    server = await start(auth_secret=SECRET, max_connections_per_address=2)
    scopes = ["chat", "memory:read", "host"]
    async with relayed(server, "203.0.113.7", 8) as hosts:
        for number, host in enumerate(hosts):
            opened = await host.open_session("wren", token=token(sub=f"p{number}", scopes=scopes))
            assert opened["type"] == "session.opened"
        async with relayed(server, "203.0.113.7", 3) as players:
            answers = [await player.open_session("wren", token=token()) for player in players]
            assert [answer["type"] for answer in answers] == [*["session.opened"] * 2, "error"]
            assert answers[-1]["error"]["code"] == "overloaded"
            assert await closed(players[-1]) == (4429, [])
            async with relayed(server, "203.0.113.8", 1) as (other,):
                assert (await other.open_session("wren", token=token()))["type"] == "session.opened"
        await hosts[0].send("Is the harbour open?")
        assert (await hosts[0].expect("response.done"))["status"] == "completed"


async def test_a_silent_connection_over_the_address_limit_is_closed_early(
    start: StartServer,
) -> None:
    """Before the usual ten seconds: it can only be let in with a token of scope `host`."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET, max_connections_per_address=2)
    async with relayed(server, "203.0.113.7", 3) as connections:
        await clock.advance(4)
        assert await closed(connections[2]) == (4429, [])
        valid = token(exp=clock.now().timestamp() + 60)
        for connection in connections[:2]:
            assert (await connection.open_session("wren", token=valid))["type"] == "session.opened"


async def test_configured_host_addresses_have_no_connection_limit(start: StartServer) -> None:
    """For servers in open mode, where there are no tokens."""
    server = await start(max_connections_per_address=1, host_addresses=("203.0.113.0/24",))
    async with relayed(server, "203.0.113.7", 4) as hosts:
        for number, host in enumerate(hosts):
            opened = await host.open_session("wren", user_id=f"p{number}", name="P")
            assert opened["type"] == "session.opened"
    async with relayed(server, "198.51.100.1", 2) as players:
        assert (await players[0].open_session("wren", user_id="p"))["type"] == "session.opened"
        assert (await players[1].open_session("wren", user_id="p"))["type"] == "error"


async def test_time_spent_by_the_server_does_not_count_towards_the_open_timeout(
    start: StartServer,
) -> None:
    """A session whose opening waits for the database is opened late, not refused."""
    clock = ManualClock()
    server = await start(clock=clock, open_timeout_s=10.0)
    client = await server.connect()
    await clock.advance(6.0)
    owner = owner_of(server.app.core)
    async with owner.acquire() as raw, raw.transaction():
        await raw.execute("LOCK TABLE relationships IN ACCESS EXCLUSIVE MODE")
        opening = asyncio.create_task(client.open_session("wren", user_id="ana", name="Ana"))
        await eventually_async(owner.is_waited_for)
        await clock.advance(9.0)
    assert (await opening)["type"] == "session.opened"


async def test_a_failed_opening_does_not_extend_the_open_timeout(start: StartServer) -> None:
    """The client may try again until the timeout."""
    clock = ManualClock()
    server = await start(clock=clock, open_timeout_s=10.0)
    client = await server.connect()
    await clock.advance(6.0)
    response = await client.open_session("wren", user_id="..")
    assert (response["type"], response["error"]["param"]) == ("error", "user.id")
    ended = asyncio.create_task(closed(client))
    await clock.advance(3.9)
    assert not ended.done()
    await clock.advance(0.2)
    assert (await ended)[0] == 4401
