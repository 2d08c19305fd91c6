"""The days that what is said is about, as an export has them."""

from datetime import UTC, datetime

import pytest

from foremind_eval.doubles.manual_clock import ManualClock
from tests.acceptance.world import World
from tests.conftest import StartServer

_THURSDAY = datetime(2026, 11, 26, 12, tzinfo=UTC)


async def _days(w: World, user: str, text: str, language: str | None) -> list[str | None]:
    """Return the days that the memories of what a user says are about."""
    w.user = user
    client = await w.server.connect()
    opened = await client.open_session("wren", user_id=user, name=user, language=language)
    w.relationship = int(opened["relationship_id"])
    await client.send(text)
    await client.expect_all("response.done", "memory.stored")
    memories = (await w.request("GET", "/export"))["memories"]
    return [
        memory["happened_from"] and memory["happened_from"][:10]
        for memory in memories
        if memory["speaker"] == "user"
    ]


@pytest.mark.parametrize(
    ("text", "language", "day"),
    [
        ("I have an exam on Friday, I need to learn for it", None, "2026-11-27"),
        ("got my big exam on friday, wish me luck", None, "2026-11-27"),
        ("I have to go to the dentist on 3 December", None, "2026-12-03"),
        ("The wedding of my sister will be on 5 January", None, "2027-01-05"),
        ("My sister Lena had an exam on Friday", None, "2026-11-20"),
        ("My sister Lena's wedding is on 03/04/2027", "en-GB", "2027-04-03"),
        ("My sister Lena's wedding is on 03/04/2027", "en-US", "2027-03-04"),
        ("My sister Lena's wedding is on 03/04/2027", "en", None),
        ("Die Hochzeit meiner Schwester Lena ist am 12.10.2027", "de-AT", "2027-10-12"),
        ("Vorgestern hatte meine Schwester Lena einen Unfall", "de", "2026-11-24"),
        ("Mi hermana Lena se casó hace dos días en Madrid", "es", "2026-11-24"),
        ("My sister Lena owes me 2000 coins", None, None),
    ],
)
async def test_what_is_said_is_filed_under_the_day_it_is_about(
    start: StartServer, text: str, language: str | None, day: str | None
) -> None:
    """By its direction, and the player's language and region, which hold until others are said."""
    clock = ManualClock(_THURSDAY)
    w = World(await start(clock=clock), clock, None)
    assert await _days(w, "ana", text, language) == [day]
    if language is not None:
        assert set(await _days(w, "ana", text.replace("Lena", "Ines"), None)) == {day}


async def test_a_corrected_memory_is_no_longer_about_the_day_of_its_former_text(
    start: StartServer,
) -> None:
    """Which would be found for a day that nobody speaks of any more."""
    clock = ManualClock(_THURSDAY)
    w = World(await start(clock=clock), clock, None)
    text = "My sister Lena's wedding is on 5 January"
    assert await _days(w, "ana", text, None) == ["2027-01-05"]
    memory = (await w.memories())[text]
    await w.request("PATCH", f"/memories/{memory['id']}", {"content": "Lena's wedding is in doubt"})
    memories = (await w.request("GET", "/export"))["memories"]
    assert {memory["happened_from"] for memory in memories} == {None}
