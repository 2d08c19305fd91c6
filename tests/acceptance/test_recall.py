"""Memories and layers reach the prompt, whatever players write and however small the caches."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.record import NewRecord
from foremind.retrieval.documents import library
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.test_message_path import metric_value, send_and_wait, type_text
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of

# 29 February, which does not exist in most of the years that are named.
LEAP_DAY = datetime(2028, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
async def test_impossible_dates_in_messages_break_neither_recall_nor_ingest(
    start: StartServer, zone: str
) -> None:
    """Years that no calendar has, and days that no month has."""
    server = await start(clock=ManualClock(LEAP_DAY))
    client = await server.connect()
    await client.open_session("wren", user_id="ana", name="Ana", time_zone=zone)
    await send_and_wait(client, "I promise to call my boat Zephyrine")
    for date in ("winter 0000", "9999-12-31", "in December 9999", "31 feb 2023", "summer 2023",
                 "before 1 January 0001", "since 2021-99-99", "before the dog\u339e"):  # fmt: skip
        events = await send_and_wait(client, f"I promise, {date}: what is my boat called?")
        assert "Zephyrine" in events["response.done"]["text"], date
        assert events["memory.stored"]["stored"], date
    assert metric_value(server, "foremind_layers_left_out_total", layer="memories") == 0


USERS = ("ana", "bo", "cy", "dot", "eve")


async def open_known_session(server: RunningServer, user: str) -> tuple[Client, int]:
    """Open a session of a user with records; also return the id of the relationship."""
    client = await server.connect()
    opened = await client.open_session("wren", user_id=user, name=user.title())
    relationship = int(opened["relationship_id"])
    async with server.app.core.stores.records.begin_changes(relationship, LEAP_DAY) as changes:
        await changes.add(NewRecord("profile", f"{user} keeps bees", made_by="user"))
        await changes.add(NewRecord("summary", f"{user} told of a meadow", made_by="model"))
    async with asyncio.timeout(
        PATIENCE
    ):  # until the announcement has arrived: the layer cache may be stale
        while "keeps bees" not in str(await context(server, relationship, user, "Hello?")):
            await asyncio.sleep(0.01)
    return client, relationship


async def context(server: RunningServer, relationship: int, user: str, draft: str) -> Any:
    """Return what the model would be given for a draft."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.get(
            f"http://127.0.0.1:{server.port}/v1/relationships/{relationship}/context",
            params={"user": user, "draft": draft},
        )
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("layers_bytes", [0, 5000, 1 << 27], ids=["none", "one", "all"])
async def test_standing_layers_are_in_every_prompt_however_small_the_layer_cache(
    start: StartServer, layers_bytes: int
) -> None:
    """With or without a prefetch or terms to search for, while other users talk as well."""
    async with scripted_model(Script()) as model:
        clock = ManualClock()
        server = await start(
            clock=clock, llm_url=model.url, layers_bytes=layers_bytes, layers_deadline_ms=10_000
        )
        sessions = {user: await open_known_session(server, user) for user in USERS}
        for text in ("What do I keep, by the way?", "...", "And what did I tell of?"):
            for user, (client, relationship) in sessions.items():
                await type_text(client, server, text[:6])
                await clock.advance(0.6)
                await client.send(text)
                await client.expect("response.done")
                prompt = str(model.script.player_requests[-1]["messages"])
                assert f"{user} keeps bees" in prompt, text
                assert f"{user} told of a meadow" in prompt, text
                shown = await context(server, relationship, user, "And now?")
                assert shown["missing"] == {}
                assert shown["left_out"] == []
                assert f"{user} keeps bees" in str(shown["messages"])
        assert metric_value(server, "foremind_layers_bytes") <= layers_bytes
        assert metric_value(server, "foremind_layers_left_out_total", layer="profile") == 0


async def test_the_context_view_names_missing_layers_and_reasons(start: StartServer) -> None:
    """If the database does not return records before the deadline of the prompt."""
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url, layers_bytes=0, layers_deadline_ms=1000)
        client, relationship = await open_known_session(server, "ana")
        async with owner_of(server.app.core).acquire() as raw, raw.transaction():
            await raw.execute("LOCK TABLE records IN ACCESS EXCLUSIVE MODE")
            shown = await context(server, relationship, "ana", "What do I keep?")
            await client.send("What do I keep, by the way?")
            await client.expect("response.done")
        assert shown["missing"]["profile"] == shown["missing"]["summary"] == "too_late"
        assert set(shown["missing"]) == set(shown["left_out"])
        assert "keeps bees" not in str(model.script.player_requests[-1]["messages"])
        assert metric_value(server, "foremind_layers_left_out_total", layer="profile") >= 2


async def test_evicted_document_indexes_are_loaded_again(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for the document of one companion only."""
    monkeypatch.setattr(library, "_MAX_BYTES", 2500)
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url, layers_deadline_ms=10_000)
        await server.app.core.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
        sessions = []
        for slug, queen in (("wren", "Maud"), ("mara", "Edith")):
            async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                response = await http.post(
                    f"http://127.0.0.1:{server.port}/v1/companions/{slug}/documents",
                    params={"user": "ana", "title": "Bees"},
                    headers={"content-type": "text/plain"},
                    content=f"The queen of the hive at Penbryn is called {queen}.",
                )
            assert response.status_code < 300, response.text
            sessions.append((await server.session(companion=slug), queen))
        for client, queen in sessions:
            await client.send("Who is the queen of the hive at Penbryn?")
            await client.expect("response.done")
            assert queen in str(model.script.player_requests[-1]["messages"])
