"""What the id of a message promises: the same again is done once, another is refused by name."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from foremind.client import Client
from foremind.domain.companion import CompanionFile
from foremind.gateway.session import Session
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, ScriptedModel, scripted_model
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    owner_of,
    patiently,
)

TEXT = "I promise to bring the red map"


@pytest.fixture
async def held_model() -> AsyncIterator[ScriptedModel]:
    """A model that says nothing until it is let."""
    async with scripted_model(Script(hold_before=asyncio.Event())) as model:
        yield model
        go_on(model)


def go_on(model: ScriptedModel) -> None:
    """Let the model speak."""
    assert model.script.hold_before is not None
    model.script.hold_before.set()


async def refused(client: Client, text: str, message_id: str) -> None:
    """The same id with another text is an error that names it, and nothing else happens."""
    await client.send_raw({"type": "message.send", "id": message_id, "text": text})
    error = (await client.expect("error"))["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "conflict")
    assert (error["param"], error["message_id"]) == ("id", message_id)
    assert not error["retryable"]


async def said(server: RunningServer) -> list[str]:
    """What users said, as it is stored."""
    rows = await owner_of(server.app.core).fetch(
        "SELECT content FROM turns WHERE speaker = 'user' ORDER BY id"
    )
    return [row["content"] for row in rows]


async def over_both(one: Client, two: Client, model: ScriptedModel) -> None:
    """The same over two connections, the second while the first is being answered."""
    await one.send(TEXT, "m1")
    await eventually(lambda: len(model.script.spoken) == 1)
    await two.send(TEXT, "m1")
    assert (await two.expect("message.accepted"))["duplicate"]


async def while_it_waits(server: RunningServer, model: ScriptedModel) -> Client:
    """The reply to the first is not there yet."""
    client = await server.session()
    await client.send(TEXT, "m1")
    await client.expect("message.accepted")
    return client


async def once_it_is_answered(server: RunningServer, model: ScriptedModel) -> Client:
    """The session knows the id."""
    client = await while_it_waits(server, model)
    go_on(model)
    await client.expect("response.done")
    return client


async def over_another_connection(server: RunningServer, model: ScriptedModel) -> Client:
    """Only the database knows the id."""
    await once_it_is_answered(server, model)
    return await server.session()


async def while_another_waits(server: RunningServer, model: ScriptedModel) -> Client:
    """Another connection of the user waits for the reply to the first."""
    await while_it_waits(server, model)
    return await server.session()


async def with_another_companion(server: RunningServer, model: ScriptedModel) -> Client:
    """Ids are unique per user."""
    await server.app.core.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
    await once_it_is_answered(server, model)
    return await server.session(companion="mara")


STAGES = [
    while_it_waits,
    once_it_is_answered,
    over_another_connection,
    while_another_waits,
    with_another_companion,
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda each: each.__name__)
async def test_an_id_that_was_used_for_another_text_is_refused(
    start: StartServer,
    held_model: ScriptedModel,
    stage: Callable[[RunningServer, ScriptedModel], object],
) -> None:
    """Whoever remembers it; the message is told of, not thrown away, and the first is unharmed."""
    server = await start(llm_url=held_model.url)
    client = await stage(server, held_model)  # type: ignore[misc]
    await refused(client, "I promise something else", "m1")
    assert await said(server) == [TEXT]
    go_on(held_model)
    await client.send("I promise something else", "m2")
    while (await client.expect("message.accepted"))["id"] != "m2":
        pass
    assert await said(server) == [TEXT, "I promise something else"]


@pytest.mark.parametrize("how", ["forgotten", "corrected"])
async def test_what_nobody_may_know_any_longer_is_no_conflict(start: StartServer, how: str) -> None:
    """A message that was forgotten, or corrected, is acknowledged again whatever it says."""
    server = await start()
    client = await server.session()
    await client.send(TEXT, "m1")
    stored = (await client.expect_all("response.done", "memory.stored"))["memory.stored"]
    path = f"http://127.0.0.1:{server.port}/v1/relationships"
    async with httpx2.AsyncClient(params={"user": "ana"}, timeout=PATIENCE) as http:
        (bond,) = (await http.get(path)).json()
        memory = f"{path}/{bond['id']}/memories/{stored['memory_id']}"
        if how == "forgotten":
            answer = await http.delete(memory)
        else:
            answer = await http.patch(memory, json={"content": "I promise to bring the blue map"})
        assert answer.status_code == 200, answer.text
    (session,) = server.app.registry._all()
    await eventually(lambda: not session._conversation._past.known)
    for again in (client, await server.session()):
        await again.send(TEXT, "m1")
        assert (await again.expect("message.accepted", "error"))["duplicate"]


async def test_a_message_that_finds_no_room_is_named(
    start: StartServer, held_model: ScriptedModel
) -> None:
    """So that the client knows which to send again; without an event id too."""
    server = await start(llm_url=held_model.url)
    client = await server.session()
    opened = (await server.connect()).open_session("wren", user_id="bo", name="Bo")
    most = (await opened)["limits"]["max_waiting_messages"]
    for number in range(most + 1):
        await client.send(f"Message {number}", f"m{number}")
    error = (await client.expect("error"))["error"]
    assert (error["code"], error["retryable"]) == ("overloaded", True)
    assert (error["param"], error["message_id"]) == ("id", f"m{most}")


@pytest.mark.parametrize("character", ["\N{GRINNING FACE}", "\u4e16", "\xe9", "\x01", '"', "\\"])
@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "plain"])
async def test_a_text_of_the_allowed_length_fits_however_it_is_written(
    start: StartServer, character: str, escaped: bool
) -> None:
    """As JSON may escape it, or as it is."""
    server = await start(max_text_chars=16_000)
    client = await server.session()
    text = character * 16_000
    frame = json.dumps(
        {"type": "message.send", "id": "\N{OWL}" * 128, "event_id": "\N{OWL}" * 128, "text": text},
        ensure_ascii=escaped,
    )
    await client.send_raw(frame)
    assert (await client.expect("message.accepted", "error"))["type"] == "message.accepted"
    assert await said(server) == [text]


@pytest.mark.parametrize("when", ["at once", "while it is spoken"])
async def test_one_id_over_many_sockets_is_answered_once(
    start: StartServer, held_model: ScriptedModel, when: str
) -> None:
    """One hears the reply; the others that it is stored, and then the reply as it was stored."""
    server = await start(llm_url=held_model.url)
    clients = [await server.session() for _ in range(4)]
    if when == "at once":
        await asyncio.gather(*(each.send(TEXT, "m1") for each in clients))
    else:
        await clients[0].send(TEXT, "m1")
        await eventually(lambda: len(held_model.script.spoken) == 1)
        for each in clients[1:]:
            await each.send(TEXT, "m1")
    accepted = [await each.expect("message.accepted") for each in clients]
    assert len({each["turn_id"] for each in accepted}) == 1
    assert sorted(each["duplicate"] for each in accepted) == [False, True, True, True]
    go_on(held_model)
    for client, answer in zip(clients, accepted, strict=True):
        heard = await client.expect("turn.stored", "response.done")
        assert heard["type"] == ("turn.stored" if answer["duplicate"] else "response.done")
        text = heard["turn"]["text"] if answer["duplicate"] else heard["text"]
        assert text == "Hello there."
    for client in clients:
        await client.send(TEXT, "m1")
        assert (await client.expect("message.accepted", "response.created"))["duplicate"]
    assert len(held_model.script.spoken) == 1
    assert await said(server) == [TEXT]
    replies = "SELECT count(*) FROM turns WHERE speaker = 'companion'"
    assert await owner_of(server.app.core).fetchval(replies) == 1


async def test_what_another_connection_could_not_have_answered_is_answered_on_the_next_try(
    start: StartServer, held_model: ScriptedModel
) -> None:
    """A failure is told where it was heard; who waited may send it again."""
    server = await start(llm_url=held_model.url)
    one, two = await server.session(), await server.session()
    held_model.script.cut_after = 0
    await over_both(one, two, held_model)
    go_on(held_model)
    assert (await one.expect("response.done"))["status"] == "failed"
    held_model.script.cut_after = None
    await two.send("And this is another matter", "m2")
    assert (await two.expect("response.done"))["status"] == "completed"
    await two.send(TEXT, "m1")
    assert (await two.expect("response.done", "turn.stored"))["status"] == "completed"
    assert await said(server) == [TEXT, "And this is another matter"]


async def test_a_session_that_waits_for_anothers_reply_can_end(
    start: StartServer, held_model: ScriptedModel
) -> None:
    """The reply goes on where it is heard."""
    server = await start(llm_url=held_model.url)
    one, two = await server.session(), await server.session()
    await over_both(one, two, held_model)
    (waits,) = [each for each in server.app.registry._all() if each._conversation._following]
    server.app.registry.end(waits)
    await eventually(lambda: not waits.busy)
    go_on(held_model)
    assert (await one.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize("when", ["at once", "while it is spoken"])
async def test_one_id_over_two_processes_is_answered_once(
    start: StartServer, held_model: ScriptedModel, when: str
) -> None:
    """As within one: the other tells that it is stored, and then the reply as it was stored."""
    servers = [await start(llm_url=held_model.url) for _ in range(2)]
    clients = [await server.session() for server in servers]
    if when == "at once":
        await asyncio.gather(*(each.send(TEXT, "m1") for each in clients))
    else:
        await clients[0].send(TEXT, "m1")
        await eventually(lambda: len(held_model.script.spoken) == 1)
        await clients[1].send(TEXT, "m1")
    accepted = [await each.expect("message.accepted") for each in clients]
    assert len({each["turn_id"] for each in accepted}) == 1
    assert sorted(each["duplicate"] for each in accepted) == [False, True]
    go_on(held_model)
    for client, answer in zip(clients, accepted, strict=True):
        heard = await client.expect("turn.stored", "response.created")
        if answer["duplicate"]:
            assert (heard["type"], heard["turn"]["text"]) == ("turn.stored", "Hello there.")
        else:
            assert (await client.expect("response.done"))["text"] == "Hello there."
    for client in clients:
        await client.send(TEXT, "m1")
        assert (await client.expect("message.accepted", "response.created"))["duplicate"]
        await client.send("And this is another matter", f"m{clients.index(client) + 2}")
        assert (await client.expect("response.done"))["status"] == "completed"
    assert len(await said(servers[0])) == 3
    replies = "SELECT count(*) FROM turns WHERE speaker = 'companion'"
    assert await owner_of(servers[0].app.core).fetchval(replies) == 3


@pytest.mark.parametrize("how", ["its reply failed", "it is gone", "its time is over"])
async def test_what_another_process_does_not_answer_is_answered_on_the_next_try(
    start: StartServer, held_model: ScriptedModel, how: str
) -> None:
    """However it came about: who waits for it hears nothing, and may send it again."""
    clocks = ManualClock(), ManualClock()
    servers = [await start(llm_url=held_model.url, clock=clock) for clock in clocks]
    one, two = [await server.session() for server in servers]
    held_model.script.cut_after = 0 if how == "its reply failed" else None
    await over_both(one, two, held_model)
    match how:
        case "its reply failed":
            go_on(held_model)
            assert (await one.expect("response.done"))["status"] == "failed"
            held_model.script.cut_after = None
        case "it is gone":
            presence = servers[0].app.core.presence
            await owner_of(servers[0].app.core).execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
                "AND (classid::bigint << 32) + objid::bigint = $1", presence.number
            )  # fmt: skip
        case _:
            await clocks[1].leap(600)
    (waits,) = servers[1].app.registry._all()
    await patiently(lambda: _over(clocks[1], waits))
    await two.send(TEXT, "m1")
    await two.expect("response.created")
    go_on(held_model)
    assert (await two.expect("response.done"))["status"] == "completed"


async def _over(clock: ManualClock, session: Session) -> bool:
    """Let the time pass in which a session waits."""
    await clock.advance(0.5)
    return not session.busy
