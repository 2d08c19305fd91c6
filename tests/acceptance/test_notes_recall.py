"""Every note is in core memory or recalled for a prompt, however many there are."""

from tests.acceptance.world import world
from tests.conftest import StartServer

_NOUNS = """
anchor barge canoe dinghy ferry galley harbour island jetty kayak lantern mast net oar paddle
quay raft sail tiller umbrella vessel whistle yacht beacon cabin deck engine flag gull hatch inlet
keel lagoon map needle ocean pier rope shell tide ukulele voyage wave axe bell chart drum eel fish
goose hook ivory jewel kettle lamp moon nest orange pearl quilt reef star tower urn vine wheel
"""
FACTS = [f"My favourite {noun} is number {n}" for n, noun in enumerate(_NOUNS.split())]


async def test_notes_that_core_memory_leaves_out_are_recalled(
    start: StartServer,
) -> None:
    """Also the first of more than sixty: none is deleted because of its age."""
    settings = {"layers_off": ["memories", "profile", "episodes", "topics"], "session_hours": 1}
    async with world(start, model=False, **settings) as w:
        assert len(FACTS) > 60
        for first in range(0, len(FACTS), 17):
            await w.talk(". ".join(FACTS[first : first + 17]) + ".")
        await w.next_day()
        assert await w.records("hot")
        assert len(await w.records("scratchpad")) == len(FACTS)
        for noun, fact_of_noun in (
            ("anchor", FACTS[0]),
            ("kettle", next(fact for fact in FACTS if "kettle" in fact)),
            ("wheel", FACTS[-1]),
        ):
            shown = await w.context(f"What is my favourite {noun}?")
            assert fact_of_noun in str(shown["messages"]), noun
        assert (
            len((await w.context("What is my favourite anchor?"))["layers"]["scratchpad"]["lines"])
            <= 6
        )
