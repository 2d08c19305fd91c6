"""Which of a companion's replies are remembered, and that the player's words weigh more."""

import pytest

from foremind.text.languages.prompt_words import date_in
from tests.acceptance.world import world
from tests.conftest import StartServer

SYMPATHY = "I'll remember that, it is important, and I feel so happy for you!"
NEWS = "I keep the lighthouse at Skerry with my brother Edd."


@pytest.mark.parametrize(
    ("setting", "kept"),
    [(None, {NEWS}), ("informative", {NEWS}), ("all", {NEWS, SYMPATHY}), ("none", set())],
)
async def test_replies_are_remembered_as_set(
    start: StartServer, setting: str | None, kept: set[str]
) -> None:
    """By default only those that tell anything new; the player's small talk is not kept either."""
    settings = {} if setting is None else {"remember_replies": setting}
    replies = iter([SYMPATHY, "Mhm, I see.", "Mhm.", NEWS])
    async with world(start, model=True, **settings) as w:
        assert w.model is not None
        w.model.script.reply = lambda _: [next(replies)]
        await w.talk("I got the job!", "x" * 101, "Mhm, I see.", "Where do you live?")
        said = {text for text, memory in (await w.memories()).items()}
        assert said - {SYMPATHY, NEWS, "Where do you live?"} == {"I got the job!"}
        assert said & {SYMPATHY, NEWS} == kept


@pytest.mark.parametrize("setting", ["informative", "all"])
async def test_what_a_companion_says_of_itself_weighs_as_any_news(
    start: StartServer, setting: str
) -> None:
    """It may be made up, and contradict the card; where replies count alike, it does as well."""
    claims = [
        "My name is Mina, born beside the harbour at Skerry.",
        "I never eat meat, since the butcher beside the harbour burned down.",
        "My favourite colour is teal, like the harbour at Skerry in winter.",
        "My goal is to build a lighthouse out of driftwood and whalebone.",
    ]
    replies = iter(claims)
    async with world(start, model=True, remember_replies=setting) as w:
        assert w.model is not None
        w.model.script.reply = lambda _: [next(replies)]
        await w.talk("Tell me.", "More?", "And then?", "What else?")
        kept = {text: memory for text, memory in (await w.memories()).items() if text in claims}
        assert kept
        for memory in kept.values():
            reasons = {reason["name"] for reason in memory["reasons"]}
            minimum = not reasons.isdisjoint({"identity", "goal", "constraint", "preference"})
            assert minimum is (setting == "all"), memory
            assert minimum or memory["significance"] < 0.61  # as much as is learned


async def test_todays_date_is_no_news(start: StartServer) -> None:
    """The prompt says it, and small models repeat it."""
    async with world(start, model=True) as w:
        assert w.model is not None
        today = date_in("en", w.clock.now())
        w.model.script.reply = lambda _: [f"My dear Ana. {today} Good day!"]
        await w.talk("I got the job!")
        assert set(await w.memories()) == {"I got the job!"}


async def test_the_players_words_rank_before_a_reply_that_says_the_same(start: StartServer) -> None:
    """Although the reply fits the draft as well."""
    async with world(start, model=True, remember_replies="all") as w:
        assert w.model is not None
        w.model.script.reply = lambda _: ["My sister Ines lives in Faro with her two dogs."]
        await w.talk("My sister Ines lives in Madeira with her husband Rui.")
        await w.next_day()
        found = (await w.context("Where does Ines live?"))["layers"]["memories"]["lines"]
        assert "Madeira" in found[0]
