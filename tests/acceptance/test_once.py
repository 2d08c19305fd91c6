"""Each sentence stands once in a prompt, and what somebody wrote by hand stands whole."""

from foremind.llm.prompt.token_counter import estimate_tokens
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


async def test_no_background_prompt_is_longer_than_the_models_context(start: StartServer) -> None:
    """With room for the answer, however much was said at once, and nothing is left undone."""
    context = 2048
    async with world(start, model=True, context_tokens=context) as w:
        assert w.model is not None
        long = " ".join(f"In year {year} I sailed to island number {year}." for year in range(150))
        await w.talk(*SAID, long, *(f"{each} {long[:1_500]}" for each in SAID))
        await w.next_day()
        asked = w.model.script.asked
        works = {each["messages"][0]["content"] for each in asked}
        assert len(works) >= 4
        for each in asked:
            sizes = [estimate_tokens(one["content"]) for one in each["messages"]]
            assert sum(sizes) + each["max_tokens"] <= context, each["messages"][0]["content"]
        assert await w.records("episodes")
