"""A player never waits for what a model does in the background, on a server with one slot."""

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


def sloppy(chat: dict[str, Any]) -> str:
    """What a model that thinks aloud makes of the right answer."""
    answer = json.loads(curate(chat))
    for each in answer.get("operations", ()):
        each["op"], each["kind"] = each["op"].lower(), each["kind"].title()
    written = json.dumps(answer, indent=1)[:-1].rstrip() + ",}"
    return f"<think>\nJSON, {{so}} be it.\n</think>\nHere it is:\n```json\n{written}\n```\nBye!"


async def test_a_reply_takes_the_slot_from_the_background(start: StartServer) -> None:
    """The note that was being written is asked for again, and there in the end, once."""
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
            done = await client.expect("response.done")  # the slot is not waited for
            assert done["status"] == "completed"
            await eventually(lambda: len(script.asked) >= number)  # noqa: B023 - it has it now
        assert len(script.spoken) == 2 and script.finished.count("left") >= 1
        hold.set()
        await World(server, clock, model).settled()
        count = server.app.core.metrics.registry.get_sample_value
        notes = {"work": "notes"}
        assert (count("foremind_curated_total", {**notes, "outcome": "displaced"}) or 0) >= 1
        assert count("foremind_curated_total", {**notes, "outcome": "failed"}) is None


@pytest.mark.parametrize("forms", [("json_schema",), ()])
async def test_a_model_that_cannot_write_json_makes_every_layer(
    start: StartServer, forms: tuple[str, ...]
) -> None:
    """It thinks aloud, wraps and breaks its JSON, whatever the server can be asked for."""
    script = Script(background=sloppy, forms=forms, slots=1)
    async with scripted_model(script) as model:
        clock = ManualClock()
        here = World(await start(clock=clock, llm_url=model.url, llm_slots=1), clock, model)
        await here.talk("My sister Ines has decided to keep bees.", "I am afraid of storms.")
        await here.next_day()
        for layer in ("scratchpad", "episodes", "opening", "hot"):
            made = {record["made_by"] for record in await here.records(layer)}
            assert made == {"model"}, layer


def talkative(chat: dict[str, Any]) -> str:
    """Notes that tell much of each thing that was said, as far as no entry does."""
    known, said = chat["messages"][1]["content"].split("Said:")
    found = re.findall(r'"Ana": "Number (\d+)', said)
    numbers = [each for each in found if f"No. {each}," not in known]
    entries = [f"No. {number}, {part}. {'It went on and on. ' * 13}" for number in numbers
               for part in ("seen", "felt", "planned")]  # fmt: skip
    return json.dumps(
        {"operations": [{"op": "ADD", "kind": "other", "entry": entry} for entry in entries]}
    )


async def test_much_that_was_said_is_noted_in_portions_that_fit(start: StartServer) -> None:
    """An answer that was cut off is kept as far as it goes; what is missing is asked for again."""
    hold = asyncio.Event()
    script = Script(
        background=lambda chat: talkative(chat) if "operations" in str(chat) else curate(chat),
        holds=lambda chat: hold if in_background(chat) else None,
        letters_per_token=4,
    )
    async with scripted_model(script) as model:
        clock = ManualClock()
        here = World(await start(clock=clock, llm_url=model.url, llm_slots=1), clock, model)
        client = await here.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        here.relationship = int(opened["relationship_id"])
        for number in range(1, 7):
            await client.send(f"Number {number} was a harbour that I will never forget.")
            await client.expect("response.done")
        hold.set()
        await here.settled()
        entries = " ".join(record["content"] for record in await here.records("scratchpad"))
        for number in range(1, 7):
            assert f"No. {number}," in entries
        count = here.server.app.core.metrics.registry.get_sample_value
        assert count("foremind_curated_total", {"work": "notes", "outcome": "failed"}) is None
