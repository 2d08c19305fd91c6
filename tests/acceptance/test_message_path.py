"""The path of a message over a real socket: draft, pause, prefetch, Enter, reply, ingest."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.settings.settings import CompanionSettings
from foremind.gateway.flow_control import MAX_WAITING_MESSAGES
from foremind_client import Client, Closed
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

PROMISE = "I promise I'll help you with your garden tomorrow"


def metric_value(server: RunningServer, name: str, **labels: str) -> float:
    """Return the current value of a metric."""
    return server.app.core.runtime.metrics.registry.get_sample_value(name, labels) or 0.0


async def type_text(client: Client, server: RunningServer, text: str) -> None:
    """Type a text letter by letter, and wait until the server has processed it."""
    for end in range(1, len(text) + 1):
        await client.draft(text[:end])
    await wait_until_processed(client)


async def wait_until_processed(client: Client) -> None:
    """Wait until all messages sent were processed: an unknown one gets its error in order."""
    await client.send_raw({"type": "sync", "event_id": "sync"})
    while (await client.expect("error"))["error"]["event_id"] != "sync":
        pass


async def send_and_wait(client: Client, text: str, message_id: str | None = None) -> dict[str, Any]:
    """Send a message; return the events up to `memory.stored` by type."""
    await client.send(text, message_id)
    return await client.expect_all(
        "message.accepted", "response.created", "response.done", "memory.stored"
    )


async def pause_context(client: Client) -> dict[str, Any]:
    """Return the `context.ready` of a pause; one for the settled draft may come before it."""
    while (ready := await client.expect("context.ready"))["trigger"] != "pause":
        pass
    return ready


async def assert_no_events(client: Client, server: RunningServer) -> None:
    """Assert that no event is pending."""
    await client.send_raw({"type": "sync", "event_id": "sync"})
    assert (await client.next_event())["error"]["event_id"] == "sync"


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Abort a raw connection, discarding what was not yet written."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_a_draft_is_prefetched_sent_answered_remembered_and_recalled(
    start: StartServer,
) -> None:
    """The context is ready before Enter, Enter is a hit, and a day later the memory is recalled."""
    clock = ManualClock()
    server = await start(clock)
    client = await server.session()
    await type_text(client, server, PROMISE)
    await clock.advance(0.5)
    ready = await pause_context(client)
    assert (ready["draft"], ready["memories"]) == (PROMISE, [])
    seen = await send_and_wait(client, PROMISE, "m1")
    accepted, done, stored = (
        seen[name] for name in ("message.accepted", "response.done", "memory.stored")
    )
    assert (accepted["id"], accepted["context"], accepted["duplicate"]) == ("m1", "hit", False)
    assert (done["status"], done["response_id"]) == (
        "completed",
        seen["response.created"]["response_id"],
    )
    assert done["text"]
    assert stored["message_id"] == "m1"
    assert (stored["stored"], stored["memory_type"]) == (True, "conversation")
    assert stored["significance"] == pytest.approx(0.65)
    await clock.leap(86_400)
    other = await server.session()
    await type_text(other, server, "What did I promise about the garden?")
    await clock.advance(0.5)
    (memory,) = (await pause_context(other))["memories"]
    assert (memory["content"], memory["age"]) == (PROMISE, "yesterday")
    assert memory["id"] == stored["memory_id"]
    done = (await send_and_wait(other, "What did I promise about the garden?"))["response.done"]
    assert PROMISE in done["text"]


async def test_insignificant_messages_are_scored_but_not_stored(start: StartServer) -> None:
    """The event says so."""
    client = await (await start()).session()
    stored = (await send_and_wait(client, "hmm"))["memory.stored"]
    assert (stored["stored"], stored["significance"], stored["memory_id"]) == (False, 0.0, None)


async def test_further_typing_postpones_a_prefetch_and_clearing_cancels_it(
    start: StartServer,
) -> None:
    """Without eager prefetching, only idle time of 500 ms counts; speculation stores nothing."""
    clock = ManualClock()
    server = await start(clock, eager=False)
    client = await server.session()
    await type_text(client, server, "The har")
    await clock.advance(0.4)
    await type_text(client, server, "The harbour")
    await clock.advance(0.4)
    await assert_no_events(client, server)
    await client.clear_draft()
    await wait_until_processed(client)
    await clock.advance(5)
    await assert_no_events(client, server)
    for wordless in ("...", "  ", "?!"):
        await client.draft(wordless)
    await wait_until_processed(client)
    await clock.advance(5)
    await assert_no_events(client, server)
    assert metric_value(server, "foremind_prepared_total", trigger="pause") == 0
    assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0


async def test_a_settled_draft_is_prefetched_before_the_pause(start: StartServer) -> None:
    """Enter 200 ms after the last letter is a hit; the pause gets its own event."""
    clock = ManualClock()
    server = await start(clock)
    client = await server.session()
    await type_text(client, server, "Do you know the harbour")
    await clock.advance(0.15)
    ready = await client.expect("context.ready")
    assert (ready["draft"], ready["trigger"]) == ("Do you know the harbour", "eager")
    await clock.advance(0.35)
    assert (await client.expect("context.ready"))["trigger"] == "pause"
    await type_text(client, server, "Do you know the harbour master")
    await clock.advance(0.2)
    await client.send("Do you know the harbour master")
    assert (await client.expect("message.accepted"))["context"] == "hit"
    assert metric_value(server, "foremind_prepared_total", trigger="eager") == 2
    assert metric_value(server, "foremind_prepared_total", trigger="pause") == 0


async def test_a_companion_may_disable_eager_prefetching(start: StartServer) -> None:
    """Its setting overrides the server's."""
    clock = ManualClock()
    server = await start(clock)
    await server.app.core.stores.companions.put(
        CompanionFile("calm", "Calm", "Calm.", settings=CompanionSettings(eager=False))
    )
    client = await server.session(companion="calm")
    await type_text(client, server, "Do you know the harbour")
    await clock.advance(0.4)
    await assert_no_events(client, server)
    await clock.advance(0.1)
    assert (await client.expect("context.ready"))["trigger"] == "pause"


async def test_the_sent_text_counts_not_the_last_draft(start: StartServer) -> None:
    """A context for another text is not used; one that differs only in white space is."""
    clock = ManualClock()
    server = await start(clock)
    client = await server.session()
    await type_text(client, server, "Do you know Ana")
    await clock.advance(0.5)
    await pause_context(client)
    await client.send("Do you know Anatole")
    late = await client.expect("context.ready")
    assert (late["draft"], late["trigger"]) == ("Do you know Anatole", "send")
    assert (await client.expect("message.accepted"))["context"] == "miss"
    await client.expect("response.done")
    await type_text(client, server, "Do  you know\tAna ")
    await clock.advance(0.5)
    await pause_context(client)
    await client.send("Do you know Ana")
    assert (await client.expect("message.accepted"))["context"] == "hit"


async def test_a_new_memory_makes_a_context_stale(start: StartServer) -> None:
    """Enter reuses its vector but searches again: refreshed."""
    clock = ManualClock()
    server = await start(clock)
    client, other = await server.session(), await server.session()
    question = "What about the garden?"
    await type_text(client, server, question)
    await clock.advance(0.5)
    assert (await pause_context(client))["memories"] == []
    await send_and_wait(other, PROMISE)
    await client.send(question)
    ready = await client.expect("context.ready")
    assert [memory["content"] for memory in ready["memories"]] == [PROMISE]
    assert (await client.expect("message.accepted"))["context"] == "refreshed"


async def test_the_next_draft_is_prefetched_while_the_reply_is_pending(
    start: StartServer,
) -> None:
    """Also while another message is queued."""
    clock = ManualClock()
    hold = asyncio.Event()
    async with scripted_model(Script(hold_before=hold)) as model:
        server = await start(clock, llm_url=model.url)
        client = await server.session()
        await client.send("First", "m1")
        await client.send("Second", "m2")
        await type_text(client, server, "Third in the making")
        await clock.advance(0.5)
        ready = await client.expect("context.ready")
        while ready["trigger"] == "send":
            ready = await client.expect("context.ready")
        assert ready["draft"] == "Third in the making"
        hold.set()


async def test_a_reply_does_not_wait_for_a_search_that_hangs(start: StartServer) -> None:
    """It is made without memories."""
    server = await start()
    client = await server.session()
    async with owner_of(server.app.core).acquire() as raw, raw.transaction():
        await raw.execute("LOCK TABLE memory_terms IN ACCESS EXCLUSIVE MODE")
        await client.send("Hello there", "m1")
        assert (await client.expect("message.accepted"))["context"] == "miss"
        assert (await client.expect("response.done"))["status"] == "completed"


async def test_a_context_expires_after_sixty_seconds(start: StartServer) -> None:
    """Enter then builds a new one."""
    clock = ManualClock()
    server = await start(clock)
    client = await server.session()
    await type_text(client, server, "Hello there")
    await clock.advance(0.5)
    await pause_context(client)
    await clock.advance(61)
    await client.send("Hello there")
    assert (await client.expect("message.accepted"))["context"] == "miss"


async def test_a_companion_may_set_its_own_pause(start: StartServer) -> None:
    """The event `session.opened` tells it to the client."""
    clock = ManualClock()
    server = await start(clock)
    await server.app.core.stores.companions.put(
        CompanionFile("swift", "Swift", "Quick.", settings=CompanionSettings(pause_ms=200))
    )
    client = await server.connect()
    opened = await client.open_session("swift", user_id="ana")
    assert opened["pause_ms"] == 200
    await type_text(client, server, "Hello")
    await clock.advance(0.2)
    assert (await pause_context(client))["draft"] == "Hello"


async def test_a_message_id_is_never_stored_or_answered_twice(start: StartServer) -> None:
    """Neither over the same connection nor over another one."""
    server = await start()
    client = await server.session()
    first = (await send_and_wait(client, "Hello there", "m1"))["message.accepted"]
    await client.send("Hello there", "m1")
    retried = await client.expect("message.accepted")
    assert (retried["duplicate"], retried["turn_id"]) == (True, first["turn_id"])
    other = await server.session()
    await other.send("Hello there", "m1")
    retried_elsewhere = await other.expect("message.accepted")
    assert (retried_elsewhere["duplicate"], retried_elsewhere["turn_id"]) == (
        True,
        first["turn_id"],
    )
    await assert_no_events(client, server)
    await assert_no_events(other, server)
    count = await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns")
    assert count == 2


async def test_a_message_whose_reply_failed_is_answered_on_retry(start: StartServer) -> None:
    """The same id brings the reply, once."""
    async with scripted_model(Script(status=500)) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello", "m1")
        assert (await client.expect("response.done"))["status"] == "failed"
        model.script.status = 200
        await client.send("Hello", "m1")
        assert (await client.expect("message.accepted"))["duplicate"] is True
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("completed", "Hello there.")
        await client.send("Hello", "m1")
        assert (await client.expect("message.accepted"))["duplicate"] is True
        await assert_no_events(client, server)


async def test_events_are_numbered_without_gaps(start: StartServer) -> None:
    client = await (await start()).session()
    await client.send("Hello there, how are you?", "m1")
    numbers = []
    while True:
        event = await client.next_event()
        numbers.append(event["seq"])
        if event["type"] == "response.done":
            break
    assert numbers == list(range(2, len(numbers) + 2))


async def test_an_opened_session_returns_its_earlier_turns(start: StartServer) -> None:
    """So that a page can be reloaded."""
    server = await start()
    await send_and_wait(await server.session(), "Hello there", "m1")
    client = await server.connect()
    opened = await client.open_session("wren", user_id="ana", name="Ana")
    assert [(turn["speaker"], turn["message_id"]) for turn in opened["turns"]] == [
        ("user", "m1"),
        ("companion", None),
    ]
    assert opened["turns"][0]["text"] == "Hello there"


async def test_malformed_messages_get_errors_and_keep_connections_open(start: StartServer) -> None:
    """Neither this connection nor others are affected."""
    server = await start()
    client, other = await server.session(), await server.session("bo")
    cases: list[tuple[dict[str, Any] | str, str, str | None]] = [
        ("not json", "malformed_json", None),
        ('{"text": ' + "[" * 30_000, "malformed_json", None),
        ({"type": "nonsense", "event_id": "e1"}, "unknown_type", "type"),
        ({"type": "draft.update", "event_id": "e2"}, "invalid_message", "text"),
        ({"type": "message.send", "id": "m", "text": "  "}, "invalid_message", "text"),
        ({"type": "message.send", "id": "m", "text": "x" * 8001}, "invalid_message", "text"),
        ({"type": "response.cancel", "response_id": "none"}, "invalid_message", "response_id"),
        ({"type": "session.open", "companion": "wren"}, "already_open", "type"),
    ]
    for frame, code, param in cases:
        await client.send_raw(frame)
        error = (await client.expect("error"))["error"]
        assert (error["code"], error["param"], error["retryable"]) == (code, param, False)
        assert error["event_id"] == (frame.get("event_id") if isinstance(frame, dict) else None)
    assert (await send_and_wait(client, "Hello"))["response.done"]["status"] == "completed"
    assert (await send_and_wait(other, "Hello"))["response.done"]["status"] == "completed"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"type": "message.send", "id": "m", "text": "x" * 70_000}, 1009),
        (b"binary", 4400),
        ({"type": "session.open", "companion": "nobody", "user": {"id": "a", "name": "A"}}, 4403),
        ({"type": "session.open", "companion": "wren"}, 4401),
    ],
)
async def test_close_codes_state_the_reason(
    start: StartServer, frame: dict[str, Any] | bytes, code: int
) -> None:
    """Too large, not this protocol, not allowed, not authenticated."""
    client = await (await start()).connect()
    with pytest.raises(Closed) as caught:
        await client.send_raw(frame)
        while True:
            await client.next_event()
    assert caught.value.code == code


async def test_an_unexpected_exception_becomes_an_error_event(start: StartServer) -> None:
    """It is logged, and the connection stays open."""
    server = await start()
    await owner_of(server.app.core).execute("ALTER TABLE sessions RENAME TO gone")
    client = await server.connect()
    error = (await client.open_session("wren", user_id="ana"))["error"]
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    await owner_of(server.app.core).execute("ALTER TABLE gone RENAME TO sessions")
    assert (await client.open_session("wren", user_id="ana"))["type"] == "session.opened"


async def test_a_connection_without_a_session_is_closed_in_time(start: StartServer) -> None:
    """With 4401 after ten seconds; other messages than `session.open` are errors."""
    clock = ManualClock()
    client = await (await start(clock, open_timeout_s=10.0)).connect()
    await client.draft("too early")
    assert (await client.expect("error"))["error"]["code"] == "not_open"
    await clock.advance(10)
    with pytest.raises(Closed) as caught:
        await client.next_event()
    assert caught.value.code == 4401


async def test_pages_of_other_origins_may_not_connect(start: StartServer) -> None:
    """They are closed with 4403; the server's own page may connect."""
    server = await start()
    client = await server.connect(origin="https://evil.example")
    with pytest.raises(Closed) as caught:
        await client.next_event()
    assert caught.value.code == 4403
    own = await server.connect(origin=f"http://127.0.0.1:{server.port}")
    assert (await own.open_session("wren", user_id="ana"))["type"] == "session.opened"


async def test_sessions_require_a_token_where_a_secret_is_set(start: StartServer) -> None:
    server = await start(auth_secret=SECRET)
    client = await server.connect()
    opened = await client.open_session("wren", token=token())
    assert opened["user"] == {"id": "ana", "name": "Ana"}
    stranger = await server.connect()
    await stranger.open_session("wren", user_id="ana")
    with pytest.raises(Closed) as caught:
        await stranger.next_event()
    assert caught.value.code == 4401


async def test_a_peer_that_answers_no_pings_is_closed(start: StartServer) -> None:
    """With 4408, and the connection is no longer counted. Pings follow real time."""
    server = await start(heartbeat_s=0.1, heartbeat_timeout_s=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    async with asyncio.timeout(PATIENCE):
        await reader.readuntil(b"\r\n\r\n")
        opcode, payload = 0, b""
        while opcode != 0x88:  # a ping's payload may be any bytes
            opcode, length = await reader.readexactly(2)
            payload = await reader.readexactly(length)
    assert int.from_bytes(payload[:2], "big") == 4408
    await hang_up(writer)
    await eventually(lambda: metric_value(server, "foremind_connections") == 0)


async def test_a_client_that_never_reads_is_closed(start: StartServer) -> None:
    """What waits to be read is bounded; the server continues to serve others."""
    pieces = [" ".join(map(str, range(first, first + 800))) for first in range(1000, 8500, 5)]
    async with scripted_model(Script(reply=lambda _: pieces)) as model:
        server = await start(llm_url=model.url, llm_max_tokens=400_000, outbound_bytes=65_536)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(
            b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        for message in (
            {"type": "session.open", "companion": "wren", "user": {"id": "slow", "name": "S"}},
            {"type": "message.send", "id": "m1", "text": "Go on"},
        ):
            payload = json.dumps(message).encode()
            mask = b"\0\0\0\0"
            size = len(payload)
            head = (
                bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
            )
            writer.write(head + mask + payload)
        await eventually(lambda: metric_value(server, "foremind_connections") == 0)
        (session,) = server.app.registry._all()
        assert session.detached_at is not None
        other = await server.session()
        await other.send("Hello")
        assert (await other.expect("message.accepted"))["duplicate"] is False
        await hang_up(writer)


async def test_a_session_that_has_ended_takes_no_message(start: StartServer) -> None:
    """It may be sent again in another session: nothing of it is stored."""
    server = await start()
    client = await server.session()
    (session,) = server.app.registry._all()
    server.app.registry.end(session)
    await client.send("Nobody hears this", "late")
    assert (await client.expect("error"))["error"]["code"] == "interrupted"
    again = await server.session()
    await again.send("Nobody hears this", "late")
    assert (await again.expect("message.accepted"))["duplicate"] is False


async def test_too_many_queued_messages_are_refused(start: StartServer) -> None:
    """With a retryable error."""
    hold = asyncio.Event()
    async with scripted_model(Script(hold_before=hold)) as model:
        client = await (await start(llm_url=model.url)).session()
        for number in range(MAX_WAITING_MESSAGES + 6):
            await client.send(f"Message {number}", f"m{number}")
        error = (await client.expect("error"))["error"]
        assert (error["code"], error["retryable"]) == ("overloaded", True)
        hold.set()


async def test_draining_finishes_replies_and_closes_with_4503(start: StartServer) -> None:
    hold = asyncio.Event()
    async with scripted_model(Script(hold_before=hold)) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello", "m1")
        await client.expect("response.created")
        draining = asyncio.create_task(server.app.registry.drain(5.0))
        late = await server.connect()
        hold.set()
        assert (await client.expect("response.done"))["status"] == "completed"
        for connection in (client, late):
            with pytest.raises(Closed) as caught:
                while True:
                    await connection.next_event()
            assert caught.value.code == 4503
        await draining


async def test_filler_recalls_nothing(start: StartServer) -> None:
    """ "haha yeah" needs no memories; a question of the same player gets them."""
    client = await (await start()).session()
    await send_and_wait(client, PROMISE)
    for text, recalled in (("haha yeah", 0), ("What did I promise?", 1)):
        await client.send(text)
        assert len((await client.expect("context.ready"))["memories"]) == recalled
        await client.expect("response.done")


@pytest.mark.parametrize("mark", ["", "?"])
async def test_what_is_only_asked_is_not_kept(start: StartServer, mark: str) -> None:
    """By the same score with and without its question mark, though it speaks of remembering."""
    server = await start()
    client = await server.session()
    stored = (await send_and_wait(client, f"Can't you remember my violin{mark}"))["memory.stored"]
    assert not stored["stored"]
    assert stored["significance"] < 0.2


async def test_a_stored_memory_states_its_reasons(start: StartServer) -> None:
    """They come with the event, the largest score first."""
    client = await (await start()).session()
    stored = (await send_and_wait(client, "My name is Ana"))["memory.stored"]
    assert stored["significance"] == 0.85
    assert stored["reasons"][0] == {"name": "identity", "score": 0.85}


async def test_a_short_answer_is_stored_with_its_question(start: StartServer) -> None:
    """Neither is significant alone, and both are recalled together; "thanks" is not stored."""
    question = "What's your dog's name?"
    replies = iter(["Oh, lovely! " + question, "Nice!", "Where do you live?", "Fine."])
    async with scripted_model(Script(reply=lambda _: [next(replies)])) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await send_and_wait(client, "I went out with my dog", "m0")
        stored = (await send_and_wait(client, "Biscuit.", "m1"))["memory.stored"]
        assert (stored["stored"], stored["significance"]) == (True, 0.30)
        assert stored["reasons"][0] == {"name": "answer", "score": 0.30}
        assert not (await send_and_wait(client, "thanks", "m2"))["memory.stored"]["stored"]
        assert not (await send_and_wait(client, "haha", "m3"))["memory.stored"]["stored"]
        memories = await owner_of(server.app.core).fetch("SELECT content FROM memories")
        assert {"Biscuit.", "Oh, lovely! " + question} <= {memory["content"] for memory in memories}
        await client.draft("What is my dog called?")
        ready = await client.expect("context.ready")
        recalled = [memory["content"] for memory in ready["memories"]]
        assert {"Biscuit.", "Oh, lovely! " + question} <= set(recalled)


async def test_a_session_carries_the_players_time_zone(start: StartServer) -> None:
    """It is stored with the user."""
    server = await start()
    client = await server.connect()
    opened = await client.open_session("wren", user_id="ana", time_zone="Asia/Tokyo")
    assert opened["type"] == "session.opened"
    zone = await owner_of(server.app.core).fetchval("SELECT time_zone FROM users")
    assert zone == "Asia/Tokyo"


async def test_a_language_model_may_rate_messages(start: StartServer) -> None:
    """Later, and never below a minimum score: it may keep a message or supersede a memory."""
    answers = {
        "the tide is low": {"rating": 8},
        "My name is Ana": {"rating": 1},
        "the tide is high": {"rating": 7, "no_longer": [1, 9]},
    }

    def reply(request: dict[str, Any]) -> list[str]:
        system, *_, last = request["messages"]
        if "brushing teeth" not in system["content"]:
            return ["Mm", "."]
        message = json.loads(last["content"].rpartition("Said now: ")[2])
        return ["Sure! ", json.dumps(answers.get(message, {"rating": 1}))]

    async with scripted_model(Script(reply=reply)) as model:
        server = await start(llm_url=model.url)
        rules = SignificanceRules(learned=False, model=True)
        await server.app.core.stores.companions.put(
            CompanionFile(
                "rated", "Rated", "A persona.", settings=CompanionSettings(significance=rules)
            )
        )
        client = await server.session(companion="rated")
        for number, (text, significance) in enumerate(
            (("the tide is low", 0.8), ("My name is Ana", 0.85), ("the tide is high", 0.7))
        ):
            await client.send(text, f"m{number}")
            stored = await client.expect("memory.stored")
            while "model" not in [reason["name"] for reason in stored["reasons"]]:
                stored = await client.expect("memory.stored")
            assert (stored["message_id"], stored["stored"]) == (f"m{number}", True)
            assert stored["significance"] == significance
        superseded = await owner_of(server.app.core).fetch(
            "SELECT content FROM memories WHERE superseded_by IS NOT NULL"
        )
        assert [memory["content"] for memory in superseded] == ["the tide is low"]
