"""A prompt contains each sentence once and manual edits whole, and never exceeds its limit."""

import json
from typing import Any

from foremind.llm.prompt.token_counter import estimate_tokens
from foremind_eval.doubles.background_answers import background_answer
from tests.acceptance.test_layers import WITH_AND_WITHOUT_MODEL
from tests.acceptance.world import World, world
from tests.conftest import StartServer

SAID = (
    "I live in Porto with my sister Ines",
    "My favourite colour is green",
    "I promise to bring the lantern to the feast",
    "We decided to sail to Madeira in June",
)
# Layers in which a model puts several statements, of both speakers, into words of its own.
_PROSE = ["summary", "opening", "episodes", "hot"]


async def occurrences(w: World, draft: str) -> dict[str, int]:
    """Return how many lines of the prompt for a draft contain each sentence."""
    text = "\n".join(message["content"] for message in (await w.context(draft))["messages"])
    return {sentence: sum(sentence in line for line in text.splitlines()) for sentence in SAID}


@WITH_AND_WITHOUT_MODEL
async def test_a_sentence_in_several_layers_appears_once_in_the_prompt(
    start: StartServer, model: bool
) -> None:
    """Right after it was said, in a later session, and when it is said again."""
    async with world(start, model=model) as w:
        await w.talk(*SAID)
        assert set((await occurrences(w, "Where do I live?")).values()) == {1}
        for _ in range(3):
            await w.next_day()
            await w.talk("Good morning, the sea is calm")
        for question in ("Where do I live?", "What did we decide about Madeira?"):
            assert max((await occurrences(w, question)).values()) == 1
        assert (await occurrences(w, "Where do I live?"))[SAID[0]] == 1
        repeated = (await w.context(SAID[1]))["messages"][-1]["content"]
        assert repeated.count(SAID[1]) == 1  # standing layers do not depend on the draft


def in_third_person(chat: dict[str, Any]) -> str:
    """Answer as a model that writes notes about the user in its own words."""
    if '{"operations"' not in chat["messages"][0]["content"]:
        return background_answer(chat)
    notes = [
        {"op": "ADD", "kind": "identity", "entry": entry}
        for said, entry in (("I live in Porto", "Lives in Porto"),
                            ("My brother sails", "Ana's brother sails to Madeira"))
        if said in chat["messages"][1]["content"]
    ]  # fmt: skip
    return json.dumps({"operations": notes})


async def test_what_is_known_in_other_words_appears_once(start: StartServer) -> None:
    """As an entry of the profile or as a note; the context view shows what refers to it."""
    said = {"I live in Porto.": "Porto", "My brother sails to Madeira.": "brother sails"}
    async with world(start, model=True, layers_off=_PROSE) as w:
        assert w.model is not None
        w.model.script.background = in_third_person
        await w.talk(*said)
        assert {note["content"] for note in await w.records("scratchpad")} == {
            "Lives in Porto", "Ana's brother sails to Madeira"
        }  # fmt: skip
        await w.next_day()
        for question, (sentence, words) in zip(
            ("Where do I live?", "Who sails to Madeira?"), said.items(), strict=True
        ):
            shown = await w.context(question)
            prompt = "\n".join(message["content"] for message in shown["messages"])
            assert sum(words in line for line in prompt.splitlines()) == 1, prompt
            memories = shown["layers"]["memories"]
            assert sentence in "\n".join(memories["lines"])
            assert memories["elsewhere"] >= 1
        assert '"home": "Porto"' in prompt


async def test_manual_edits_appear_whole_in_the_prompt(start: StartServer) -> None:
    """However long, within the token budget of the layers."""
    async with world(start, model=False, context_tokens=8192) as w:
        await w.talk(*SAID)
        await w.next_day()
        lines = [f"Line {number} of what the game wants told." for number in range(60)]
        hot = {"layer": "hot", "content": "\n".join(lines), "by": "developer"}
        await w.request("POST", "/records", hot)
        shown = await w.context("Where do I live?")
        text = "\n".join(message["content"] for message in shown["messages"])
        assert all(line in text for line in lines)
        assert SAID[0] in text


async def test_no_background_prompt_exceeds_the_models_context(start: StartServer) -> None:
    """With room for the answer, however long the messages are; every step still succeeds."""
    context = 2048
    async with world(start, model=True, context_tokens=context) as w:
        assert w.model is not None
        long = " ".join(f"In year {year} I sailed to island number {year}." for year in range(150))
        await w.talk(*SAID, long, *(f"{sentence} {long[:1_500]}" for sentence in SAID))
        await w.next_day()
        requests = w.model.script.background_requests
        tasks = {request["messages"][0]["content"] for request in requests}
        assert len(tasks) >= 4
        for request in requests:
            sizes = [estimate_tokens(message["content"]) for message in request["messages"]]
            task = request["messages"][0]["content"]
            assert sum(sizes) + request["max_tokens"] <= context, task
        assert await w.records("episodes")
