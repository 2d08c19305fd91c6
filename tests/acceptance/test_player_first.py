"""Replies preempt background work on a model server with one slot."""

import asyncio
import json
import re
from typing import Any

import pytest

from foremind.testing.background_answers import curate
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, in_background, scripted_model
from tests.acceptance.layers import World
from tests.conftest import StartServer, eventually


def malformed_json(chat: dict[str, Any]) -> str:
    """A model that reasons aloud and returns malformed JSON."""
    answer = json.loads(curate(chat))
    for operation in answer.get("operations", ()):
        operation["op"], operation["kind"] = operation["op"].lower(), operation["kind"].title()
    written = json.dumps(answer, indent=1)[:-1].rstrip() + ",}"
    return f"<think>\nJSON, {{so}} be it.\n</think>\nHere it is:\n```json\n{written}\n```\nBye!"


async def test_a_reply_preempts_background_work(start: StartServer) -> None:
    """The interrupted request for notes is repeated later."""
    hold = asyncio.Event()
    script = Script(
        background=curate, holds=lambda chat: hold if in_background(chat) else None, slots=1
    )
    async with scripted_model(script) as model:
        clock = ManualClock()
        server = await start(clock=clock, llm_url=model.url, llm_slots=1)
        client = await server.session()
        for number in (1, 2):
            await client.send(f"I have {number} boats.")
            done = await client.expect("response.done")  # does not wait for the slot
            assert done["status"] == "completed"
            await eventually(lambda: len(script.asked) >= number)  # noqa: B023 - awaited at once
        assert len(script.spoken) == 2 and script.finished.count("left") >= 1
        hold.set()
        await World(server, clock, model).wait_until_idle()
        count = server.app.core.metrics.registry.get_sample_value
        notes = {"work": "notes"}
        assert (count("foremind_curated_total", {**notes, "outcome": "displaced"}) or 0) >= 1
        assert count("foremind_curated_total", {**notes, "outcome": "failed"}) is None


@pytest.mark.parametrize("forms", [("json_schema",), ()])
async def test_a_model_with_malformed_json_fills_every_layer(
    start: StartServer, forms: tuple[str, ...]
) -> None:
    """It reasons aloud, wraps and breaks its JSON; with and without structured output."""
    script = Script(background=malformed_json, forms=forms, slots=1)
    async with scripted_model(script) as model:
        clock = ManualClock()
        w = World(await start(clock=clock, llm_url=model.url, llm_slots=1), clock, model)
        await w.talk("My sister Ines has decided to keep bees.", "I am afraid of storms.")
        await w.next_day()
        for layer in ("scratchpad", "episodes", "opening", "hot"):
            authors = {record["made_by"] for record in await w.records(layer)}
            assert authors == {"model"}, layer


def verbose_notes(chat: dict[str, Any]) -> str:
    """A model that takes long notes of every message without one."""
    known, said = chat["messages"][1]["content"].split("Said:")
    said_numbers = re.findall(r'"Ana": "Number (\d+)', said)
    numbers = [number for number in said_numbers if f"No. {number}," not in known]
    entries = [f"No. {number}, {part}. {'It went on and on. ' * 13}" for number in numbers
               for part in ("seen", "felt", "planned")]  # fmt: skip
    return json.dumps(
        {"operations": [{"op": "ADD", "kind": "other", "entry": entry} for entry in entries]}
    )


async def test_long_notes_are_taken_in_batches(start: StartServer) -> None:
    """The complete part of a truncated answer is kept, and the rest is requested again."""
    hold = asyncio.Event()
    script = Script(
        background=lambda chat: verbose_notes(chat) if "operations" in str(chat) else curate(chat),
        holds=lambda chat: hold if in_background(chat) else None,
        letters_per_token=4,
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
        count = w.server.app.core.metrics.registry.get_sample_value
        assert count("foremind_curated_total", {"work": "notes", "outcome": "failed"}) is None
