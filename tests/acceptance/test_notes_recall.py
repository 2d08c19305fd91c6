"""Every note is in core memory or recalled for a prompt, however many there are."""

import json
import re

import pytest

from foremind_eval.doubles.model_server import Chat
from tests.acceptance.world import world
from tests.conftest import StartServer

_NOUNS = """
anchor barge canoe dinghy ferry galley harbour island jetty kayak lantern mast net oar paddle
quay raft sail tiller umbrella vessel whistle yacht beacon cabin deck engine flag gull hatch inlet
keel lagoon map needle ocean pier rope shell tide ukulele voyage wave axe bell chart drum eel fish
goose hook ivory jewel kettle lamp moon nest orange pearl quilt reef star tower urn vine wheel
"""
_FACT = re.compile(r"My favourite \w+ is number \d+")
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


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_a_need_is_in_every_prompt_whatever_was_noted_since(
    start: StartServer, model: bool
) -> None:
    """Thirty trifles later, before and after core memory is made; as a note, and in core memory."""
    settings = {"layers_off": ["memories", "profile", "episodes", "topics"], "session_hours": 1}
    async with world(start, model=model, context_tokens=4096, **settings) as w:
        if w.model is not None:
            w.model.script.background = _noting
        await w.talk("I'm allergic to peanuts.")
        for first in range(0, 34, 17):
            await w.talk(". ".join(FACTS[first : first + 17]) + ".")
        assert "peanuts" in await w.lines("scratchpad", "Shall we sail?")
        await w.next_day()
        shown = await w.context("Shall we sail?")
        assert "peanuts" in str(shown["messages"])
        assert "peanuts" in str(await w.records("hot"))


def _noting(chat: Chat) -> str:
    """Note what was said; write what is known into the core memory, the beginning of it."""
    task, data = (message["content"] for message in chat["messages"][:2])
    said = data.rpartition("Said:")[2]
    if '{"operations"' in task:
        entries = ["Is allergic to peanuts"] if "peanuts" in said else _FACT.findall(said)[:12]
        operations = [{"op": "ADD", "kind": "other", "entry": entry} for entry in entries]
        return json.dumps({"operations": operations})
    known = data.partition("Known:\n")[2] or "They sailed."
    answer = {"text": known[:300], "lines": ["They sailed."], "entries": []}
    return json.dumps(answer | {"episodes": [{"topic": "boats", "summary": "They sailed."}]})
