"""Dates in background prompts, so that "tomorrow" can be resolved later."""

from foremind_eval.doubles.model_server import Script
from tests.acceptance.world import world
from tests.conftest import StartServer

MARKERS = {
    "notes": '{"operations"', "summary": '{"lines"', "episodes": '{"episodes"',
    "topics": "Topic:", "hot": "Known:",
}  # fmt: skip


def prompts_of(script: Script, kind: str) -> list[str]:
    """Return the prompts of a kind."""
    return [
        prompt["content"]
        for task, prompt, *_ in (request["messages"] for request in script.background_requests)
        if MARKERS[kind] in f"{task}{prompt}"
    ]


async def test_background_prompts_contain_the_dates_of_messages(
    start: StartServer,
) -> None:
    """In the player's time zone, and they ask for dates instead of "tomorrow"."""
    async with world(start, model=True, summary_messages=12) as w:
        assert w.model is not None
        days = []
        for _ in range(4):
            days.append(f"{w.clock.now():%A}, {w.clock.now().day} {w.clock.now():%B %Y}")
            await w.talk(*(f"Tomorrow I paint the lighthouse {n}" for n in range(4)))
            await w.next_day()
        script = w.model.script
        for kind in MARKERS:
            assert prompts_of(script, kind), kind
        for kind in ("notes", "summary", "episodes"):
            for prompt in prompts_of(script, kind):
                assert any(f"On {day}:" in prompt for day in days), kind
        assert all(days[0].partition(", ")[2] in prompt for prompt in prompts_of(script, "topics"))
        assert all("Today is" in prompt for prompt in prompts_of(script, "hot"))
        tasks = [request["messages"][0]["content"] for request in script.background_requests]
        assert all("write its date" in task for task in tasks)
