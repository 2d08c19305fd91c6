"""A last message that is edited, a reply that is made anew or chosen; over real sockets."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from foremind.domain.settings.settings import Settings
from foremind_client import Client, Conversation, Identity, Refused, connect
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from foremind_eval.processes.server_process import free_port
from tests.acceptance.test_restart import Process
from tests.acceptance.world import A_DAY, world
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    eventually_async,
    owner_of,
)

Event = dict[str, Any]

WOLVES = "My sister Mira keeps wolves in Lisbon"
BEES = "My sister Mira keeps bees in Porto"
ASKED = "What does my sister Mira keep?"
#: What the companion promises, one after another; each is remembered.
PROMISES = [
    "I promise to bring you the silver telescope tomorrow.",
    "I promise to bring you the bronze accordion tomorrow.",
    "I promise to bring you the ivory chessboard tomorrow.",
]


@asynccontextmanager
async def promising_model() -> AsyncIterator[ScriptedModel]:
    """Serve a model whose replies promise another thing each time."""
    script = Script(background=lambda _: "{}")

    def reply(_: object) -> list[str]:
        number = len(script.player_requests) - 1
        return [f"{word} " for word in PROMISES[number % len(PROMISES)].split()]

    script.reply = reply
    async with scripted_model(script) as model:
        yield model


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model whose replies promise another thing each time."""
    async with promising_model() as model:
        yield model


class Player:
    """Ana at a socket."""

    def __init__(self, server: RunningServer, client: Client) -> None:
        self.server = server
        self.client = client

    async def say(self, text: str, message_id: str) -> Event:
        """Send a message and return the end of its reply."""
        await self.client.send(text, message_id)
        return await self.client.expect("response.done")

    async def again(self, message_id: str, request_id: str | None = None) -> Event:
        """Have another reply made, and return its end."""
        await self.client.regenerate(message_id, request_id)
        return await self.client.expect("response.done")

    async def choose(self, message_id: str, index: int) -> Event:
        """Choose a reply and return what stands."""
        await self.client.choose(message_id, index)
        event = await self.client.expect("response.chosen")
        assert event["message_id"] == message_id
        turn: Event = event["turn"]
        return turn

    async def refused(self, message: Event) -> Event:
        """Send what is refused, and return the error."""
        await self.client.send_raw(message | {"event_id": "e1"})
        error: Event = (await self.client.expect("error"))["error"]
        assert error["event_id"] == "e1"
        return error

    async def stored(self) -> list[str]:
        """Return the texts of all turns that stand, in order."""
        rows = await owner_of(self.server.app.core).fetch(
            "SELECT content FROM turns WHERE removed_at IS NULL ORDER BY id"
        )
        return [row["content"].strip() for row in rows]

    async def memories(self) -> list[str]:
        """Return all memories, once every turn is ingested."""
        owner = owner_of(self.server.app.core)
        waiting = "SELECT count(*) = 0 FROM background_steps WHERE step = 'ingest'"
        await eventually_async(lambda: owner.fetchval(waiting))
        rows = await owner.fetch("SELECT content FROM memories ORDER BY id")
        return [row["content"].strip() for row in rows]

    async def everywhere(self, word: str) -> list[str]:
        """Return the tables that contain a word, apart from replies that can be chosen."""
        owner = owner_of(self.server.app.core)
        tables = await owner.fetch(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = 'public' AND table_name <> 'alternative_replies'"
        )
        return [
            row["table_name"]
            for row in tables
            if await owner.fetchval(
                f"SELECT count(*) FROM {row['table_name']} AS t WHERE t::text ILIKE $1",
                f"%{word}%",
            )
        ]


async def player(server: RunningServer) -> Player:
    """Return Ana with an open session."""
    return Player(server, await server.session())


def said(event: Event) -> str:
    """Return the text of a reply."""
    return str(event["text"]).strip()


def thing(event: Event) -> str:
    """Return what a reply promises, a word of no other."""
    return said(event).split()[-2]


def last_prompt(model: ScriptedModel) -> str:
    """Return the last prompt for a reply."""
    return str(model.script.player_requests[-1]["messages"])


async def test_an_edited_message_takes_the_place_of_the_last(
    start: StartServer, model: ScriptedModel
) -> None:
    """It is stored and answered as a message of its own; what it replaced is nowhere any more."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    first = await ana.say("Good morning", "m1")
    second = await ana.say(WOLVES, "m2")
    assert WOLVES in await ana.memories()
    await ana.client.edit("m2", BEES, "m3")
    accepted = await ana.client.expect("message.accepted")
    assert (accepted["id"], accepted["duplicate"], accepted["remembered"]) == ("m3", False, True)
    events = await ana.client.expect_all("response.done", "memory.stored")
    done, scored = events["response.done"], events["memory.stored"]
    assert (done["message_id"], done["index"], done["count"]) == ("m3", 0, 1)
    assert "wolves" not in last_prompt(model)
    assert thing(second) not in last_prompt(model)
    assert (scored["message_id"], scored["stored"]) == ("m3", True)
    assert await ana.stored() == ["Good morning", said(first), BEES, said(done)]
    assert set(await ana.memories()) == {said(first), BEES, said(done)}
    assert await ana.everywhere("wolves") == await ana.everywhere(thing(second)) == []
    await ana.say(ASKED, "m4")
    assert "bees" in last_prompt(model)
    assert "wolves" not in last_prompt(model)


async def test_another_reply_takes_the_place_of_the_last_and_either_can_be_chosen(
    start: StartServer, model: ScriptedModel
) -> None:
    """What does not stand is no part of the prompt, and not remembered."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    first = await ana.say(BEES, "m1")
    assert set(await ana.memories()) == {BEES, said(first)}
    done = await ana.again("m1")
    assert (done["message_id"], done["index"], done["count"]) == ("m1", 1, 2)
    assert said(done) != said(first)
    assert thing(first) not in last_prompt(model)
    assert await ana.stored() == [BEES, said(done)]
    assert set(await ana.memories()) == {BEES, said(done)}
    assert await ana.everywhere(thing(first)) == []

    turn = await ana.choose("m1", 0)
    assert (said(turn), turn["reply_to"]) == (said(first), "m1")
    assert (turn["index"], turn["count"], turn["status"]) == (0, 2, "completed")
    assert await ana.stored() == [BEES, said(first)]
    assert set(await ana.memories()) == {BEES, said(first)}
    assert await ana.everywhere(thing(done)) == []
    assert (await ana.choose("m1", 0))["turn_id"] == turn["turn_id"]  # it stands already

    await ana.say("What did you promise me?", "m2")
    assert thing(first) in last_prompt(model)
    assert thing(done) not in last_prompt(model)
    owner = owner_of(server.app.core)
    assert await owner.fetchval("SELECT count(*) FROM alternative_replies") == 0


async def test_a_new_session_shows_what_stands(start: StartServer, model: ScriptedModel) -> None:
    """With which of the replies it is; also on another server of the same database."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    await ana.say(BEES, "m1")
    second = await ana.again("m1")
    third = await ana.again("m1")
    await ana.choose("m1", 1)
    other = await start(llm_url=model.url)
    client = await other.connect()
    opened = await client.open_session("wren", user_id="ana", name="Ana")
    message, reply = opened["turns"]
    assert (message["message_id"], message["text"], message["reply_to"]) == ("m1", BEES, None)
    assert (said(reply), reply["reply_to"]) == (said(second), "m1")
    assert (reply["index"], reply["count"]) == (1, 3)
    there = Player(other, client)
    assert said(await there.choose("m1", 2)) == said(third)
    await ana.say("What did you promise me?", "m2")  # at the first server, which had another
    assert thing(third) in last_prompt(model)
    assert thing(second) not in last_prompt(model)


async def test_a_request_that_is_repeated_is_fulfilled_once(
    start: StartServer, model: ScriptedModel
) -> None:
    """An edit as a message is, and a request for another reply until the next one."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    await ana.say(WOLVES, "m1")
    await ana.client.edit("m1", BEES, "m2")
    await ana.client.expect("response.done")
    await ana.again("m2", "g1")
    told, second = await ana.stored(), await player(server)
    for connection in (ana, second):
        await connection.client.regenerate("m2", "g1")
        accepted = await connection.client.expect("message.accepted")
        assert (accepted["id"], accepted["duplicate"]) == ("m2", True)
        await connection.client.edit("m1", BEES, "m2")
        accepted = await connection.client.expect("message.accepted")
        assert (accepted["id"], accepted["duplicate"]) == ("m2", True)
        error = await connection.refused(
            {"type": "message.edit", "message_id": "m2", "id": "m2", "text": "Another text"}
        )
        assert (error["code"], error["param"], error["message_id"]) == ("conflict", "id", "m2")
    assert await ana.stored() == told


async def test_what_is_not_possible_is_refused_with_the_field(
    start: StartServer, model: ScriptedModel
) -> None:
    """Nothing is changed then."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    changes: list[Event] = [
        {"type": "message.edit", "id": "e", "message_id": "m1", "text": "Anything"},
        {"type": "response.regenerate", "id": "g", "message_id": "m1"},
        {"type": "response.choose", "message_id": "m1", "index": 0},
    ]
    for change in changes:
        error = await ana.refused(change)
        assert (error["code"], error["param"]) == ("nothing_said", "message_id")
    first = await ana.say("Good morning", "m1")
    second = await ana.say(BEES, "m2")
    requests = len(model.script.player_requests)
    for change in changes:
        error = await ana.refused(change)
        assert (error["code"], error["param"]) == ("not_last_message", "message_id")
        assert error["message_id"] == ("e" if change["type"] == "message.edit" else "m1")
    for change, param in [
        (changes[0] | {"text": " "}, "text"),
        (changes[0] | {"text": "x" * 8001}, "text"),
        (changes[1] | {"id": ""}, "id"),
        ({"type": "response.choose", "message_id": "m2", "index": 1}, "index"),
        ({"type": "response.choose", "message_id": "m2", "index": -1}, "index"),
        ({"type": "response.regenerate", "id": "g"}, "message_id"),
    ]:
        error = await ana.refused(change)
        assert (error["code"], error["param"]) == ("invalid_message", param)
    assert await ana.stored() == ["Good morning", said(first), BEES, said(second)]
    assert len(model.script.player_requests) == requests


async def test_a_reply_in_progress_is_stopped(start: StartServer, model: ScriptedModel) -> None:
    """As a new message stops it; as far as it came it can be chosen."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    model.script.hold_before, model.script.hold_after = asyncio.Event(), 4
    await ana.client.send(BEES, "m1")
    await ana.client.expect("response.output_text.delta")
    await eventually(lambda: len(model.script.player_requests) == 1)
    await ana.client.regenerate("m1")
    assert (await ana.client.expect("response.done"))["status"] == "cancelled"
    model.script.hold_before.set()
    done = await ana.client.expect("response.done")
    assert (done["status"], done["index"], done["count"]) == ("completed", 1, 2)
    stopped = await ana.choose("m1", 0)
    assert stopped["status"] == "cancelled"
    assert any(promise.startswith(said(stopped)) for promise in PROMISES)


async def test_a_reply_stands_until_another_is_made(
    start: StartServer, model: ScriptedModel
) -> None:
    """If the model fails, or the player says something before a word came, it stands again."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    first = await ana.say(BEES, "m1")
    model.script.status = 500
    done = await ana.again("m1")
    assert done["status"] == "failed"
    event = await ana.client.expect("response.chosen")
    assert said(event["turn"]) == said(first)
    assert (event["turn"]["index"], event["turn"]["count"]) == (0, 1)
    model.script.status, model.script.hold_before = 200, asyncio.Event()
    before = len(model.script.player_requests)
    await ana.client.regenerate("m1")
    await eventually(lambda: len(model.script.player_requests) > before)
    await ana.client.send("What did you promise me?", "m2")
    await ana.client.expect("response.chosen")
    model.script.hold_before.set()
    await ana.client.expect("message.accepted")
    await ana.client.expect("response.done")
    assert thing(first) in last_prompt(model)


async def test_the_earliest_of_too_many_replies_cannot_be_chosen(
    start: StartServer, model: ScriptedModel
) -> None:
    """Twenty can."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    await ana.say(BEES, "m1")
    made = [await ana.again("m1") for _ in range(20)]
    assert (made[-1]["index"], made[-1]["count"]) == (19, 20)
    assert said(await ana.choose("m1", 0)) == said(made[0])
    error = await ana.refused({"type": "response.choose", "message_id": "m1", "index": 20})
    assert error["message"] == "index: expected 0 to 19, got 20"


async def test_a_message_of_another_day_is_not_changed(start: StartServer) -> None:
    """Its session is over, and what could be chosen is gone."""
    async with world(start, model=False) as w:
        ana = await player(w.server)
        await ana.say(BEES, "m1")
        await ana.again("m1")
        told, owner = await ana.stored(), owner_of(w.server.app.core)
        assert await owner.fetchval("SELECT count(*) FROM alternative_replies") == 1
        await w.clock.leap(A_DAY)
        await w.wait_until_idle()
        assert await owner.fetchval("SELECT count(*) FROM alternative_replies") == 0
        error = await ana.refused({"type": "response.choose", "message_id": "m1", "index": 0})
        assert error["code"] == "nothing_said"
        assert await ana.stored() == told


async def test_hosts_without_a_socket_edit_regenerate_and_choose(
    start: StartServer, model: ScriptedModel
) -> None:
    """With what a socket has; whole and as a stream."""
    server = await start(llm_url=model.url)
    address = f"http://127.0.0.1:{server.port}"
    http = await server.entered(httpx2.AsyncClient(base_url=address, timeout=PATIENCE))
    ana = await player(server)

    async def post(path: str, **body: Any) -> httpx2.Response:
        asked = body | {"companion": "wren", "user": "ana"}
        return await http.post(f"/v1/turns{path}", json=asked)

    await post("", id="t1", text=WOLVES)
    edited = (await post("/edit", id="t2", message_id="t1", text=BEES)).json()
    assert (edited["duplicate"], edited["replies"][0]["count"]) == (False, 1)
    again = (await post("/regenerate", id="g1", message_id="t2")).json()
    (reply,) = again["replies"]
    assert (reply["index"], reply["count"]) == (1, 2)
    assert (again["turn_id"], again["duplicate"]) == (edited["turn_id"], False)
    repeated = (await post("/regenerate", id="g1", message_id="t2")).json()
    assert repeated["replies"] == again["replies"]
    chosen = (await post("/choose", message_id="t2", index=0)).json()
    assert chosen["reply"] == edited["replies"][0] | {"count": 2}
    assert await ana.stored() == [BEES, said(chosen["reply"])]
    assert await ana.everywhere("wolves") == await ana.everywhere(thing(reply)) == []

    body = {"id": "g2", "message_id": "t2", "companion": "wren", "user": "ana"}
    accept = {"accept": "text/event-stream"}
    streamed = (await http.post("/v1/turns/regenerate", json=body, headers=accept)).text
    assert f'"draft":"{BEES}"' in streamed.partition("\n\n")[0]
    assert '"message_id":"t2"' in streamed
    assert '"index":2,"count":3' in streamed.strip().rpartition("\n\n")[2]

    refused = await post("/choose", message_id="t2", index=3)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "index")
    refused = await post("/regenerate", id="g3", message_id="t1")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "not_last_message")
    refused = await post("/edit", id="t3", message_id="t2", text=" ")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text")


async def test_a_kill_between_acceptance_and_reply_loses_nothing(
    settings: Settings, model: ScriptedModel
) -> None:
    """The same request to the next process is fulfilled; what was withdrawn stays so."""

    async def process() -> Process:
        server = Process(settings, free_port(), FOREMIND_LLM_URL=model.url)
        await server.start()
        return server

    @asynccontextmanager
    async def session(server: Process) -> AsyncIterator[Client]:
        async with connect(server.url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            yield client

    server = await process()
    try:
        async with session(server) as client:
            await client.send(WOLVES, "m1")
            await client.expect("response.done")
            model.script.hold_before = asyncio.Event()
            await client.edit("m1", BEES, "m2")
            await client.expect("message.accepted")
            await server.stop(signal.SIGKILL)
        server = await process()
        async with session(server) as client:
            model.script.hold_before.set()
            await client.edit("m1", BEES, "m2")
            await client.expect("response.done")
            model.script.hold_before = asyncio.Event()
            await client.regenerate("m2", "g1")
            await client.expect("response.created")
            await server.stop(signal.SIGKILL)
        server = await process()
        model.script.hold_before.set()
        async with connect(server.url) as client:
            opened = await client.open_session("wren", user_id="ana", name="Ana")
            assert [turn["text"] for turn in opened["turns"]] == [BEES]
            await client.regenerate("m2", "g1")
            done = await client.expect("response.done")
            assert (done["index"], done["count"]) == (1, 2)
            await client.choose("m2", 0)
            assert (await client.expect("response.chosen"))["turn"]["count"] == 2
            assert "wolves" not in last_prompt(model)
    finally:
        model.script.hold_before = None
        await server.stop(signal.SIGKILL)


async def test_a_client_that_reconnects_edits_and_regenerates(
    start: StartServer, model: ScriptedModel
) -> None:
    """Its futures are the replies."""
    server = await start(llm_url=model.url)
    async with Conversation(server.url, Identity("wren", user_id="ana", name="Ana")) as wren:
        await wren.say(WOLVES, "m1")
        first = await wren.edit("m1", BEES, "m2")
        assert (first["message_id"], first["count"]) == ("m2", 1)
        second = await wren.regenerate("m2")
        assert (second["index"], second["count"]) == (1, 2)
        wren.choose("m2", 0)
        async for event in wren.events():
            if event["type"] == "response.chosen":
                assert event["turn"]["text"] == first["text"]
                break
        with pytest.raises(Refused, match="message_id"):
            await wren.regenerate("m1")
