"""Speculation by the language model before Enter: prefill, and replies held back until Enter."""

import asyncio

import pytest

from foremind.client import Client
from foremind.llm.prompt.prefill_chunks import shared
from foremind.testing.background_answers import curate
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, scripted_model
from tests.acceptance.layers import World
from tests.acceptance.test_http import request
from tests.acceptance.test_path import PROMISE, metric_value, send_and_wait, type_text
from tests.conftest import RunningServer, StartServer, eventually, owner_of

QUESTION = "What did I promise about the garden?"
_DERIVED_LAYERS = (
    "scratchpad",
    "profile",
    "summary",
    "opening",
    "episodes",
    "topics",
    "questions",
    "hot",
)


async def type_and_pause(
    client: Client, server: RunningServer, clock: ManualClock, text: str
) -> None:
    """Type a text and pause until its context is ready."""
    await type_text(client, server, text)
    await clock.advance(0.5)
    await client.expect("context.ready")


def speculation_count(server: RunningServer, kind: str, outcome: str) -> float:
    """Return how often a kind of speculation had an outcome."""
    return metric_value(server, "foremind_model_ahead_total", kind=kind, outcome=outcome)


async def test_the_prompt_is_prefilled_at_a_pause(start: StartServer) -> None:
    """In chunks, each with one output token; Enter's request shares their prefix."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="prefill", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, "Good morning to")
        await eventually(lambda: speculation_count(server, "prefill", "finished") == 1)
        assert len(model.script.read) > 1 and not model.script.spoken
        assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0
        events = await send_and_wait(client, "Good morning to you")
        assert events["message.accepted"]["ahead"] == "prefill"
        (spoken,) = model.script.spoken
        prefilled = model.script.read[-1]["messages"]
        assert shared(prefilled, spoken["messages"]) == sum(
            len(message["content"]) for message in prefilled
        )


async def test_memories_recalled_at_the_pause_keep_their_place_in_the_prompt(
    start: StartServer,
) -> None:
    """Those that Enter adds follow, and the message is complete."""
    clock = ManualClock()
    async with scripted_model(Script(background=curate)) as model:
        server = await start(
            clock, llm_url=model.url, llm_ahead="prefill", eager=False, layers_off=_DERIVED_LAYERS
        )
        client = await server.session()
        await send_and_wait(client, PROMISE)
        await send_and_wait(
            client, "I also promise to feed the three cats of my neighbour Filomena"
        )
        await World(server, clock, model).next_day()
        client = await server.session()
        await type_and_pause(client, server, clock, "What did I promise about the garden")
        await eventually(lambda: speculation_count(server, "prefill", "finished") >= 1)
        prefilled = model.script.read[-1]["messages"][-1]["content"]
        text = "What did I promise about the garden and about the cats of Filomena?"
        await send_and_wait(client, text)
        spoken = model.script.spoken[-1]["messages"][-1]["content"]
        shared_prefix, _, _ = prefilled.rpartition("\n\n")
        assert PROMISE in shared_prefix and "Filomena" in spoken.removesuffix(text)
        assert spoken.startswith(shared_prefix) and spoken.endswith(f"\n\n{text}")


async def test_a_speculative_reply_is_released_by_enter(start: StartServer) -> None:
    """For a complete sentence; nothing of it leaves the server before Enter."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, "Do you like the sea?")
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


@pytest.mark.parametrize(("text", "complete"), [("Like it?", True), ("Like it", False)])
async def test_a_complete_sentence_is_prefilled_before_the_pause(
    start: StartServer, text: str, complete: bool
) -> None:
    """As soon as it settles, to its end, so that only the reply remains; others up to the draft."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply")
        client = await server.session()
        await type_text(client, server, text)
        await clock.advance(0.2)
        assert (await client.expect("context.ready"))["trigger"] == "eager"
        await eventually(lambda: speculation_count(server, "prefill", "finished") == 1)
        assert model.script.read[-1]["messages"][-1]["content"].endswith(text) is complete
        assert not model.script.spoken
        chunks = len(model.script.read)
        await clock.advance(0.3)
        await eventually(lambda: speculation_count(server, "prefill", "finished") == 2)
        await eventually(lambda: len(model.script.spoken) == complete)
        assert (len(model.script.read) == chunks) is complete


@pytest.mark.parametrize(
    ("draft", "sent"),
    [
        ("Do you like the sea?", "Do you like the sea? I do."),
        ("Do you like the sea?", "Do you like the sea"),
        ("Do you like the sea", "Do you like the sea"),
    ],
)
async def test_a_speculative_reply_to_another_text_is_discarded(
    start: StartServer, draft: str, sent: str
) -> None:
    """The model answers the sent text; there is no speculative reply to incomplete sentences."""
    clock = ManualClock()
    async with scripted_model(Script(reply=lambda _: ["To", " you"])) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, draft)
        await eventually(lambda: speculation_count(server, "prefill", "finished") == 1)
        events = await send_and_wait(client, sent)
        assert events["message.accepted"]["ahead"] == "prefill"
        assert model.script.spoken[-1]["messages"][-1]["content"].endswith(f"\n\n{sent}")
        assert speculation_count(server, "reply", "used") == 0
        turns = await owner_of(server.app.core).fetch("SELECT content FROM turns ORDER BY id")
        assert [turn["content"] for turn in turns] == [sent, "To you"]


async def test_a_waiting_player_preempts_speculation(start: StartServer) -> None:
    """On a model server with one slot, the speculative request is closed first."""
    clock, script = ManualClock(), Script()
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client, other = await server.session("ana"), await server.session("ben")
        script.hold_before, script.hold_after = asyncio.Event(), 1
        await type_and_pause(client, server, clock, "Do you like the sea?")
        await eventually(lambda: len(script.spoken) == 1)
        await other.send("Hello")
        await eventually(lambda: len(script.spoken) == 2)
        await eventually(lambda: "left" in script.finished)
        script.hold_before.set()
        await other.expect("response.done")
        events = await send_and_wait(client, "Do you like the sea?")
        assert events["response.done"]["text"] == "Hello there."
        assert len(script.spoken) == 3


async def test_failed_speculation_is_invisible(start: StartServer) -> None:
    """The player gets no error, and Enter makes a request of its own."""
    clock, script = ManualClock(), Script(status=500)
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, "Do you like the sea?")
        await eventually(lambda: speculation_count(server, "prefill", "failed") == 1)
        script.status = 200
        events = await send_and_wait(client, "Do you like the sea?")
        assert events["message.accepted"]["ahead"] == "nothing"
        assert events["response.done"]["status"] == "completed"


async def test_erasure_discards_speculative_replies(start: StartServer) -> None:
    """Those based on what is erased, and the prefilled prompt."""
    clock = ManualClock()
    async with scripted_model(Script(background=curate)) as model:
        server = await start(
            clock, llm_url=model.url, llm_ahead="reply", eager=False, layers_off=_DERIVED_LAYERS
        )
        client = await server.session()
        stored = (await send_and_wait(client, PROMISE))["memory.stored"]
        await World(server, clock, model).next_day()
        client = await server.session()
        await type_and_pause(client, server, clock, QUESTION)
        await eventually(lambda: len(model.script.spoken) == 2)
        assert PROMISE in model.script.spoken[-1]["messages"][-1]["content"]
        relationship = await owner_of(server.app.core).fetchval("SELECT id FROM relationships")
        memory = f"/v1/relationships/{relationship}/memories/{stored['memory_id']}?user=ana"
        assert (await request(server, "DELETE", memory))[0] == 200
        await eventually(lambda: speculation_count(server, "reply", "dropped") == 1)
        await client.send(QUESTION)
        assert (await client.expect("message.accepted"))["ahead"] == "nothing"
        await client.expect("response.done")
        assert PROMISE not in str(model.script.spoken[-1]["messages"])


async def test_disconnecting_cancels_speculation(start: StartServer) -> None:
    """The request to the model is closed, and nothing is stored."""
    clock, script = ManualClock(), Script(hold_before=asyncio.Event(), hold_after=1)
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, "Do you like the sea?")
        await eventually(lambda: len(script.spoken) == 1)
        await client.close()
        await eventually(lambda: "left" in script.finished)
        assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0
