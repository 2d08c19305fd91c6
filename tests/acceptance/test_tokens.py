"""Tokens are counted by companion and purpose, and an operator may limit a player's of a day."""

import asyncio
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.companion_rules import Behaviour
from foremind.domain.settings.settings import CompanionSettings
from foremind.llm.prompt.token_counter import counter_for, prompt_tokens
from foremind_client import Client
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.test_speculation import DERIVED_LAYERS, speculation_count, type_and_pause
from tests.acceptance.world import world
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    all_announcements_handled,
    eventually,
    eventually_async,
    owner_of,
)

PROMPT, REPLY = 4321, 17
COUNTED = {"prompt_tokens": PROMPT, "completion_tokens": REPLY, "total_tokens": PROMPT + REPLY}
MIDNIGHT_S = 12 * 3600.0  # the clocks of tests begin at noon


def tokens(server: RunningServer, companion: str = "wren") -> dict[str, tuple[float, float]]:
    """Return the tokens of prompts and of what was written, by purpose."""
    sums: dict[str, list[float]] = {}
    for family in server.app.core.runtime.metrics.tokens.collect():
        for sample in family.samples:
            labels = sample.labels
            if sample.name.endswith("_total") and labels["companion"] == companion:
                of_kind = sums.setdefault(labels["purpose"], [0.0, 0.0])
                of_kind[labels["kind"] == "completion"] += sample.value
    return {purpose: (prompt, written) for purpose, (prompt, written) in sums.items()}


async def reply_to(client: Client, text: str, message_id: str | None = None) -> dict[str, Any]:
    """Send a message; return how its reply ended."""
    await client.send(text, message_id)
    return await client.expect("response.done")


def by_tokenizer(model: ScriptedModel, text: str) -> tuple[float, float]:
    """Return what the last request of a player comes to where the server counts nothing."""
    counter = counter_for(None)
    return prompt_tokens(model.script.player_requests[-1]["messages"], counter), counter(text)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        [],
        "many",
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": "12", "completion_tokens": "3"},
        {"prompt_tokens": 12.5, "completion_tokens": 1.5},
        {"prompt_tokens": True, "completion_tokens": True},
        {"prompt_tokens": -5, "completion_tokens": -1},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 10**30, "completion_tokens": 2**63},
        {"total_tokens": 9},
    ],
)
async def test_what_a_server_cannot_have_counted_is_counted_by_the_tokenizer(
    start: StartServer, usage: object
) -> None:
    async with scripted_model(Script(usage=lambda _, __: usage)) as model:
        server = await start(llm_url=model.url, layers_off={"scratchpad", "profile"})
        await reply_to(await server.session(), "Hello")
        assert tokens(server)["reply"] == by_tokenizer(model, "Hello there.")


@pytest.mark.parametrize("reply_mode", ["stream", "whole", "whole as a stream"])
async def test_what_a_server_counted_counts(start: StartServer, reply_mode: Any) -> None:
    """In whatever form it answers; each field by itself."""
    script = Script(usage=lambda _, __: COUNTED, reply_mode=reply_mode)
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url, layers_off={"scratchpad", "profile"})
        client = await server.session()
        await reply_to(client, "Hello")
        assert tokens(server)["reply"] == (PROMPT, REPLY)
        script.usage = lambda _, __: COUNTED | {"completion_tokens": -1}
        await reply_to(client, "And now?")
        written = by_tokenizer(model, "Hello there.")[1]
        assert tokens(server)["reply"] == (2 * PROMPT, REPLY + written)
    assert all(chat["stream_options"] == {"include_usage": True} for chat in script.player_requests)


async def test_a_server_that_refuses_to_be_asked_is_not_asked_again(start: StartServer) -> None:
    script = Script(stream_options=False)
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url, layers_off={"scratchpad", "profile"})
        client = await server.session()
        for _ in range(2):
            assert (await reply_to(client, "Hello"))["text"] == "Hello there."
        # A prompt that is read ahead of the first message may find it out at the same time.
        asked = ["stream_options" in chat for chat in script.requests]
        assert asked[0] and asked.count(True) <= 2 and not any(asked[4:])
        assert tokens(server)["reply"][1] == 2 * counter_for(None)("Hello there.")


async def test_a_reply_that_is_stopped_counts_as_far_as_it_came(start: StartServer) -> None:
    """With its reasoning, which nobody is shown; a refused request counts nothing."""
    reasoning, never = "I should greet her warmly.", asyncio.Event()
    script = Script(
        reasoning=reasoning, hold_before=never, hold_after=1, usage=lambda _, __: COUNTED
    )
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url, layers_off={"scratchpad", "profile"})
        client = await server.session()
        await client.send("Hello")
        response = (await client.expect("response.output_text.delta"))["response_id"]
        await client.send_raw({"type": "response.cancel", "response_id": response})
        assert (await client.expect("response.done"))["status"] == "cancelled"
        assert tokens(server)["reply"] == by_tokenizer(model, reasoning + "Hello")
        script.status = 500
        assert (await reply_to(client, "And?"))["status"] == "failed"
        assert tokens(server)["reply"] == by_tokenizer_of_first(model, reasoning + "Hello")


def by_tokenizer_of_first(model: ScriptedModel, text: str) -> tuple[float, float]:
    """Return what the first request of a player comes to."""
    counter = counter_for(None)
    return prompt_tokens(model.script.player_requests[0]["messages"], counter), counter(text)


async def test_each_purpose_is_counted_apart(start: StartServer) -> None:
    """Replies, behaviours, and each step; all of them together are all requests."""
    diary = Behaviour("diary", "Write one line of diary.", after=True)
    async with world(start, model=True, layers_off={"profile"}) as w:
        assert w.model is not None
        script = w.model.script
        script.usage = lambda _, __: COUNTED
        script.background = lambda chat: (
            "Dear diary." if "one line" in str(chat["messages"][0]) else background_answer(chat)
        )
        settings = CompanionSettings(behaviours=(diary,))
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "A sailor.", "", settings)
        )
        await w.talk(*(f"I planted {number} pear trees" for number in range(1, 5)))
        await w.next_day()
        counted = tokens(w.server)
        purposes = {"reply", "behaviour", "notes", "episodes", "hot"}
        assert purposes <= counted.keys()
        requests = len(script.requests) - len(script.prefill_requests)
        without_ahead = [amount for purpose, amount in counted.items() if purpose != "ahead"]
        assert sum(written for _, written in without_ahead) == requests * REPLY
        assert counted["reply"] == (4 * PROMPT, 4 * REPLY)


async def test_what_is_read_and_written_before_enter_counts_as_ahead(start: StartServer) -> None:
    """Also if nothing comes of it."""
    clock = ManualClock()
    async with scripted_model(Script(usage=lambda _, __: COUNTED)) as model:
        server = await start(clock=clock, llm_url=model.url, llm_ahead="reply")
        client = await server.session()
        await type_and_pause(client, server, clock, "What did I promise?")
        await eventually(lambda: model.script.finished == ["done"])

        def is_counted() -> bool:
            prompt, written = tokens(server).get("ahead", (0, 0))
            return prompt >= 2 * PROMPT and written >= REPLY

        await eventually(is_counted)
        await client.draft("")
        await eventually(lambda: speculation_count(server, "reply", "dropped") == 1)
        assert tokens(server).keys() == {"ahead"}


def failed(done: dict[str, Any], seconds: float) -> None:
    """Check that a reply failed for the limit, and says when it will not."""
    error = done["error"]
    assert (done["status"], done["text"]) == ("failed", "")
    assert (error["type"], error["code"]) == ("rate_limit_error", "token_limit")
    assert error["retryable"] is True
    assert error["retry_after_s"] == pytest.approx(seconds, abs=60)
    assert "2026-05-02T00:00Z" in error["message"]


async def test_beyond_the_limit_a_message_is_kept_and_answered_tomorrow(start: StartServer) -> None:
    """Over all companions of a player; others are answered."""
    clock = ManualClock()
    script = Script(usage=lambda _, __: COUNTED)
    async with scripted_model(script) as model:
        server = await start(
            clock=clock,
            llm_url=model.url,
            llm_tokens_per_day=2 * PROMPT,
            layers_off={"scratchpad", "profile"},
        )
        await server.app.core.stores.companions.put(CompanionFile("saffi", "Saffi", "A sailor."))
        wren, saffi = await server.session(), await server.session(companion="saffi")
        assert (await reply_to(wren, "I keep bees"))["status"] == "completed"
        assert (await reply_to(saffi, "I keep bees"))["status"] == "completed"
        for client in (wren, saffi):
            failed(await reply_to(client, "How many hives?", f"late{id(client)}"), MIDNIGHT_S)
        assert (await reply_to(await server.session("ben"), "Hello"))["status"] == "completed"
        assert len(script.player_requests) == 3
        await clock.leap(MIDNIGHT_S - 120)
        wren = await server.session()
        failed(await reply_to(wren, "How many hives?", "late"), 120)
        await clock.advance(120)
        done = await reply_to(wren, "How many hives?", "late")
        assert done["status"] == "completed"
        said = await owner_of(server.app.core).fetchval(
            "SELECT count(*) FROM turns WHERE message_id = 'late'"
        )
        assert said == 1


async def test_a_companions_own_limit_is_for_its_tokens_alone(start: StartServer) -> None:
    """It may be more than the server's or less, and is looked up for every message."""
    async with scripted_model(Script(usage=lambda _, __: COUNTED)) as model:
        server = await start(
            llm_url=model.url, llm_tokens_per_day=1, layers_off={"scratchpad", "profile"}
        )
        companions = server.app.core.stores.companions

        async def limit(slug: str, most: int | None) -> None:
            settings = CompanionSettings(llm_tokens_per_day=most)
            await companions.put(CompanionFile(slug, slug.title(), "A sailor.", "", settings))
            await all_announcements_handled(server)

        await limit("wren", 2 * PROMPT)
        await limit("saffi", 2 * PROMPT)
        wren, saffi = await server.session(), await server.session(companion="saffi")
        for client in (wren, wren, saffi):
            assert (await reply_to(client, "Hello"))["status"] == "completed"
        assert (await reply_to(wren, "Hello"))["error"]["code"] == "token_limit"
        assert (await reply_to(saffi, "Hello"))["status"] == "completed"
        await limit("wren", 1_000_000)
        assert (await reply_to(wren, "Hello"))["status"] == "completed"
        await limit("wren", None)
        assert (await reply_to(wren, "Hello"))["error"]["code"] == "token_limit"


async def test_background_work_stops_first_and_is_done_tomorrow(start: StartServer) -> None:
    """From nine tenths of the limit on; nothing of it is lost."""
    most = 10 * (PROMPT + REPLY)
    async with world(start, model=True, llm_tokens_per_day=most) as w:
        assert w.model is not None
        script = w.model.script
        script.usage = lambda chat, _: COUNTED if chat["temperature"] else None
        await w.talk(*(f"I planted pear tree number {number}" for number in range(8)))
        notes = len(await w.records("scratchpad"))
        assert notes > 0
        await w.talk("I painted the gate green")
        before = len(script.background_requests)
        await w.talk("I sold the boat to Nadia")
        assert w.events[-1]["type"] and len(script.background_requests) == before
        steps = {step["step"]: step for step in (await w.request("GET", "/status"))["steps"]}
        assert (steps["notes"]["state"], steps["notes"]["code"]) == ("backing_off", "token_limit")
        assert steps["notes"]["due_at"].startswith("2026-05-02T00:00")
        await w.clock.leap(MIDNIGHT_S)
        await w.wait_until_idle()
        assert any("Nadia" in note["content"] for note in await w.records("scratchpad"))


async def test_over_http_the_status_says_when_to_retry(start: StartServer) -> None:
    """And the same id is answered once there are tokens again."""
    clock = ManualClock()
    async with scripted_model(Script(usage=lambda _, __: COUNTED)) as model:
        server = await start(
            clock=clock, llm_url=model.url, llm_tokens_per_day=100, layers_off=DERIVED_LAYERS
        )
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE
        ) as http:

            async def turn(turn_id: str) -> httpx2.Response:
                body = {"companion": "wren", "user": "ana", "id": turn_id, "text": "Hello"}
                return await http.post("/v1/turns", json=body)

            assert (await turn("t1")).status_code == 200
            refused = await turn("t2")
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (429, "token_limit")
            assert int(refused.headers["retry-after"]) == pytest.approx(MIDNIGHT_S, abs=60)
            assert error["retry_after_s"] == pytest.approx(MIDNIGHT_S, abs=60)
            chat = {
                "model": "wren",
                "user": "ana",
                "messages": [{"role": "user", "content": "Oh?"}],
            }
            refused = await http.post("/v1/chat/completions", json=chat)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "token_limit")
            await clock.leap(MIDNIGHT_S)
            answered = await turn("t2")
            assert answered.json()["replies"][0]["text"] == "Hello there."


async def test_a_restart_and_another_gateway_forget_nothing(
    start: StartServer, settings: Any
) -> None:
    """An erased user leaves nothing behind."""
    async with scripted_model(Script(usage=lambda _, __: COUNTED)) as model:
        clock = ManualClock()
        changes = {"clock": clock, "llm_url": model.url, "llm_tokens_per_day": PROMPT}
        first = await start(**changes)
        second = await start(**changes)
        assert (await reply_to(await first.session(), "Hello"))["status"] == "completed"
        pool = owner_of(first.app.core)
        await clock.advance(6)

        async def stored() -> bool:
            tokens_stored = await pool.fetchval("SELECT sum(tokens) FROM spent_tokens")
            return bool(tokens_stored == PROMPT + REPLY)

        await eventually_async(stored)
        failed(await reply_to(await second.session(), "And?"), MIDNIGHT_S)
        third = await start(**changes)
        failed(await reply_to(await third.session(), "And?"), MIDNIGHT_S)
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            erased = await http.delete(f"http://127.0.0.1:{first.port}/v1/users/ana?user=ana")
            assert erased.status_code == 200, erased.text
        assert await pool.fetchval("SELECT count(*) FROM spent_tokens") == 0
