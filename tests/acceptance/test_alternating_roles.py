"""Messages of user and assistant alternate in every prompt, also after failures.

The scripted model server refuses other prompts, as the chat templates of many models do.
"""

import asyncio

from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.world import world
from tests.conftest import StartServer


def last_prompt(script: Script) -> str:
    """Return the text of the last request for a reply."""
    return "\n".join(message["content"] for message in script.player_requests[-1]["messages"])


async def test_roles_alternate_after_a_failed_reply(start: StartServer) -> None:
    """The next message is joined to the unanswered one."""
    async with scripted_model(Script(status=500)) as model:
        client = await (await start(llm_url=model.url)).session()
        for text in ("The rope is red", "The lamp is out"):
            await client.send(text)
            assert (await client.expect("response.done"))["status"] == "failed"
        model.script.status = 200
        await client.send("What did I say?")
        assert (await client.expect("response.done"))["status"] == "completed"
        last = model.script.player_requests[-1]["messages"][-1]["content"]
        assert last.startswith("The rope is red\n\nThe lamp is out\n\n")


async def test_a_message_sent_again_is_in_the_prompt_once(start: StartServer) -> None:
    """At once or after another one; a new id makes it a new message."""
    async with scripted_model(Script(status=500)) as model:
        server = await start(llm_url=model.url, layers_off=["memories"])
        client = await server.session()
        await client.send("The rope is red", "m1")
        await client.expect("response.done")
        model.script.status = 200
        await client.send("The rope is red", "m1")
        assert (await client.expect("response.done"))["status"] == "completed"
        assert last_prompt(model.script).count("The rope is red") == 1
        model.script.status = 500
        for text, message_id in (("The lamp is out", "m2"), ("The hull leaks", "m3")):
            await client.send(text, message_id)
            await client.expect("response.done")
        model.script.status = 200
        for message_id in ("m2", "m4"):
            await client.send("The lamp is out", message_id)
            assert (await client.expect("response.done"))["status"] == "completed"
            assert last_prompt(model.script).count("The lamp is out") == 1 + (message_id == "m4")
            assert last_prompt(model.script).count("The hull leaks") == 1


async def test_roles_alternate_after_a_cancelled_reply(start: StartServer) -> None:
    """Even if nothing of it was sent."""
    script = Script(hold_before=asyncio.Event())
    async with scripted_model(script) as model:
        client = await (await start(llm_url=model.url)).session()
        await client.send("The rope is red")
        created = await client.expect("response.created")
        await client.cancel(created["response_id"])
        await client.expect("response.done")
        assert script.hold_before is not None
        script.hold_before.set()
        await client.send("The lamp is out")
        assert (await client.expect("response.done"))["status"] == "completed"


async def test_roles_alternate_after_a_summary(start: StartServer) -> None:
    """With whichever speaker the summary ends."""
    async with world(start, model=True) as w:
        await w.talk(*(f"I promise to bring thing {number}" for number in range(12)))
        assert await w.records("summary")
        await w.talk("And now?")
        done = [event for event in w.events if event["type"] == "response.done"]
        assert {event["status"] for event in done} == {"completed"}
