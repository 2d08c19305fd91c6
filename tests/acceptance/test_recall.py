"""What is remembered comes back, whatever a player writes."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from foremind.client import Client
from foremind.domain.companion import CompanionFile
from foremind.domain.record import NewRecord
from foremind.retrieval.documents import library
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, scripted_model
from tests.acceptance.test_path import answered, sample, typed
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of

# On the 29th of February, which the year that is named may not have.
LEAP_DAY = datetime(2028, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
async def test_no_date_that_a_player_writes_costs_a_memory(start: StartServer, zone: str) -> None:
    """Years that no calendar has, days that no month has: recalled with, judged and stored."""
    server = await start(clock=ManualClock(LEAP_DAY))
    client = await server.connect()
    await client.open_session("wren", user_id="ana", name="Ana", time_zone=zone)
    await answered(client, "I promise to call my boat Zephyrine")
    for date in ("winter 0000", "9999-12-31", "in December 9999", "31 feb 2023", "summer 2023",
                 "before 1 January 0001", "since 2021-99-99", "before the dog\u339e"):  # fmt: skip
        seen = await answered(client, f"I promise, {date}: what is my boat called?")
        assert "Zephyrine" in seen["response.done"]["text"], date
        assert seen["memory.stored"]["stored"], date
    assert sample(server, "foremind_layers_left_out_total", layer="memories") == 0


USERS = ("ana", "bo", "cy", "dot", "eve")


async def known(server: RunningServer, user: str) -> tuple[Client, int]:
    """Open a session of somebody of whom something is known; also return the relationship."""
    client = await server.connect()
    opened = await client.open_session("wren", user_id=user, name=user.title())
    relationship = int(opened["relationship_id"])
    async with server.app.core.records.changing(relationship, LEAP_DAY) as changes:
        await changes.add(NewRecord("profile", f"{user} keeps bees", made_by="user"))
        await changes.add(NewRecord("summary", f"{user} told of a meadow", made_by="model"))
    async with asyncio.timeout(PATIENCE):  # until that is heard: what is held may be empty
        while "keeps bees" not in str(await context(server, relationship, user, "Hello?")):
            await asyncio.sleep(0.01)
    return client, relationship


async def context(server: RunningServer, relationship: int, user: str, draft: str) -> Any:
    """What the model would be given for a draft."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.get(
            f"http://127.0.0.1:{server.port}/v1/relationships/{relationship}/context",
            params={"user": user, "draft": draft},
        )
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("room", [0, 5000, 1 << 27], ids=["none", "one", "all"])
async def test_what_is_known_is_in_every_prompt_however_little_is_held(
    start: StartServer, room: int
) -> None:
    """Typed for or not, with anything to search for or nothing, whoever else talks meanwhile."""
    async with scripted_model(Script()) as model:
        clock = ManualClock()
        server = await start(
            clock=clock, llm_url=model.url, layers_bytes=room, layers_deadline_ms=10_000
        )
        everybody = {user: await known(server, user) for user in USERS}
        for text in ("What do I keep, by the way?", "...", "And what did I tell of?"):
            for user, (client, relationship) in everybody.items():
                await typed(client, server, text[:6])
                await clock.advance(0.6)
                await client.send(text)
                await client.expect("response.done")
                given = str(model.script.spoken[-1]["messages"])
                assert f"{user} keeps bees" in given, text
                assert f"{user} told of a meadow" in given, text
                shown = await context(server, relationship, user, "And now?")
                assert shown["missing"] == {}
                assert shown["left_out"] == []
                assert f"{user} keeps bees" in str(shown["messages"])
        assert sample(server, "foremind_layers_bytes") <= room
        assert sample(server, "foremind_layers_left_out_total", layer="profile") == 0


async def test_a_prompt_says_what_it_lacks_and_why(start: StartServer) -> None:
    """Where the database keeps records back for longer than a prompt may wait."""
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url, layers_bytes=0, layers_deadline_ms=1000)
        client, relationship = await known(server, "ana")
        async with owner_of(server.app.core).acquire() as raw, raw.transaction():
            await raw.execute("LOCK TABLE records IN ACCESS EXCLUSIVE MODE")
            shown = await context(server, relationship, "ana", "What do I keep?")
            await client.send("What do I keep, by the way?")
            await client.expect("response.done")
        assert shown["missing"]["profile"] == shown["missing"]["summary"] == "too_late"
        assert set(shown["missing"]) == set(shown["left_out"])
        assert "keeps bees" not in str(model.script.spoken[-1]["messages"])
        assert sample(server, "foremind_layers_left_out_total", layer="profile") >= 2


async def test_documents_that_are_no_longer_held_are_read_again(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is room for the documents of one companion only."""
    monkeypatch.setattr(library, "_HELD", 1)
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url, layers_deadline_ms=10_000)
        await server.app.core.companions.put(CompanionFile("mara", "Mara", "A persona."))
        sessions = []
        for slug, queen in (("wren", "Maud"), ("mara", "Edith")):
            async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                answer = await http.post(
                    f"http://127.0.0.1:{server.port}/v1/companions/{slug}/documents",
                    params={"user": "ana", "title": "Bees"},
                    headers={"content-type": "text/plain"},
                    content=f"The queen of the hive at Penbryn is called {queen}.",
                )
            assert answer.status_code < 300, answer.text
            sessions.append((await server.session(companion=slug), queen))
        for client, queen in sessions:
            await client.send("Who is the queen of the hive at Penbryn?")
            await client.expect("response.done")
            assert queen in str(model.script.spoken[-1]["messages"])
