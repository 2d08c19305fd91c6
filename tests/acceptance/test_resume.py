"""Lost connections and resumed sessions, over real sockets."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from foremind_client import Client, Closed, Conversation, Identity
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.test_several_processes import forget_everything
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of

Event = dict[str, Any]


async def open_session(server: RunningServer, user: str = "ana") -> tuple[Client, Event]:
    """Return a connection with an open session, and its `session.opened`."""
    client = await server.connect()
    return client, await client.open_session("wren", user_id=user, name=user.title())


async def resume_session(server: RunningServer, session: Event, seq: int) -> tuple[Client, Event]:
    """Return another connection for the same session, and its `session.opened`."""
    client = await server.connect()
    greeting = await client.open_session(
        "wren", user_id=session["user"]["id"], name="Ana", resume=(session["session_id"], seq)
    )
    return client, greeting


async def events_until_done(client: Client) -> list[Event]:
    """Return every event up to the end of a reply."""
    events = []
    while True:
        event = await client.next_event()
        events.append(event)
        if event["type"] == "response.done":
            return events


async def test_missed_events_are_replayed_once_and_in_order(start: StartServer) -> None:
    """Sequence numbers continue from the last event that the client has received."""
    server = await start()
    client, session = await open_session(server)
    assert not session["resumed"]
    await client.send("Hello there, how are you today?")
    received = await events_until_done(client)
    await client.close()
    for last_seq in (received[0]["seq"], received[2]["seq"], received[-1]["seq"]):
        reconnected, greeting = await resume_session(server, session, last_seq)
        assert greeting["resumed"]
        assert (greeting["session_id"], greeting["seq"]) == (session["session_id"], last_seq)
        await reconnected.send_raw({"type": "nothing"})
        missed = [await reconnected.next_event()]
        while missed[-1]["seq"] <= received[-1]["seq"] or missed[-1]["type"] != "error":
            missed.append(await reconnected.next_event())
        expected = [event for event in received if event["seq"] > last_seq]
        assert missed[: len(expected)] == expected
        numbers = [event["seq"] for event in missed]
        assert numbers == list(range(last_seq + 1, last_seq + 1 + len(numbers)))
        received += missed[len(expected) :]
        await reconnected.close()


async def test_a_detached_session_keeps_no_chat_history_in_memory(
    start: StartServer,
) -> None:
    """Most are never resumed; a resumed session loads it again before Enter."""

    def cached_turns() -> int:
        (session,) = server.app.registry._all()
        return len(session._conversation.history.turns)

    server = await start()
    client, session = await open_session(server)
    await client.send("Hello there, how are you today?")
    events = await events_until_done(client)
    await eventually(lambda: cached_turns() == 2)
    await client.close()
    await eventually(lambda: cached_turns() == 0)
    reconnected, greeting = await resume_session(server, session, events[-1]["seq"])
    assert greeting["resumed"]
    await eventually(lambda: cached_turns() == 2)
    await reconnected.close()


async def test_a_reply_continues_while_its_session_is_detached(start: StartServer) -> None:
    """It is stored whole, and replayed whole when the session is resumed."""
    words = [f"word{number} " for number in range(300)]
    script = Script(reply=lambda _: words, hold_before=asyncio.Event(), hold_after=1)
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        client, session = await open_session(server)
        await client.send("Tell me a long story, please")
        first = await client.expect("response.output_text.delta")
        await client.close()
        (live_session,) = server.app.registry._all()
        await eventually(lambda: live_session.detached_at is not None)
        assert script.hold_before is not None
        script.hold_before.set()
        full_text = "".join(words)
        owner = owner_of(server.app.core)

        async def stored() -> bool:
            query = "SELECT content FROM turns WHERE speaker = 'companion'"
            return str(await owner.fetchval(query)).strip() == full_text.strip()

        async with asyncio.timeout(PATIENCE):
            while not await stored():
                await asyncio.sleep(0.05)
        reconnected, greeting = await resume_session(server, session, first["seq"])
        assert greeting["resumed"]
        events = await events_until_done(reconnected)
        deltas = [event["delta"] for event in events if event["type"].endswith("delta")]
        assert (first["delta"] + "".join(deltas)).strip() == full_text.strip()
        assert events[-1]["text"].strip() == full_text.strip()
        assert [event["seq"] for event in events] == list(
            range(first["seq"] + 1, first["seq"] + 1 + len(events))
        )


async def test_a_reply_of_a_session_that_is_not_resumed_is_cut_off_and_stored(
    start: StartServer,
) -> None:
    """After the grace period, with its text so far."""
    clock = ManualClock()
    script = Script(
        reply=lambda _: ["Once ", "upon ", "a ", "time"], hold_before=asyncio.Event(), hold_after=3
    )
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, reply_grace_s=20)
        client, _ = await open_session(server)
        await client.send("Tell me a long story, please")
        for _ in range(3):
            await client.expect("response.output_text.delta")
        await client.close()
        owner = owner_of(server.app.core)
        query = "SELECT status, content FROM turns WHERE speaker = 'companion'"
        (session,) = server.app.registry._all()
        await eventually(lambda: session.detached_at is not None)
        await clock.advance(19)
        assert await owner.fetchrow(query) is None
        await clock.advance(3)
        async with asyncio.timeout(PATIENCE):
            while (row := await owner.fetchrow(query)) is None:
                await asyncio.sleep(0.02)
        assert tuple(row) == ("cancelled", "Once upon a ")


async def test_turns_are_sent_where_missed_events_cannot_be_replayed(start: StartServer) -> None:
    """After too long, or for a sequence number that was never sent; the session is the same."""
    clock = ManualClock()
    server = await start(clock)
    client, session = await open_session(server)
    await client.send("My boat is called Petrel")
    await client.expect("response.done")
    ahead, greeting = await resume_session(server, session, 10_000)
    assert not greeting["resumed"]
    assert greeting["session_id"] == session["session_id"]
    assert greeting["turns"][0]["text"] == "My boat is called Petrel"
    await ahead.close()
    (live_session,) = server.app.registry._all()
    await eventually(lambda: live_session.detached_at is not None)
    await clock.advance(400)
    assert server.app.registry._all() == []
    late, greeting = await resume_session(server, session, 2)
    assert not greeting["resumed"]
    assert greeting["seq"] == 3
    assert [turn["speaker"] for turn in greeting["turns"]] == ["user", "companion"]
    await late.close()


async def test_a_newer_connection_takes_the_session_over(start: StartServer) -> None:
    """The older one is closed with 4409."""
    server = await start()
    client, session = await open_session(server)
    newer, greeting = await resume_session(server, session, session["seq"])
    assert greeting["resumed"]
    with pytest.raises(Closed) as caught:
        await client.next_event()
    assert caught.value.code == 4409
    await newer.send("Here I am again")
    assert (await newer.expect("response.done"))["status"] == "completed"
    assert len(server.app.registry._all()) == 1


async def test_an_older_connection_does_not_take_the_session_back(start: StartServer) -> None:
    """A client that lost it before it was heard has its session by another one by then."""
    server = await start()
    first, session = await open_session(server)
    await first.close()
    resume = (session["session_id"], session["seq"])
    late, current = await server.connect(), await server.connect()
    assert (await current.open_session("wren", user_id="ana", resume=resume))["resumed"]
    refused = await late.open_session("wren", user_id="ana", resume=resume)
    assert (refused["error"]["code"], refused["error"]["retryable"]) == ("interrupted", True)
    await current.send("I am still here")
    assert (await current.expect("response.done"))["status"] == "completed"


async def test_a_session_can_be_resumed_by_its_user_only(start: StartServer) -> None:
    """Knowing its id does not suffice."""
    server = await start()
    client, session = await open_session(server)
    thief = await server.connect()
    response = await thief.open_session(
        "wren", user_id="eve", name="Eve", resume=(session["session_id"], 0)
    )
    assert response["error"]["code"] == "not_allowed"
    with pytest.raises(Closed) as caught:
        await thief.next_event()
    assert caught.value.code == 4403
    await client.send("Still mine")
    assert (await client.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize("seq", [1, 10_000], ids=["whole", "gap"])
async def test_a_session_of_a_retired_companion_cannot_be_resumed(
    start: StartServer, seq: int
) -> None:
    """Nor opened; an open one ends, in every process, and its client is told why."""
    server, other = await start(), await start()
    client, session = await open_session(server)
    elsewhere, _ = await open_session(other)
    await server.app.core.stores.companions.retire("wren", datetime.now(UTC))
    for window in (client, elsewhere):
        with pytest.raises(Closed) as caught:
            await window.next_event()
        assert (caught.value.code, caught.value.reason) == (4403, "the companion was retired")
    reconnected, refused = await resume_session(server, session, seq)
    assert refused["error"]["code"] == "not_found"
    with pytest.raises(Closed) as caught:
        await reconnected.next_event()
    assert caught.value.code == 4403


async def test_a_draining_server_opens_no_sessions(start: StartServer) -> None:
    """Not even over existing connections; the error is retryable."""
    server = await start()
    early = await server.connect()
    await server.app.registry.drain(0.0)
    error = (await early.open_session("wren", user_id="ana", name="Ana"))["error"]
    assert (error["code"], error["retryable"]) == ("draining", True)
    with pytest.raises(Closed) as caught:
        await early.next_event()
    assert caught.value.code == 4503


async def test_windows_of_one_user_share_a_session_and_resume_independently(
    start: StartServer,
) -> None:
    """Opening a session without `resume` takes nothing over."""
    server = await start()
    first, first_opened = await open_session(server)
    second, second_opened = await open_session(server)
    ids = first_opened["session_id"], second_opened["session_id"]
    assert ids[0] != ids[1]
    assert ids[0].partition(".")[0] == ids[1].partition(".")[0]
    done = {}
    for client in (first, second):
        await client.send("Hello, it is me")
        done[client] = await client.expect("response.done")
        assert done[client]["status"] == "completed"
    await second.send("And I say more in this one")
    last = await second.expect("response.done")
    await first.close()
    reconnected, greeting = await resume_session(server, first_opened, done[first]["seq"])
    assert greeting["resumed"]
    await reconnected.send("Still here")
    assert (await reconnected.expect("response.done"))["status"] == "completed"
    await second.close()
    reconnected, greeting = await resume_session(server, second_opened, last["seq"])
    assert greeting["resumed"]


async def test_another_process_can_take_a_session_over(start: StartServer) -> None:
    """It sends the turns; the first connection is closed; a reply in flight is not lost."""
    script = Script(
        reply=lambda _: ["One ", "moment ", "please."], hold_before=asyncio.Event(), hold_after=1
    )
    async with scripted_model(script) as model:
        first, second = await start(llm_url=model.url), await start(llm_url=model.url)
        client, session = await open_session(first)
        await client.send("Where did we leave the map?")
        delta = await client.expect("response.output_text.delta")
        newer, greeting = await resume_session(second, session, delta["seq"])
        assert not greeting["resumed"]
        assert greeting["session_id"] == session["session_id"]
        assert greeting["seq"] == delta["seq"] + 1
        with pytest.raises(Closed) as caught:
            while True:
                await client.next_event()
        assert caught.value.code == 4409
        assert script.hold_before is not None
        script.hold_before.set()
        late = await newer.expect("turn.stored")
        assert late["turn"]["text"] == "One moment please."
        assert late["turn"]["speaker"] == "companion"


async def test_a_session_continues_after_a_restart(start: StartServer) -> None:
    """Its turns are there, and a message sent again is not stored twice."""
    first = await start()
    client, session = await open_session(first)
    message = await client.send("I left the map at the mill")
    done = await client.expect("response.done")
    await first.app.registry.drain(0.0)
    second = await start()
    newer, greeting = await resume_session(second, session, done["seq"])
    assert (greeting["resumed"], greeting["session_id"]) == (False, session["session_id"])
    assert greeting["turns"][0]["message_id"] == message
    await newer.send("I left the map at the mill", message)
    assert (await newer.expect("message.accepted"))["duplicate"]


async def test_erased_content_is_not_replayed(start: StartServer) -> None:
    """Events that contain it are dropped from the replay buffer; the turns are sent instead."""
    server = await start(pause_ms=50)
    client, session = await open_session(server)
    await client.send("My secret word is marzipan, remember it")
    await client.expect("memory.stored")
    await client.close()
    async with asyncio.timeout(PATIENCE):
        while any(session.detached_at is None for session in server.app.registry._all()):
            await asyncio.sleep(0.01)
    await forget_everything(server)
    (live_session,) = server.app.registry._all()
    await eventually(lambda: live_session._stream.missed(1) is None)
    reconnected, greeting = await resume_session(server, session, session["seq"])
    assert not greeting["resumed"]
    await reconnected.close()


async def test_a_conversation_that_was_taken_over_ends_for_its_client(
    start: StartServer,
) -> None:
    """The close code forbids reconnecting: its events end, and sending fails."""
    server = await start()
    async with Conversation(
        server.url, Identity("wren", user_id="ana", name="Ana")
    ) as conversation:
        events = conversation.events()
        session = await anext(events)
        await resume_session(server, session, session["seq"])
        with pytest.raises(Closed) as caught:
            async for _ in events:
                pass
        assert caught.value.code == 4409
        with pytest.raises(Closed):
            await conversation.say("Are you still there?")


@pytest.mark.parametrize("text", ["x" * 8_000, "\u65e5" * 8_000, "\n" * 3_999 + "x" * 4_000])
async def test_an_opened_session_fits_the_frame_that_it_announces(
    start: StartServer, text: str
) -> None:
    """With as many of the newest turns as fit; their text is whole."""
    async with scripted_model(Script(reply=lambda _: ["Aye."])) as model:
        server = await start(llm_url=model.url, layers_off=["memories"])
        client, _ = await open_session(server)
        for number in range(12):
            await client.send(f"{number} {text}"[:8_000])
            await client.expect("response.done")
        other = await server.connect()
        await other.send_raw(
            {"type": "session.open", "companion": "wren", "user": {"id": "ana", "name": "Ana"}}
        )
        frame = str(await other._socket.recv())
        opened = json.loads(frame)
        room = opened["limits"]["max_frame_bytes"] - len(frame.encode())
        left_out = json.dumps(text, ensure_ascii=False).encode()
        assert 0 <= room < len(left_out) + 400
        assert opened["turns"][-1]["text"].strip() == "Aye."
        said = [turn["text"] for turn in opened["turns"] if turn["speaker"] == "user"]
        first = 12 - len(said)
        assert said == [f"{number} {text}"[:8_000] for number in range(first, 12)]
