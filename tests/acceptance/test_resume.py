"""A connection that is lost and found again, over real sockets."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from foremind.client import Client, Closed, Conversation, Identity
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, scripted_model
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of

Event = dict[str, Any]


async def opened(server: RunningServer, user: str = "ana") -> tuple[Client, Event]:
    """A connection with an open session, and what it was greeted with."""
    client = await server.connect()
    return client, await client.open_session("wren", user_id=user, name=user.title())


async def resumed(server: RunningServer, session: Event, seq: int) -> tuple[Client, Event]:
    """Another connection for the same session."""
    client = await server.connect()
    greeting = await client.open_session(
        "wren", user_id=session["user"]["id"], name="Ana", resume=(session["session_id"], seq)
    )
    return client, greeting


async def until_done(client: Client) -> list[Event]:
    """Every event up to the end of a reply."""
    events = []
    while True:
        event = await client.next_event()
        events.append(event)
        if event["type"] == "response.done":
            return events


async def test_what_was_missed_comes_once_and_in_order(start: StartServer) -> None:
    """Numbers go on by one from the last that the client has; nothing is said twice."""
    server = await start()
    client, session = await opened(server)
    assert not session["resumed"]
    await client.send("Hello there, how are you today?")
    seen = await until_done(client)
    await client.close()
    for since in (seen[0]["seq"], seen[2]["seq"], seen[-1]["seq"]):
        again, greeting = await resumed(server, session, since)
        assert greeting["resumed"]
        assert (greeting["session_id"], greeting["seq"]) == (session["session_id"], since)
        await again.send_raw({"type": "nothing"})
        missed = [await again.next_event()]
        while missed[-1]["seq"] <= seen[-1]["seq"] or missed[-1]["type"] != "error":
            missed.append(await again.next_event())
        expected = [each for each in seen if each["seq"] > since]
        assert missed[: len(expected)] == expected
        numbers = [each["seq"] for each in missed]
        assert numbers == list(range(since + 1, since + 1 + len(numbers)))
        seen += missed[len(expected) :]
        await again.close()


async def test_a_session_without_a_connection_holds_nothing_that_was_said(
    start: StartServer,
) -> None:
    """Many wait for somebody who never comes back; who does finds it read before Enter."""

    def held() -> int:
        (session,) = server.app.registry._all()
        return len(session._conversation._past.turns)

    server = await start()
    client, session = await opened(server)
    await client.send("Hello there, how are you today?")
    seen = await until_done(client)
    await eventually(lambda: held() == 2)
    await client.close()
    await eventually(lambda: held() == 0)
    again, greeting = await resumed(server, session, seen[-1]["seq"])
    assert greeting["resumed"]
    await eventually(lambda: held() == 2)
    await again.close()


async def test_a_reply_goes_on_while_nobody_listens(start: StartServer) -> None:
    """It is stored whole, and heard whole by who comes back."""
    words = [f"word{number} " for number in range(300)]
    script = Script(reply=lambda _: words, hold_before=asyncio.Event(), hold_after=1)
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        client, session = await opened(server)
        await client.send("Tell me a long story, please")
        first = await client.expect("response.output_text.delta")
        await client.close()
        (held,) = server.app.registry._all()
        await eventually(lambda: held.detached_at is not None)
        assert script.hold_before is not None
        script.hold_before.set()
        whole = "".join(words)
        owner = owner_of(server.app.core)

        async def stored() -> bool:
            said = "SELECT content FROM turns WHERE speaker = 'companion'"
            return str(await owner.fetchval(said)).strip() == whole.strip()

        async with asyncio.timeout(PATIENCE):
            while not await stored():
                await asyncio.sleep(0.05)
        again, greeting = await resumed(server, session, first["seq"])
        assert greeting["resumed"]
        events = await until_done(again)
        deltas = [event["delta"] for event in events if event["type"].endswith("delta")]
        assert (first["delta"] + "".join(deltas)).strip() == whole.strip()
        assert events[-1]["text"].strip() == whole.strip()
        assert [event["seq"] for event in events] == list(
            range(first["seq"] + 1, first["seq"] + 1 + len(events))
        )


async def test_a_reply_that_nobody_comes_back_for_is_cut_and_kept(start: StartServer) -> None:
    """After the grace time; what was said until then is stored."""
    clock = ManualClock()
    script = Script(
        reply=lambda _: ["Once ", "upon ", "a ", "time"], hold_before=asyncio.Event(), hold_after=3
    )
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, reply_grace_s=20)
        client, _ = await opened(server)
        await client.send("Tell me a long story, please")
        for _ in range(3):
            await client.expect("response.output_text.delta")
        await client.close()
        owner = owner_of(server.app.core)
        said = "SELECT status, content FROM turns WHERE speaker = 'companion'"
        (session,) = server.app.registry._all()
        await eventually(lambda: session.detached_at is not None)
        await clock.advance(19)
        assert await owner.fetchrow(said) is None
        await clock.advance(3)
        async with asyncio.timeout(PATIENCE):
            while (row := await owner.fetchrow(said)) is None:
                await asyncio.sleep(0.02)
        assert tuple(row) == ("cancelled", "Once upon a ")


async def test_where_the_gap_cannot_be_filled_the_turns_are_given(start: StartServer) -> None:
    """After too long, or with a number that was never sent; the session is the same."""
    clock = ManualClock()
    server = await start(clock)
    client, session = await opened(server)
    await client.send("My boat is called Petrel")
    await client.expect("response.done")
    ahead, greeting = await resumed(server, session, 10_000)
    assert not greeting["resumed"]
    assert greeting["session_id"] == session["session_id"]
    assert greeting["turns"][0]["text"] == "My boat is called Petrel"
    await ahead.close()
    (held,) = server.app.registry._all()
    await eventually(lambda: held.detached_at is not None)
    await clock.advance(400)
    assert server.app.registry._all() == []
    late, greeting = await resumed(server, session, 2)
    assert not greeting["resumed"]
    assert greeting["seq"] == 3
    assert [each["speaker"] for each in greeting["turns"]] == ["user", "companion"]
    await late.close()


async def test_the_newer_connection_takes_the_session(start: StartServer) -> None:
    """The older one is told so, and what it sent is answered to the newer."""
    server = await start()
    client, session = await opened(server)
    newer, greeting = await resumed(server, session, session["seq"])
    assert greeting["resumed"]
    with pytest.raises(Closed) as caught:
        await client.next_event()
    assert caught.value.code == 4409
    await newer.send("Here I am again")
    assert (await newer.expect("response.done"))["status"] == "completed"
    assert len(server.app.registry._all()) == 1


async def test_nobody_resumes_anothers_session(start: StartServer) -> None:
    """Knowing its id is not enough."""
    server = await start()
    client, session = await opened(server)
    thief = await server.connect()
    answer = await thief.open_session(
        "wren", user_id="eve", name="Eve", resume=(session["session_id"], 0)
    )
    assert answer["error"]["code"] == "not_allowed"
    with pytest.raises(Closed) as caught:
        await thief.next_event()
    assert caught.value.code == 4403
    await client.send("Still mine")
    assert (await client.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize("seq", [1, 10_000], ids=["whole", "gap"])
async def test_nobody_resumes_with_a_companion_that_is_retired(
    start: StartServer, seq: int
) -> None:
    """Nor opens a session anew; the one that is open may finish."""
    server = await start()
    client, session = await opened(server)
    await server.app.core.companions.retire("wren", datetime.now(UTC))
    again, refused = await resumed(server, session, seq)
    assert refused["error"]["code"] == "not_found"
    with pytest.raises(Closed) as caught:
        await again.next_event()
    assert caught.value.code == 4403
    await client.send("Farewell")
    assert (await client.expect("response.done"))["status"] == "completed"


async def test_a_server_that_drains_opens_nothing_more(start: StartServer) -> None:
    """Over a connection that was there before either; it says where to go: elsewhere."""
    server = await start()
    early = await server.connect()
    await server.app.registry.drain(0.0)
    error = (await early.open_session("wren", user_id="ana", name="Ana"))["error"]
    assert (error["code"], error["retryable"]) == ("draining", True)
    with pytest.raises(Closed) as caught:
        await early.next_event()
    assert caught.value.code == 4503


async def test_two_windows_go_on_side_by_side(start: StartServer) -> None:
    """Only who asks to resume takes a session over; each resumes its own."""
    server = await start()
    one, first = await opened(server)
    two, second = await opened(server)
    assert first["session_id"] == second["session_id"]
    done = {}
    for each in (one, two):
        await each.send("Hello, it is me")
        done[each] = await each.expect("response.done")
        assert done[each]["status"] == "completed"
    await two.send("And I say more in this one")
    last = await two.expect("response.done")
    await one.close()
    again, greeting = await resumed(server, first, done[one]["seq"])
    assert greeting["resumed"]
    await again.send("Still here")
    assert (await again.expect("response.done"))["status"] == "completed"
    await two.close()
    again, greeting = await resumed(server, second, last["seq"])
    assert greeting["resumed"]


async def test_another_process_takes_a_session_over(start: StartServer) -> None:
    """It gives the turns; the connection to the first is replaced; its reply is not lost."""
    script = Script(
        reply=lambda _: ["One ", "moment ", "please."], hold_before=asyncio.Event(), hold_after=1
    )
    async with scripted_model(script) as model:
        first, second = await start(llm_url=model.url), await start(llm_url=model.url)
        client, session = await opened(first)
        await client.send("Where did we leave the map?")
        heard = await client.expect("response.output_text.delta")
        newer, greeting = await resumed(second, session, heard["seq"])
        assert not greeting["resumed"]
        assert greeting["session_id"] == session["session_id"]
        assert greeting["seq"] == heard["seq"] + 1
        with pytest.raises(Closed) as caught:
            while True:
                await client.next_event()
        assert caught.value.code == 4409
        assert script.hold_before is not None
        script.hold_before.set()
        late = await newer.expect("turn.stored")
        assert late["turn"]["text"] == "One moment please."
        assert late["turn"]["speaker"] == "companion"


async def test_a_session_goes_on_after_a_restart(start: StartServer) -> None:
    """Everything that was stored is there, and a message sent again is not stored twice."""
    first = await start()
    client, session = await opened(first)
    message = await client.send("I left the map at the mill")
    done = await client.expect("response.done")
    await first.app.registry.drain(0.0)
    second = await start()
    newer, greeting = await resumed(second, session, done["seq"])
    assert (greeting["resumed"], greeting["session_id"]) == (False, session["session_id"])
    assert greeting["turns"][0]["message_id"] == message
    await newer.send("I left the map at the mill", message)
    assert (await newer.expect("message.accepted"))["duplicate"]


async def test_what_is_forgotten_is_not_replayed(start: StartServer) -> None:
    """The events that showed it are dropped: the turns are given instead."""
    server = await start(pause_ms=50)
    client, session = await opened(server)
    await client.send("My secret word is marzipan, remember it")
    stored = await client.expect("memory.stored")
    await client.close()
    core = server.app.core
    async with asyncio.timeout(PATIENCE):
        while any(each.detached_at is None for each in server.app.registry._all()):
            await asyncio.sleep(0.01)
    await owner_of(core).execute(
        "SELECT pg_notify('foremind_memory', $1)",
        f'{{"type":"forgotten","relationship_id":{session["relationship_id"]},'
        f'"memory_version":9,"layers_version":9,"erasures":1,"turn_ids":[{stored["memory_id"]}]}}',
    )
    (held,) = server.app.registry._all()
    await eventually(lambda: held._stream.missed(1) is None)
    again, greeting = await resumed(server, session, session["seq"])
    assert not greeting["resumed"]
    await again.close()


async def test_a_conversation_that_was_taken_over_ends_for_whoever_listens(
    start: StartServer,
) -> None:
    """The server said not to come back: the events end with that, and so does what is said."""
    server = await start()
    async with Conversation(server.url, Identity("wren", user_id="ana", name="Ana")) as mind:
        events = mind.events()
        session = await anext(events)
        await resumed(server, session, session["seq"])
        with pytest.raises(Closed) as caught:
            async for _ in events:
                pass
        assert caught.value.code == 4409
        with pytest.raises(Closed):
            await mind.say("Are you still there?")
