"""What the language model does before Enter: it reads ahead, or speaks behind a gate."""

import asyncio

import pytest

from foremind.client import Client
from foremind.llm.prompt.prefill_chunks import shared
from foremind.testing.background_answers import curate
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, scripted_model
from tests.acceptance.layers import World
from tests.acceptance.test_http import request
from tests.acceptance.test_path import PROMISE, answered, sample, typed
from tests.conftest import RunningServer, StartServer, eventually, owner_of

QUESTION = "What did I promise about the garden?"
_MADE = ("scratchpad", "profile", "summary", "opening", "episodes", "topics", "questions", "hot")


async def rested(client: Client, server: RunningServer, clock: ManualClock, text: str) -> None:
    """Type a text and rest until its context is there."""
    await typed(client, server, text)
    await clock.advance(0.5)
    await client.expect("context.ready")


def done(server: RunningServer, kind: str, outcome: str) -> float:
    """How often the model did something ahead."""
    return sample(server, "foremind_model_ahead_total", kind=kind, outcome=outcome)


async def test_the_model_reads_the_prompt_at_a_pause(start: StartServer) -> None:
    """In portions, one token each, and Enter's request goes on from there; nothing is stored."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="prefill", eager=False)
        client = await server.session()
        await rested(client, server, clock, "Good morning to")
        await eventually(lambda: done(server, "prefill", "finished") == 1)
        assert len(model.script.read) > 1 and not model.script.spoken
        assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0
        seen = await answered(client, "Good morning to you")
        assert seen["message.accepted"]["ahead"] == "prefill"
        (spoken,) = model.script.spoken
        read = model.script.read[-1]["messages"]
        assert shared(read, spoken["messages"]) == sum(len(each["content"]) for each in read)


async def test_what_was_recalled_at_the_pause_stays_in_its_place(start: StartServer) -> None:
    """What Enter recalls beyond it follows, and the message is the whole one."""
    clock = ManualClock()
    async with scripted_model(Script(background=curate)) as model:
        server = await start(
            clock, llm_url=model.url, llm_ahead="prefill", eager=False, layers_off=_MADE
        )
        client = await server.session()
        await answered(client, PROMISE)
        await answered(client, "I also promise to feed the three cats of my neighbour Filomena")
        await World(server, clock, model).next_day()
        client = await server.session()
        await rested(client, server, clock, "What did I promise about the garden")
        await eventually(lambda: done(server, "prefill", "finished") >= 1)
        read = model.script.read[-1]["messages"][-1]["content"]
        text = "What did I promise about the garden and about the cats of Filomena?"
        await answered(client, text)
        spoken = model.script.spoken[-1]["messages"][-1]["content"]
        before, _, _ = read.rpartition("\n\n")
        assert PROMISE in before and "Filomena" in spoken.removesuffix(text)
        assert spoken.startswith(before) and spoken.endswith(f"\n\n{text}")


async def test_a_reply_is_made_ahead_and_released_by_enter(start: StartServer) -> None:
    """After a finished sentence; not a word leaves the server before Enter."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await rested(client, server, clock, "Do you like the sea?")
        await eventually(lambda: model.script.finished.count("done") > len(model.script.read))
        assert len(model.script.spoken) == 1
        assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0
        await client.send("Do you like the sea?")
        types = []
        while "response.done" not in types:
            event = await client.next_event()
            types.append(event["type"])
            if event["type"] == "message.accepted":
                assert event["ahead"] == "reply"
        assert types[:2] == ["message.accepted", "response.created"]
        assert event["text"] == "Hello there."
        assert len(model.script.spoken) == 1


@pytest.mark.parametrize(("text", "whole"), [("Like it?", True), ("Like it", False)])
async def test_a_finished_sentence_is_read_before_the_pause(
    start: StartServer, text: str, whole: bool
) -> None:
    """Once it settles, to its end, so that the pause has only to speak; others up to the draft."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply")
        client = await server.session()
        await typed(client, server, text)
        await clock.advance(0.2)
        assert (await client.expect("context.ready"))["trigger"] == "eager"
        await eventually(lambda: done(server, "prefill", "finished") == 1)
        assert model.script.read[-1]["messages"][-1]["content"].endswith(text) is whole
        assert not model.script.spoken
        portions = len(model.script.read)
        await clock.advance(0.3)
        await eventually(lambda: done(server, "prefill", "finished") == 2)
        await eventually(lambda: len(model.script.spoken) == whole)
        assert (len(model.script.read) == portions) is whole


@pytest.mark.parametrize(
    ("rest", "sent"),
    [
        ("Do you like the sea?", "Do you like the sea? I do."),
        ("Do you like the sea?", "Do you like the sea"),
        ("Do you like the sea", "Do you like the sea"),
    ],
)
async def test_a_reply_to_anything_else_is_dropped(
    start: StartServer, rest: str, sent: str
) -> None:
    """The model answers what was sent; an unfinished sentence is not answered ahead at all."""
    clock = ManualClock()
    async with scripted_model(Script(reply=lambda _: ["To", " you"])) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await rested(client, server, clock, rest)
        await eventually(lambda: done(server, "prefill", "finished") == 1)
        seen = await answered(client, sent)
        assert seen["message.accepted"]["ahead"] == "prefill"
        assert model.script.spoken[-1]["messages"][-1]["content"].endswith(f"\n\n{sent}")
        assert done(server, "reply", "used") == 0
        turns = await owner_of(server.app.core).fetch("SELECT content FROM turns ORDER BY id")
        assert [turn["content"] for turn in turns] == [sent, "To you"]


async def test_who_waits_displaces_what_is_made_ahead(start: StartServer) -> None:
    """On a server with one slot, a held reply is closed before another player's request."""
    clock, script = ManualClock(), Script()
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client, other = await server.session("ana"), await server.session("ben")
        script.hold_before, script.hold_after = asyncio.Event(), 1
        await rested(client, server, clock, "Do you like the sea?")
        await eventually(lambda: len(script.spoken) == 1)
        await other.send("Hello")
        await eventually(lambda: len(script.spoken) == 2)
        await eventually(lambda: "left" in script.finished)
        script.hold_before.set()
        await other.expect("response.done")
        seen = await answered(client, "Do you like the sea?")
        assert seen["response.done"]["text"] == "Hello there."
        assert len(script.spoken) == 3


async def test_a_model_that_fails_ahead_fails_nobody(start: StartServer) -> None:
    """The player hears nothing of it, and Enter tries for itself."""
    clock, script = ManualClock(), Script(status=500)
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await rested(client, server, clock, "Do you like the sea?")
        await eventually(lambda: done(server, "prefill", "failed") == 1)
        script.status = 200
        seen = await answered(client, "Do you like the sea?")
        assert seen["message.accepted"]["ahead"] == "nothing"
        assert seen["response.done"]["status"] == "completed"


async def test_what_is_forgotten_is_not_said_ahead(start: StartServer) -> None:
    """A reply that was made of it is dropped with it, and so is the layout."""
    clock = ManualClock()
    async with scripted_model(Script(background=curate)) as model:
        server = await start(
            clock, llm_url=model.url, llm_ahead="reply", eager=False, layers_off=_MADE
        )
        client = await server.session()
        stored = (await answered(client, PROMISE))["memory.stored"]
        await World(server, clock, model).next_day()
        client = await server.session()
        await rested(client, server, clock, QUESTION)
        await eventually(lambda: len(model.script.spoken) == 2)
        assert PROMISE in model.script.spoken[-1]["messages"][-1]["content"]
        bond = await owner_of(server.app.core).fetchval("SELECT id FROM relationships")
        memory = f"/v1/relationships/{bond}/memories/{stored['memory_id']}?user=ana"
        assert (await request(server, "DELETE", memory))[0] == 200
        await eventually(lambda: done(server, "reply", "dropped") == 1)
        await client.send(QUESTION)
        assert (await client.expect("message.accepted"))["ahead"] == "nothing"
        await client.expect("response.done")
        assert PROMISE not in str(model.script.spoken[-1]["messages"])


async def test_leaving_stops_what_the_model_does(start: StartServer) -> None:
    """The request is closed, and nothing is stored."""
    clock, script = ManualClock(), Script(hold_before=asyncio.Event(), hold_after=1)
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await rested(client, server, clock, "Do you like the sea?")
        await eventually(lambda: len(script.spoken) == 1)
        await client.close()
        await eventually(lambda: "left" in script.finished)
        assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0
