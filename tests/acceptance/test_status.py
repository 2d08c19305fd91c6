"""The status of background steps, and retrying them at once."""

from foremind.background.step_definitions import STEPS
from foremind.domain.background_step import LULL
from foremind_eval.doubles.background_answers import background_answer
from tests.acceptance.world import world
from tests.conftest import FIRST_RELATIONSHIP, StartServer, eventually_async


async def test_the_status_of_failed_steps_says_why_and_they_can_be_retried_at_once(
    start: StartServer,
) -> None:
    """Notes without a usable answer back off for half a minute; a request retries them now."""
    async with world(start, model=True) as w:
        assert w.model is not None
        script = w.model.script
        script.alternating = False
        script.background = lambda chat: (
            "no" if '{"operations"' in chat["messages"][0]["content"] else background_answer(chat)
        )
        client = await w.server.session()
        await client.send("My goal is to run a marathon")
        await client.expect_all("response.done", "memory.stored")
        w.relationship = FIRST_RELATIONSHIP
        steps = {step["step"]: step for step in (await w.request("GET", "/status"))["steps"]}
        assert steps["notes"]["state"] == "gathering"
        assert steps["notes"]["due_at"] == (w.clock.now() + LULL).isoformat().replace("+00:00", "Z")
        await w.request("POST", "/status")

        async def failed() -> bool:
            steps = (await w.request("GET", "/status"))["steps"]
            return any(step["state"] == "backing_off" for step in steps)

        await eventually_async(failed)

        async def stated_first() -> bool:
            steps = (await w.request("GET", "/status"))["steps"]
            return any((step["step"], step["state"]) == ("stated", "idle") for step in steps)

        await eventually_async(stated_first)
        steps = {step["step"]: step for step in (await w.request("GET", "/status"))["steps"]}
        assert list(steps) == [step.name for step in STEPS]
        notes, stated = steps["notes"], steps["stated"]
        assert (notes["code"], notes["attempts"], notes["behind"]) == ("model_broken", 1, 2)
        assert notes["asks_model"] and not stated["asks_model"]
        assert (stated["state"], stated["behind"]) == ("idle", 0)
        before = w.clock.now()
        script.background = background_answer
        assert (await w.response_to("POST", "/status")).status_code == 202

        async def written() -> bool:
            return bool(await w.records("scratchpad"))

        await eventually_async(written)
        assert w.clock.now() == before


async def test_retention_set_for_a_relationship_applies_at_once(start: StartServer) -> None:
    """Without a new message, and before the next day."""
    async with world(start, model=False) as w:
        await w.talk("Save this for me: the gate code of the shed is 4711")
        await w.clock.leap(20 * 24 * 3600.0)
        await w.wait_until_idle()
        assert await w.records("vault")
        await w.request("PATCH", "/config", {"settings": {"retention_days": {"vault": 10}}})
        await w.wait_until_idle()
        assert await w.records("vault") == []
