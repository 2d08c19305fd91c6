"""Several gateways on one database: each relationship has one owner, which clients find."""

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest

from foremind.cluster.ring import relationship_key
from foremind_client import Client, Closed, Conversation, Identity
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import RunningServer, StartServer, eventually, owner_of

URL = "ws://127.0.0.1:{port}/v1/ws"


async def gateways(start: StartServer, count: int, **settings: Any) -> list[RunningServer]:
    """Start gateways that know each other."""
    servers = [
        await start(gateway_name=f"gateway-{number}", public_url=URL, **settings)
        for number in range(count)
    ]
    await eventually(lambda: all(len(ring_of(server)) == count for server in servers))
    return servers


def ring_of(server: RunningServer) -> set[str]:
    """Return the names of the gateways that a gateway knows."""
    return set(server.app.registry.membership.ring.urls)


def user_of(server: RunningServer) -> str:
    """Return a user whose relationship with Wren a gateway owns."""
    membership = server.app.registry.membership
    return next(
        user
        for user in (f"player-{number}" for number in itertools.count())
        if membership.owner_elsewhere(relationship_key(user, "wren")) is None
    )


async def opening(
    server: RunningServer, user: str, **options: Any
) -> tuple[Client, dict[str, Any]]:
    """Connect and ask for a session; return the first event."""
    client = await server.connect()
    return client, await client.open_session("wren", user_id=user, **options)


async def test_whichever_gateway_is_asked_the_owner_serves(start: StartServer) -> None:
    """It tells a client that follows where to go, and serves all others itself."""
    first, second = await gateways(start, 2)
    user = user_of(second)
    client, event = await opening(first, user, follow=True)
    assert (event["type"], event["url"], event["seq"]) == ("session.redirect", second.url, 0)
    with pytest.raises(Closed) as caught:
        await client.next_event()
    assert caught.value.code == 4421
    for options in ({}, {"follow": True, "redirected": True}):
        _, event = await opening(first, user, **options)
        assert event["type"] == "session.opened"
    _, event = await opening(second, user, follow=True)
    assert event["type"] == "session.opened"


async def test_a_conversation_ends_at_the_owner(start: StartServer) -> None:
    """Wherever its first URL leads."""
    servers = await gateways(start, 3)
    for owner in servers:
        user = user_of(owner)
        for door in servers:
            async with Conversation(door.url, Identity("wren", user_id=user)) as wren:
                assert (await wren.say("Hello"))["status"] == "completed"
                users = [session.user for session in owner.app.registry.snapshots()]
                assert user in users


async def test_only_who_may_open_a_session_is_told_where(start: StartServer) -> None:
    """The names of gateways are nothing for strangers."""
    secret = "a secret of at least thirty-two bytes"
    first, _ = await gateways(start, 2, auth_secret=secret)
    client = await first.connect()
    event = await client.open_session("wren", token="wrong", follow=True)
    assert event["error"]["code"] == "not_authenticated"


async def test_a_session_is_resumed_without_a_gap_where_it_is(start: StartServer) -> None:
    """Also after its relationship was given another owner."""
    first = await start(gateway_name="gateway-0", public_url=URL)
    await eventually(lambda: len(ring_of(first)) == 1)
    opened = {}
    for number in range(8):
        client, opened[f"user-{number}"] = await opening(first, f"user-{number}", follow=True)
        await client.close()
    second = await start(gateway_name="gateway-1", public_url=URL)
    await eventually(lambda: len(ring_of(first)) == 2)
    membership = first.app.registry.membership
    moved = next(
        user
        for user in opened
        if membership.owner_elsewhere(relationship_key(user, "wren")) is not None
    )
    resume = opened[moved]["session_id"], opened[moved]["seq"]
    _, event = await opening(first, moved, follow=True, resume=resume)
    assert event["resumed"]
    _, event = await opening(first, moved, follow=True, resume=(resume[0], 999))
    assert (event["type"], event["url"]) == ("session.redirect", second.url)


async def test_draining_hands_sessions_over(start: StartServer) -> None:
    """A reply in progress is finished; then the client goes on at the other gateway by itself."""
    hold = asyncio.Event()
    script = Script(reply=lambda _: ["One ", "moment."], hold_before=hold, hold_after=1)
    async with scripted_model(script) as model:
        first, second = await gateways(start, 2, llm_url=model.url, drain_s=60.0)
        user, events = user_of(first), []
        async with Conversation(second.url, Identity("wren", user_id=user)) as wren:

            async def listen() -> None:
                async for event in wren.events():
                    events.append(event)

            listening = asyncio.create_task(listen())
            reply = wren.say("Where did we leave the map?")
            await eventually(lambda: any("delta" in event for event in events))
            draining = asyncio.create_task(first.app.registry.drain(60.0))
            await eventually(lambda: ring_of(second) == {"gateway-1"})
            assert not draining.done()
            hold.set()
            assert (await reply)["text"] == "One moment."
            await draining
            assert (await wren.say("And the compass?"))["status"] == "completed"
            listening.cancel()
    kinds = Counter(event["type"] for event in events)
    assert (kinds["session.redirect"], kinds["session.opened"], kinds["response.done"]) == (1, 2, 2)
    assert kinds["memory.stored"] >= 1
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(1, len(numbers) + 1))
    stored = await owner_of(second.app.core).fetch("SELECT message_id FROM turns")
    assert len(stored) == 4


async def test_a_draining_gateway_still_says_where_to_go(start: StartServer) -> None:
    """Clients that do not follow are closed with 4503 as ever."""
    first, second = await gateways(start, 2)
    await first.app.registry.drain(0.0)
    _, event = await opening(first, user_of(second), follow=True)
    assert (event["type"], event["url"]) == ("session.redirect", second.url)
    _, event = await opening(first, "somebody")
    assert event["error"]["code"] == "draining"


async def test_a_gateway_that_ended_owns_nothing(start: StartServer) -> None:
    """Its lock ended with its connection."""
    first, second = await gateways(start, 2)
    loop = next(loop for loop in first.app.core.runtime.supervisor.loops if loop.name == "presence")
    await loop.stop()  # as if its process were killed
    await eventually(lambda: ring_of(second) == {"gateway-1"})


async def test_idle_sessions_move_to_a_gateway_that_joins(start: StartServer) -> None:
    """Those that it owns, once they are idle; their clients follow, and nothing is lost."""
    clock = ManualClock()
    first = await start(clock, gateway_name="gateway-0", public_url=URL)
    clients, sessions = {}, {}
    for user in (f"user-{number}" for number in range(8)):
        clients[user], opened = await opening(first, user, follow=True)
        sessions[user] = opened["session_id"]
    second = await start(clock, gateway_name="gateway-1", public_url=URL)
    typing, *idle = (user for user in clients if owner_name(second, user) == "gateway-1")
    assert 0 < len(idle) < len(clients) - 1
    kept = user_of(second)  # its client could not reach the other gateway
    clients[kept], _ = await opening(first, kept, follow=True, redirected=True)

    async def pass_a_second() -> None:
        await clients[typing].draft("I am typing")
        await clock.advance(1.0)
        await asyncio.sleep(0.01)

    while len(ring_of(first)) < 2:  # it reads the database meanwhile
        await pass_a_second()
    for _ in range(16):
        await pass_a_second()
    for user in idle:
        told = await clients[user].expect("session.redirect")
        assert told["url"] == second.url
        resume = sessions[user], told["seq"]
        _, opened = await opening(second, user, follow=True, resume=resume)
        assert (opened["resumed"], opened["session_id"]) == (False, sessions[user])
        assert opened["seq"] == told["seq"] + 1
    connected = {session.user for session in first.app.registry.snapshots() if session.connected}
    assert connected == set(clients) - set(idle)


def owner_name(server: RunningServer, user: str) -> str:
    """Return the name of the gateway that owns a user's relationship with Wren."""
    owner = server.app.registry.membership.ring.owner(relationship_key(user, "wren"))
    assert owner is not None
    return owner.name
