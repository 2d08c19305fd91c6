"""Replies preempt background work on a model server with one slot."""

import asyncio
import json
import re
from typing import Any

import pytest

from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, is_background_request, scripted_model
from tests.acceptance.world import World
from tests.conftest import FIRST_RELATIONSHIP, StartServer, eventually


def malformed_json(chat: dict[str, Any]) -> str:
    """A model that reasons aloud and returns malformed JSON."""
    answer = json.loads(background_answer(chat))
    for operation in answer.get("operations", ()):
        operation["op"], operation["kind"] = operation["op"].lower(), operation["kind"].title()
    written = json.dumps(answer, indent=1)[:-1].rstrip() + ",}"
    return f"<think>\nJSON, {{so}} be it.\n</think>\nHere it is:\n```json\n{written}\n```\nBye!"


async def test_a_reply_preempts_background_work(start: StartServer) -> None:
    """The interrupted request for notes is repeated later."""
    hold = asyncio.Event()
    script = Script(
        background=background_answer,
        hold_for=lambda chat: hold if is_background_request(chat) else None,
        slots=1,
    )
    async with scripted_model(script) as model:
        clock = ManualClock()
        server = await start(clock=clock, llm_url=model.url, llm_slots=1)
        w = World(server, clock, model)
        client, w.relationship = await server.session(), FIRST_RELATIONSHIP
        for number in (1, 2):
            await client.send(f"I have {number} boats.")
            done = await client.expect("response.done")  # does not wait for the slot
            assert done["status"] == "completed"
            await w.request("POST", "/status")
            await eventually(lambda: len(script.background_requests) >= number)  # noqa: B023 - awaited at once
        assert len(script.player_requests) == 2 and script.finished.count("left") >= 1
        hold.set()
        await w.wait_until_idle()
        count = server.app.core.runtime.metrics.registry.get_sample_value
        notes = {"work": "notes"}
        assert (
            count("foremind_background_tasks_total", {**notes, "outcome": "displaced"}) or 0
        ) >= 1
        assert count("foremind_background_tasks_total", {**notes, "outcome": "failed"}) is None


@pytest.mark.parametrize("forms", [("json_schema",), ()])
async def test_a_model_with_malformed_json_fills_every_layer(
    start: StartServer, forms: tuple[str, ...]
) -> None:
    """It reasons aloud, wraps and breaks its JSON; with and without structured output."""
    script = Script(background=malformed_json, response_formats=forms, slots=1)
    async with scripted_model(script) as model:
        clock = ManualClock()
        w = World(await start(clock=clock, llm_url=model.url, llm_slots=1), clock, model)
        await w.talk("My sister Ines has decided to keep bees.", "I am afraid of storms.")
        await w.next_day()
        for layer in ("scratchpad", "episodes", "opening", "hot"):
            authors = {record["made_by"] for record in await w.records(layer)}
            assert authors == {"model"}, layer


async def test_a_model_that_repeats_its_prompt_leaves_the_layers_to_rules(
    start: StartServer,
) -> None:
    """It writes down the form that it was shown, in prose, as small models do."""

    def parrot(chat: dict[str, Any]) -> str:
        shown = chat["messages"][0]["content"].partition("JSON only: ")[2]
        return f"<think>The form is clear.</think>Sure, here is the JSON:\n```json\n{shown}\n```"

    script = Script(background=parrot, response_formats=(), slots=1)
    async with scripted_model(script) as model:
        clock = ManualClock()
        w = World(await start(clock=clock, llm_url=model.url, llm_slots=1), clock, model)
        await w.talk("I live in Lisbon.", "My goal is to learn Greek.")
        await w.next_day()
        profile = {record["title"]: record["content"] for record in await w.records("profile")}
        assert profile["home"] == "Lisbon"
        notes = [record["content"] for record in await w.records("scratchpad")]
        assert "My goal is to learn Greek." in notes
        records = (await w.request("GET", "/records"))["records"]
        assert not [record for record in records if record["content"].strip() == "…"]
        assert not [record for record in records if "Porto" in record["content"]]


def verbose_notes(chat: dict[str, Any]) -> str:
    """A model that takes long notes of every message without one."""
    known, said = chat["messages"][1]["content"].split("Said:")
    said_numbers = re.findall(r'"Ana": "Number (\d+)', said)
    numbers = [number for number in said_numbers if f"No. {number}," not in known]
    waves = " ".join(map(str, range(100, 160)))
    entries = [f"No. {number}, {part}: never forget that harbour, {waves}" for number in numbers
               for part in ("seen", "felt", "planned")]  # fmt: skip
    return json.dumps(
        {"operations": [{"op": "ADD", "kind": "other", "entry": entry} for entry in entries]}
    )


async def test_long_notes_are_taken_in_batches(start: StartServer) -> None:
    """The complete part of a truncated answer is kept, and the rest is requested again."""
    hold = asyncio.Event()
    script = Script(
        background=lambda chat: (
            verbose_notes(chat) if "operations" in str(chat) else background_answer(chat)
        ),
        hold_for=lambda chat: hold if is_background_request(chat) else None,
        chars_per_token=4,
    )
    async with scripted_model(script) as model:
        clock = ManualClock()
        w = World(await start(clock=clock, llm_url=model.url, llm_slots=1), clock, model)
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        w.relationship = int(opened["relationship_id"])
        for number in range(1, 7):
            await client.send(f"Number {number} was a harbour that I will never forget.")
            await client.expect("response.done")
        hold.set()
        await w.wait_until_idle()
        entries = " ".join(record["content"] for record in await w.records("scratchpad"))
        for number in range(1, 7):
            assert f"No. {number}," in entries
        count = w.server.app.core.runtime.metrics.registry.get_sample_value
        assert (
            count("foremind_background_tasks_total", {"work": "notes", "outcome": "failed"}) is None
        )
