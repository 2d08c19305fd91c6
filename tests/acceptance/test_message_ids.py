"""Message ids: a repeated message is processed once, and an id with another text is refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    eventually_async,
    owner_of,
)

TEXT = "I promise to bring the red map"


@pytest.fixture
async def blocked_model() -> AsyncIterator[ScriptedModel]:
    """A model that does not reply until it is released."""
    async with scripted_model(Script(hold_before=asyncio.Event())) as model:
        yield model
        release(model)


def release(model: ScriptedModel) -> None:
    """Let the model reply."""
    assert model.script.hold_before is not None
    model.script.hold_before.set()


async def assert_refused(client: Client, text: str, message_id: str) -> None:
    """Assert that the same id with another text is an error that names it."""
    await client.send_raw({"type": "message.send", "id": message_id, "text": text})
    error = (await client.expect("error"))["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "conflict")
    assert (error["param"], error["message_id"]) == ("id", message_id)
    assert not error["retryable"]


async def user_texts(server: RunningServer) -> list[str]:
    """Return the stored texts of users."""
    rows = await owner_of(server.app.core).fetch(
        "SELECT content FROM turns WHERE speaker = 'user' ORDER BY id"
    )
    return [row["content"] for row in rows]


@pytest.mark.parametrize("type_", ["message.send", "message.edit", "response.regenerate"])
async def test_what_is_sent_again_in_progress_is_acknowledged_again(
    start: StartServer, blocked_model: ScriptedModel, type_: str
) -> None:
    """As a duplicate; it is answered once."""
    server = await start(llm_url=blocked_model.url)
    client = await server.session()
    if type_ != "message.send":
        hold, blocked_model.script.hold_before = blocked_model.script.hold_before, None
        await client.send("I lost the red map", "m0")
        await client.expect("response.done")
        blocked_model.script.hold_before = hold
    request = {"type": type_, "id": "m1"} | (
        {} if type_ == "response.regenerate" else {"text": TEXT}
    )
    request |= {} if type_ == "message.send" else {"message_id": "m0"}
    await client.send_raw(request)
    first = await client.expect("message.accepted")
    for _ in range(2):
        await client.send_raw(request)
        again = await client.expect("message.accepted")
        assert (again["id"], again["turn_id"]) == (first["id"], first["turn_id"])
        assert again["duplicate"]
    release(blocked_model)
    assert (await client.expect("response.done"))["status"] == "completed"
    await client.send_raw({"type": "unknown"})
    assert "response.done" not in await client.expect_all("error")
    assert len(blocked_model.script.player_requests) == (1 if type_ == "message.send" else 2)


async def send_over_both(first: Client, second: Client, model: ScriptedModel) -> None:
    """Send a message over two connections, over the second while the reply is in flight."""
    await first.send(TEXT, "m1")
    await eventually(lambda: len(model.script.player_requests) == 1)
    await second.send(TEXT, "m1")
    assert (await second.expect("message.accepted"))["duplicate"]


async def while_the_reply_is_pending(server: RunningServer, model: ScriptedModel) -> Client:
    """The reply to the first message is in flight."""
    client = await server.session()
    await client.send(TEXT, "m1")
    await client.expect("message.accepted")
    return client


async def after_the_reply(server: RunningServer, model: ScriptedModel) -> Client:
    """The session has the id in memory."""
    client = await while_the_reply_is_pending(server, model)
    release(model)
    await client.expect("response.done")
    return client


async def over_another_connection(server: RunningServer, model: ScriptedModel) -> Client:
    """Only the database has the id."""
    await after_the_reply(server, model)
    return await server.session()


async def while_another_connection_waits(server: RunningServer, model: ScriptedModel) -> Client:
    """The reply to the first message is in flight in another connection of the user."""
    await while_the_reply_is_pending(server, model)
    return await server.session()


STAGES = [
    while_the_reply_is_pending,
    after_the_reply,
    over_another_connection,
    while_another_connection_waits,
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
async def test_an_id_of_another_text_is_refused(
    start: StartServer,
    blocked_model: ScriptedModel,
    stage: Callable[[RunningServer, ScriptedModel], object],
) -> None:
    """At every stage of the first message, which is not affected."""
    server = await start(llm_url=blocked_model.url)
    client = await stage(server, blocked_model)  # type: ignore[misc]
    await assert_refused(client, "I promise something else", "m1")
    assert await user_texts(server) == [TEXT]
    release(blocked_model)
    await client.send("I promise something else", "m2")
    while (await client.expect("message.accepted"))["id"] != "m2":
        pass
    assert await user_texts(server) == [TEXT, "I promise something else"]


async def test_an_id_used_with_another_companion_is_refused(
    start: StartServer, blocked_model: ScriptedModel
) -> None:
    """Ids are unique per user; a sharded database holds them apart by relationship instead."""
    server = await start(llm_url=blocked_model.url)
    await server.app.core.stores.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
    await after_the_reply(server, blocked_model)
    client = await server.session(companion="mara")
    if not server.app.core.database.sharded:
        await assert_refused(client, "I promise something else", "m1")
        return
    await client.send("I promise something else", "m1")
    assert not (await client.expect("message.accepted"))["duplicate"]
    assert (await client.expect("response.done"))["text"] == "Hello there."
    assert sorted(await user_texts(server)) == sorted([TEXT, "I promise something else"])


@pytest.mark.parametrize("how", ["forgotten", "corrected"])
async def test_the_id_of_an_erased_or_corrected_text_is_no_conflict(
    start: StartServer, how: str
) -> None:
    """Its message is acknowledged as a duplicate, whatever its text."""
    server = await start()
    client = await server.session()
    await client.send(TEXT, "m1")
    stored = (await client.expect_all("response.done", "memory.stored"))["memory.stored"]
    path = f"http://127.0.0.1:{server.port}/v1/relationships"
    async with httpx2.AsyncClient(params={"user": "ana"}, timeout=PATIENCE) as http:
        (relationship,) = (await http.get(path)).json()
        memory = f"{path}/{relationship['id']}/memories/{stored['memory_id']}"
        if how == "forgotten":
            response = await http.delete(memory)
        else:
            response = await http.patch(memory, json={"content": "I promise to bring the blue map"})
        assert response.status_code == 200, response.text
    (session,) = server.app.registry._all()
    await eventually(lambda: not session._conversation.history.known)
    for connection in (client, await server.session()):
        await connection.send(TEXT, "m1")
        assert (await connection.expect("message.accepted", "error"))["duplicate"]


async def test_the_error_for_a_full_queue_names_the_message(
    start: StartServer, blocked_model: ScriptedModel
) -> None:
    """So that the client knows which to send again, also without an event id."""
    server = await start(llm_url=blocked_model.url)
    client = await server.session()
    opened = (await server.connect()).open_session("wren", user_id="bo", name="Bo")
    max_queued = (await opened)["limits"]["max_waiting_messages"]
    for number in range(max_queued + 1):
        await client.send(f"Message {number}", f"m{number}")
    error = (await client.expect("error"))["error"]
    assert (error["code"], error["retryable"]) == ("overloaded", True)
    assert (error["param"], error["message_id"]) == ("id", f"m{max_queued}")


@pytest.mark.parametrize("character", ["\N{GRINNING FACE}", "\u4e16", "\xe9", "\x01", '"', "\\"])
@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "plain"])
async def test_a_text_of_maximum_length_fits_in_a_frame(
    start: StartServer, character: str, escaped: bool
) -> None:
    """Whether JSON escapes its characters or not."""
    server = await start(max_text_chars=16_000)
    client = await server.session()
    text = character * 16_000
    frame = json.dumps(
        {"type": "message.send", "id": "\N{OWL}" * 128, "event_id": "\N{OWL}" * 128, "text": text},
        ensure_ascii=escaped,
    )
    await client.send_raw(frame)
    assert (await client.expect("message.accepted", "error"))["type"] == "message.accepted"
    assert await user_texts(server) == [text]


@pytest.mark.parametrize("when", ["at once", "while it is spoken"])
async def test_one_id_over_many_connections_is_answered_once(
    start: StartServer, blocked_model: ScriptedModel, when: str
) -> None:
    """One gets the reply, the others the acknowledgement of a duplicate and the stored reply."""
    server = await start(llm_url=blocked_model.url)
    clients = [await server.session() for _ in range(4)]
    if when == "at once":
        await asyncio.gather(*(client.send(TEXT, "m1") for client in clients))
    else:
        await clients[0].send(TEXT, "m1")
        await eventually(lambda: len(blocked_model.script.player_requests) == 1)
        for client in clients[1:]:
            await client.send(TEXT, "m1")
    accepted = [await client.expect("message.accepted") for client in clients]
    assert len({event["turn_id"] for event in accepted}) == 1
    assert sorted(event["duplicate"] for event in accepted) == [False, True, True, True]
    release(blocked_model)
    for client, acceptance in zip(clients, accepted, strict=True):
        event = await client.expect("turn.stored", "response.done")
        assert event["type"] == ("turn.stored" if acceptance["duplicate"] else "response.done")
        text = event["turn"]["text"] if acceptance["duplicate"] else event["text"]
        assert text == "Hello there."
    for client in clients:
        await client.send(TEXT, "m1")
        assert (await client.expect("message.accepted", "response.created"))["duplicate"]
    assert len(blocked_model.script.player_requests) == 1
    assert await user_texts(server) == [TEXT]
    replies = "SELECT count(*) FROM turns WHERE speaker = 'companion'"
    assert await owner_of(server.app.core).fetchval(replies) == 1


async def test_a_message_whose_reply_failed_elsewhere_is_answered_on_retry(
    start: StartServer, blocked_model: ScriptedModel
) -> None:
    """The connection of the reply gets the failure; the waiting one may send the message again."""
    server = await start(llm_url=blocked_model.url)
    first, second = await server.session(), await server.session()
    blocked_model.script.cut_after = 0
    await send_over_both(first, second, blocked_model)
    release(blocked_model)
    assert (await first.expect("response.done"))["status"] == "failed"
    blocked_model.script.cut_after = None
    await second.send("And this is another matter", "m2")
    assert (await second.expect("response.done"))["status"] == "completed"
    await second.send(TEXT, "m1")
    assert (await second.expect("response.done", "turn.stored"))["status"] == "completed"
    assert await user_texts(server) == [TEXT, "And this is another matter"]


async def test_a_session_that_waits_for_the_reply_of_another_can_end(
    start: StartServer, blocked_model: ScriptedModel
) -> None:
    """The other session still gets the reply."""
    server = await start(llm_url=blocked_model.url)
    first, second = await server.session(), await server.session()
    await send_over_both(first, second, blocked_model)
    (waiting,) = [
        session for session in server.app.registry._all() if session._pipeline._queue._following
    ]
    server.app.registry.end(waiting)
    await eventually(lambda: not waiting.busy)
    release(blocked_model)
    assert (await first.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize("when", ["at once", "while it is spoken"])
async def test_one_id_over_two_processes_is_answered_once(
    start: StartServer, blocked_model: ScriptedModel, when: str
) -> None:
    """As within one: the other acknowledges a duplicate and sends the stored reply."""
    servers = [await start(llm_url=blocked_model.url) for _ in range(2)]
    clients = [await server.session() for server in servers]
    if when == "at once":
        await asyncio.gather(*(client.send(TEXT, "m1") for client in clients))
    else:
        await clients[0].send(TEXT, "m1")
        await eventually(lambda: len(blocked_model.script.player_requests) == 1)
        await clients[1].send(TEXT, "m1")
    accepted = [await client.expect("message.accepted") for client in clients]
    assert len({event["turn_id"] for event in accepted}) == 1
    assert sorted(event["duplicate"] for event in accepted) == [False, True]
    release(blocked_model)
    for client, acceptance in zip(clients, accepted, strict=True):
        event = await client.expect("turn.stored", "response.created")
        if acceptance["duplicate"]:
            assert (event["type"], event["turn"]["text"]) == ("turn.stored", "Hello there.")
        else:
            assert (await client.expect("response.done"))["text"] == "Hello there."
    # While a message is in progress, it is not acknowledged again.
    sessions = [session for server in servers for session in server.app.registry._all()]
    await eventually(lambda: not any(session.busy for session in sessions))
    for client in clients:
        await client.send(TEXT, "m1")
        assert (await client.expect("message.accepted", "response.created"))["duplicate"]
        await client.send("And this is another matter", f"m{clients.index(client) + 2}")
        assert (await client.expect("response.done"))["status"] == "completed"
    assert len(await user_texts(servers[0])) == 3
    replies = "SELECT count(*) FROM turns WHERE speaker = 'companion'"
    assert await owner_of(servers[0].app.core).fetchval(replies) == 3


async def test_a_message_whose_reply_fails_in_another_process_is_answered_on_retry(
    start: StartServer, blocked_model: ScriptedModel
) -> None:
    """Not by itself: what made it fail there may make it fail here."""
    clocks = ManualClock(), ManualClock()
    servers = [await start(llm_url=blocked_model.url, clock=clock) for clock in clocks]
    first, second = [await server.session() for server in servers]
    blocked_model.script.cut_after = 0
    await send_over_both(first, second, blocked_model)
    release(blocked_model)
    assert (await first.expect("response.done"))["status"] == "failed"
    blocked_model.script.cut_after = None
    (waiting,) = servers[1].app.registry._all()

    async def wait_is_over() -> bool:
        await clocks[1].advance(0.5)
        return not waiting.busy

    await eventually_async(wait_is_over)
    await second.send(TEXT, "m1")
    await second.expect("response.created")
    assert (await second.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize("how", ["it is gone", "its time is over"])
async def test_a_message_that_another_process_abandons_is_answered(
    start: StartServer, blocked_model: ScriptedModel, how: str
) -> None:
    """Without being sent again, by the process that waits for it."""
    clocks = ManualClock(), ManualClock()
    servers = [await start(llm_url=blocked_model.url, clock=clock) for clock in clocks]
    first, second = [await server.session() for server in servers]
    await send_over_both(first, second, blocked_model)
    if how == "it is gone":
        presence = servers[0].app.core.stores.presence
        await owner_of(servers[0].app.core).execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND (classid::bigint << 32) + objid::bigint = $1", presence.number
        )  # fmt: skip
    else:
        await clocks[1].leap(600)
    (waiting,) = servers[1].app.registry._all()

    async def wait_is_over() -> bool:
        await clocks[1].advance(0.5)
        return not waiting._pipeline._queue._following

    await eventually_async(wait_is_over)  # time then stands still, however long the rest takes
    await second.expect("response.created")
    release(blocked_model)
    assert (await second.expect("response.done"))["status"] == "completed"
    assert len(await user_texts(servers[1])) == 1
