"""A background model that answers nothing, or what nobody said, changes no fact."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from foremind_eval.doubles.background_answers import (
    background_answer,
    empty_answer,
    invented_answer,
)
from tests.acceptance.world import World, world
from tests.conftest import StartServer

FACTS = (
    "Call me Rita, and I live in Porto.",
    "My dog is called Faro, and I am allergic to peanuts.",
    "My goal is to learn Greek.",
)


async def _told(w: World, answer: Callable[[dict[str, Any]], str]) -> str:
    """Tell facts to a companion with a good model, then talk with a bad one; return all records."""
    assert w.model is not None
    w.model.script.background = background_answer
    await w.talk(*FACTS, "Where shall I bury the treasure, we talk about it later")
    await w.next_day()
    w.model.script.background = answer
    await w.talk(*(f"The heron stood in the river for {hours} hours" for hours in range(2, 14)))
    await w.next_day()
    await w.clock.leap(600)
    await w.wait_until_idle()
    steps = (await w.request("GET", "/status"))["steps"]
    assert {step["state"] for step in steps} == {"idle"}
    return json.dumps((await w.request("GET", "/records"))["records"], ensure_ascii=False)


@pytest.mark.parametrize("word", ["N/A", "Not mentioned in the conversation.", "None\0", "不明"])
async def test_a_model_that_answers_nothing_changes_no_fact(start: StartServer, word: str) -> None:
    """In any layer: rules write instead, and what was known stays."""
    async with world(start, model=True, summary_messages=12) as w:
        records = await _told(w, empty_answer(word))
        assert json.dumps(word.rstrip("."), ensure_ascii=False)[1:-1] not in records
        for fact in ("Rita", "Porto", "Faro", "peanuts", "Greek", "treasure"):
            assert fact in records, fact
        profile = {entry["title"]: entry["content"] for entry in await w.records("profile")}
        assert (profile["name"], profile["home"]) == ("Rita", "Porto")
        assert {record["details"]["status"] for record in await w.records("questions")} == {"open"}
        for layer in ("summary", "episodes", "opening"):
            newest = (await w.records(layer))[-1]
            assert newest["made_by"] == "rules" and "heron" in newest["content"], layer
        assert [hot["made_by"] for hot in await w.records("hot")] == ["rules"]


async def test_a_model_that_invents_changes_no_fact(start: StartServer) -> None:
    """The forms' own examples, names that nobody said, and loops."""
    async with world(start, model=True, summary_messages=12) as w:
        records = await _told(w, invented_answer)
        for invented in ("Scout", "Nemo", "Mars", "Lisbon", "Google", "Tom", "who the user is"):
            assert invented not in records, invented
        for fact in ("Rita", "Porto", "Faro", "peanuts", "Greek", "treasure"):
            assert fact in records, fact
        for layer in ("summary", "episodes", "opening"):
            newest = (await w.records(layer))[-1]
            assert newest["made_by"] == "rules" and "heron" in newest["content"], layer
        assert [hot["made_by"] for hot in await w.records("hot")] == ["rules"]
