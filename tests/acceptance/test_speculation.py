"""Speculation by the language model before Enter: prefill, and replies held back until Enter."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from starlette.responses import StreamingResponse

from foremind.llm.slots import shared_prefix_chars
from foremind_client import Client
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_models import ConvertedEncoder
from tests.acceptance.test_embedding_server import double
from tests.acceptance.test_http import request
from tests.acceptance.test_message_path import PROMISE, metric_value, send_and_wait, type_text
from tests.acceptance.world import World
from tests.conftest import (
    RunningServer,
    StartServer,
    all_announcements_handled,
    eventually,
    owner_of,
)

QUESTION = "What did I promise about the garden?"
DERIVED_LAYERS = (
    "scratchpad",
    "profile",
    "summary",
    "opening",
    "episodes",
    "topics",
    "questions",
    "hot",
)


def _has_prefilled(server: RunningServer, times: int) -> bool:
    return speculation_count(server, "prefill", "finished") == times


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
        assert len(model.script.prefill_requests) > 1 and not model.script.player_requests
        assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0
        prefilled = model.script.prefill_requests[-1]["messages"]
        events = await send_and_wait(client, "Good morning to you")
        assert events["message.accepted"]["ahead"] == "prefill"
        (spoken,) = model.script.player_requests
        assert shared_prefix_chars(prefilled, spoken["messages"]) == sum(
            len(message["content"]) for message in prefilled
        )


async def test_memories_recalled_at_the_pause_keep_their_place_in_the_prompt(
    start: StartServer,
) -> None:
    """Those that Enter adds follow, and the message is complete."""
    clock = ManualClock()
    async with scripted_model(Script(background=background_answer)) as model:
        server = await start(
            clock, llm_url=model.url, llm_ahead="prefill", eager=False, layers_off=DERIVED_LAYERS
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
        prefilled = model.script.prefill_requests[-1]["messages"][-1]["content"]
        text = "What did I promise about the garden and about the cats of Filomena?"
        await send_and_wait(client, text)
        spoken = model.script.player_requests[-1]["messages"][-1]["content"]
        shared_prefix, _, _ = prefilled.rpartition("\n\n")
        assert PROMISE in shared_prefix and "Filomena" in spoken.removesuffix(text)
        assert spoken.startswith(shared_prefix) and spoken.endswith(f"\n\n{text}")


async def test_what_is_recalled_while_a_sentence_is_typed_is_prefilled_with_it(
    start: StartServer,
) -> None:
    """What is typed next continues the same prompt."""
    clock = ManualClock()
    async with scripted_model(Script(background=background_answer)) as model:
        server = await start(
            clock, llm_url=model.url, llm_ahead="prefill", layers_off=DERIVED_LAYERS
        )
        client = await server.session()
        await send_and_wait(client, PROMISE)
        await World(server, clock, model).next_day()
        client = await server.session()
        draft = "What did I promise about the garden"
        await type_text(client, server, draft)
        await clock.advance(0.2)
        assert (await client.expect("context.ready"))["trigger"] == "eager"
        await eventually(lambda: speculation_count(server, "prefill", "finished") >= 1)
        prefilled = model.script.prefill_requests[-1]["messages"]
        assert PROMISE in prefilled[-1]["content"] and prefilled[-1]["content"].endswith(draft)
        await send_and_wait(client, f"{draft} last spring")
        spoken = model.script.player_requests[-1]["messages"]
        assert spoken[-1]["content"] == prefilled[-1]["content"] + " last spring"
        assert spoken[:-1] == prefilled[:-1]


async def test_the_model_reads_every_draft_that_settles_to_its_end(start: StartServer) -> None:
    """From the third word on, so that nothing is left to read where one is sent as it is."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="prefill")
        client = await server.session()
        drafts = ("I won a ", "I won a marathons", "I won a marathon", "I won a marathon.")
        for times, draft in enumerate(drafts, 1):
            await type_text(client, server, draft)
            await clock.advance(0.2)
            assert (await client.expect("context.ready"))["trigger"] == "eager"
            await eventually(partial(_has_prefilled, server, times))
            prefilled = model.script.prefill_requests[-1]["messages"]
            # A space is read with the next word.
            assert prefilled[-1]["content"].endswith(f"\n\n{draft.rstrip()}")
        await send_and_wait(client, draft)
        assert model.script.player_requests[-1]["messages"] == prefilled


async def test_a_draft_is_read_before_its_context_is_ready(
    start: StartServer, model: ConvertedEncoder
) -> None:
    """With what was recalled for the draft before it, as its own context may come too late."""
    clock, release = ManualClock(), asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        yield b" "
        await release.wait()

    async with scripted_model() as llm, double(lambda _: StreamingResponse(late())) as embedder:
        embedder.encoder = model.encoder()
        server = await start(
            clock,
            llm_url=llm.url,
            llm_ahead="prefill",
            embedding_url=embedder.url,
            embedding_timeout_s=60.0,
        )
        client = await server.session()
        await type_text(client, server, "I won a")
        await clock.advance(0.2)
        assert (await client.expect("context.ready"))["draft"] == "I won a"
        await eventually(partial(_has_prefilled, server, 1))
        embedder.spoilt = True
        for times, draft in ((2, "I won a prize"), (3, "I won a prize yesterday")):
            await type_text(client, server, draft)
            await clock.advance(0.2)
            await eventually(partial(_has_prefilled, server, times))
            prefilled = llm.script.prefill_requests[-1]
            assert prefilled["messages"][-1]["content"].endswith(draft)
        release.set()  # with no vector, so that the text is embedded locally
        events = await send_and_wait(client, draft)
        assert events["message.accepted"]["ahead"] == "prefill"
        assert llm.script.player_requests[-1]["messages"] == prefilled["messages"]


async def test_a_speculative_reply_is_released_by_enter(start: StartServer) -> None:
    """For a complete sentence; nothing of it leaves the server before Enter."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, "Do you like the sea?")
        await eventually(lambda: model.script.finished == ["done"])
        assert len(model.script.player_requests) == 1
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
        assert len(model.script.player_requests) == 1


async def test_a_speculative_reply_that_began_with_thinking_is_released(start: StartServer) -> None:
    """Also if only its closing tag told that: the player waits for `response.done`."""
    clock = ManualClock()
    thinking = ["She asks me.", "\n</think>\n\nWren: Yes."]
    async with scripted_model(Script(reply=lambda _: thinking)) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, "Do you like the sea?")
        await eventually(lambda: model.script.finished == ["done"])
        events = await send_and_wait(client, "Do you like the sea?")
        assert events["message.accepted"]["ahead"] == "reply"
        assert (events["response.done"]["status"], events["response.done"]["text"]) == (
            "completed",
            "Yes.",
        )


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
        assert (
            model.script.prefill_requests[-1]["messages"][-1]["content"].endswith(text) is complete
        )
        assert not model.script.player_requests
        chunks = len(model.script.prefill_requests)
        await clock.advance(0.3)
        await eventually(lambda: speculation_count(server, "prefill", "finished") == 2)
        await eventually(lambda: len(model.script.player_requests) == complete)
        assert (len(model.script.prefill_requests) == chunks) is complete


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
        assert model.script.player_requests[-1]["messages"][-1]["content"].endswith(f"\n\n{sent}")
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
        await eventually(lambda: len(script.player_requests) == 1)
        await other.send("Hello")
        await eventually(lambda: len(script.player_requests) == 2)
        await eventually(lambda: "left" in script.finished)
        script.hold_before.set()
        await other.expect("response.done")
        events = await send_and_wait(client, "Do you like the sea?")
        assert events["response.done"]["text"] == "Hello there."
        assert len(script.player_requests) == 3


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
    async with scripted_model(Script(background=background_answer)) as model:
        server = await start(
            clock, llm_url=model.url, llm_ahead="reply", eager=False, layers_off=DERIVED_LAYERS
        )
        client = await server.session()
        stored = (await send_and_wait(client, PROMISE))["memory.stored"]
        await World(server, clock, model).next_day()
        client = await server.session()
        await type_and_pause(client, server, clock, QUESTION)
        await eventually(lambda: len(model.script.player_requests) == 2)
        assert PROMISE in model.script.player_requests[-1]["messages"][-1]["content"]
        relationship = await owner_of(server.app.core).fetchval("SELECT id FROM relationships")
        memory = f"/v1/relationships/{relationship}/memories/{stored['memory_id']}?user=ana"
        assert (await request(server, "DELETE", memory))[0] == 200
        await eventually(lambda: speculation_count(server, "reply", "dropped") == 1)
        await client.send(QUESTION)
        assert (await client.expect("message.accepted"))["ahead"] == "nothing"
        await client.expect("response.done")
        assert PROMISE not in str(model.script.player_requests[-1]["messages"])


async def test_disconnecting_cancels_speculation(start: StartServer) -> None:
    """The request to the model is closed, and nothing is stored."""
    clock, script = ManualClock(), Script(hold_before=asyncio.Event(), hold_after=1)
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        client = await server.session()
        await type_and_pause(client, server, clock, "Do you like the sea?")
        await eventually(lambda: len(script.player_requests) == 1)
        await client.close()
        await eventually(lambda: "left" in script.finished)
        assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0


async def test_between_messages_the_beginning_of_the_next_prompt_is_prefilled(
    start: StartServer,
) -> None:
    """When a session is opened, after a reply, and when a layer changes; without being asked."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url)
        client = await server.session()
        await eventually(lambda: "Wren" in str(last_prefill(model.script)))
        await send_and_wait(client, "Good morning to you")
        await eventually(lambda: "Hello there." in str(last_prefill(model.script)))
        world = World(server, clock, model)
        world.relationship = await relationship_of(server)
        profile = {"layer": "profile", "kind": "preference", "content": "Keeps three bees"}
        await world.request("POST", "/records", profile)
        await eventually(lambda: "Keeps three bees" in str(last_prefill(model.script)))
        prefilled = last_prefill(model.script)
        await send_and_wait(client, "And to the bees")
        spoken = model.script.player_requests[-1]["messages"]
        assert "Hello there." in str(prefilled) and "Keeps three bees" in str(prefilled)
        assert prefilled == spoken[: len(prefilled)]


async def test_the_next_prompt_is_not_prefilled_where_tokens_cost_money(
    start: StartServer,
) -> None:
    """A model server with a key bills what it reads."""
    async with scripted_model() as model:
        server = await start(ManualClock(), llm_url=model.url, llm_key="k")
        client = await server.session()
        await send_and_wait(client, "Good morning to you")
        await send_and_wait(client, "And to the bees")
        assert len(model.script.player_requests) == 2 and not model.script.prefill_requests


async def test_an_erased_prompt_is_not_prefilled_again(start: StartServer) -> None:
    """What was forgotten is not sent to the model server after that."""
    clock = ManualClock()
    async with scripted_model(Script(background=background_answer)) as model:
        server = await start(clock, llm_url=model.url, layers_off=DERIVED_LAYERS)
        client = await server.session()
        stored = (await send_and_wait(client, PROMISE))["memory.stored"]
        await eventually(lambda: PROMISE in str(last_prefill(model.script)))
        world = World(server, clock, model)
        world.relationship = await relationship_of(server)
        await world.request("DELETE", f"/memories/{stored['memory_id']}")
        await all_announcements_handled(server)
        requests = len(model.script.requests)
        await send_and_wait(client, "Good morning to you")
        await eventually(lambda: "Good morning" in str(last_prefill(model.script)))
        assert PROMISE not in str(model.script.requests[requests:])


async def relationship_of(server: RunningServer) -> int:
    """Return the id of the only relationship."""
    found = await owner_of(server.app.core).fetchval("SELECT id FROM relationships")
    assert isinstance(found, int)
    return found


def last_prefill(script: Script) -> list[dict[str, str]]:
    """Return the messages of the latest prefill, without the placeholder that ends them."""
    return script.prefill_requests[-1]["messages"][:-1] if script.prefill_requests else []
