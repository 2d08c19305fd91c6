"""Every note reaches a prompt, or is found for one, however many there are."""

from tests.acceptance.layers import world
from tests.conftest import StartServer

_NOUNS = """
anchor barge canoe dinghy ferry galley harbour island jetty kayak lantern mast net oar paddle
quay raft sail tiller umbrella vessel whistle yacht beacon cabin deck engine flag gull hatch inlet
keel lagoon map needle ocean pier rope shell tide ukulele voyage wave axe bell chart drum eel fish
goose hook ivory jewel kettle lamp moon nest orange pearl quilt reef star tower urn vine wheel
"""
BOATS = [f"My favourite {noun} is number {n}" for n, noun in enumerate(_NOUNS.split())]


async def test_the_notes_that_the_hot_context_leaves_out_are_found_by_meaning(
    start: StartServer,
) -> None:
    """Also the first of more than sixty: none is deleted for its age."""
    settings = {"layers_off": ["memories", "profile", "episodes", "topics"], "session_hours": 1}
    async with world(start, model=False, **settings) as w:
        assert len(BOATS) > 60
        for first in range(0, len(BOATS), 17):
            await w.talk(". ".join(BOATS[first : first + 17]) + ".")
        await w.next_day()
        assert await w.records("hot")
        assert len(await w.records("scratchpad")) == len(BOATS)
        for asked, told in (
            ("anchor", BOATS[0]),
            ("kettle", next(each for each in BOATS if "kettle" in each)),
            ("wheel", BOATS[-1]),
        ):
            shown = await w.context(f"What is my favourite {asked}?")
            assert told in str(shown["messages"]), asked
        assert (
            len((await w.context("What is my favourite anchor?"))["layers"]["scratchpad"]["lines"])
            <= 6
        )
