"""Each sentence stands once in a prompt, and what somebody wrote by hand stands whole."""

from tests.acceptance.layers import World, world
from tests.acceptance.test_layers import WITH_AND_WITHOUT
from tests.conftest import StartServer

SAID = (
    "I live in Porto with my sister Ines",
    "My favourite colour is green",
    "I promise to bring the lantern to the feast",
    "We decided to sail to Madeira in June",
)


async def times(w: World, draft: str) -> dict[str, int]:
    """How many lines of what the model would be given for a draft hold each sentence."""
    text = "\n".join(each["content"] for each in (await w.context(draft))["messages"])
    return {each: sum(each in line for line in text.splitlines()) for each in SAID}


@WITH_AND_WITHOUT
async def test_a_sentence_stands_once_however_many_layers_hold_it(
    start: StartServer, model: bool
) -> None:
    """While it was just said, in a later session, and when it is said again."""
    async with world(start, model=model) as w:
        await w.talk(*SAID)
        assert set((await times(w, "Where do I live?")).values()) == {1}
        for _ in range(3):
            await w.next_day()
            await w.talk("Good morning, the sea is calm")
        for asked in ("Where do I live?", "What did we decide about Madeira?"):
            assert max((await times(w, asked)).values()) == 1
        assert (await times(w, "Where do I live?"))[SAID[0]] == 1
        said_again = (await w.context(SAID[1]))["messages"][-1]["content"]
        assert said_again.count(SAID[1]) == 1  # what stands in every prompt, for any draft, stays


async def test_what_was_written_by_hand_is_whole(start: StartServer) -> None:
    """However long, and whatever else there is, within what the layers may take."""
    async with world(start, model=False, context_tokens=8192) as w:
        await w.talk(*SAID)
        await w.next_day()
        written = [f"Line {number} of what the game wants told." for number in range(60)]
        hot = {"layer": "hot", "content": "\n".join(written), "by": "developer"}
        await w.request("POST", "/records", hot)
        shown = await w.context("Where do I live?")
        text = "\n".join(each["content"] for each in shown["messages"])
        assert all(each in text for each in written)
        assert SAID[0] in text
