"""The dates in what a model is asked in the background: "tomorrow" must mean a day later on."""

from foremind.testing.model_server import Script
from tests.acceptance.layers import world
from tests.conftest import StartServer

ASKED = {
    "notes": '{"operations"', "summary": '{"lines"', "episodes": '{"episodes"',
    "topics": "Topic:", "hot": "Known:",
}  # fmt: skip


def given(script: Script, kind: str) -> list[str]:
    """What the model was given with each request of a kind."""
    asked = [each["messages"] for each in script.asked]
    return [each[1]["content"] for each in asked if ASKED[kind] in f"{each[0]}{each[1]}"]


async def test_every_background_prompt_holds_the_day_on_which_things_were_said(
    start: StartServer,
) -> None:
    """By the player's clock, and asks for dates in the place of "tomorrow"."""
    async with world(start, model=True, summary_messages=12) as w:
        assert w.model is not None
        days = []
        for _ in range(4):
            days.append(f"{w.clock.now():%A}, {w.clock.now().day} {w.clock.now():%B %Y}")
            await w.talk(*(f"Tomorrow I paint the lighthouse {n}" for n in range(4)))
            await w.next_day()
        script = w.model.script
        for kind in ASKED:
            assert given(script, kind), kind
        for kind in ("notes", "summary", "episodes"):
            assert all(any(f"On {day}:" in each for day in days) for each in given(script, kind))
        assert all(days[0].partition(", ")[2] in each for each in given(script, "topics"))
        assert all("Today is" in each for each in given(script, "hot"))
        assert all("write its date" in each["messages"][0]["content"] for each in script.asked)
