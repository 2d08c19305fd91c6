"""Erased memories disappear from every table, index, cache, context and conversation."""

import json
from typing import Any

import pytest

from foremind.domain.settings.settings import Settings
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.test_http import request
from tests.acceptance.traces import objects_containing, stored_text
from tests.conftest import (
    RunningServer,
    StartServer,
    all_announcements_handled,
    eventually,
    owner_of,
)

SECRET = "I buried the xylophone under the pear tree"
WORD = "xylophon"  # as it is stemmed


async def say(client: Client, *texts: str) -> None:
    """Send messages and wait until each is ingested."""
    for text in texts:
        await client.send(text)
        await client.expect_all("response.done", "memory.stored")


async def memory_id(server: RunningServer, content: str) -> tuple[int, int]:
    """Return the ids of the relationship and the memory with this content."""
    row = await owner_of(server.app.core).fetchrow(
        "SELECT relationship_id, id FROM memories WHERE content = $1", content
    )
    return int(row[0]), int(row[1])


async def seed_conversation(server: RunningServer) -> Client:
    """Hold a conversation in which the secret is told, repeated, recalled and prefetched."""
    client = await server.session()
    await say(
        client, "I live in Porto", SECRET, "My dog is called Scout", "Where is the xylophone?"
    )
    await client.draft("What did I bury?")
    await client.expect("context.ready")
    return client


def repeat_message(chat: dict[str, Any]) -> list[str]:
    """A model that repeats the message."""
    return [chat["messages"][-1]["content"].rpartition("\n\n")[2]]


async def test_an_erased_memory_is_found_nowhere(start: StartServer) -> None:
    """Neither in turns, quoting replies, terms, vectors and contexts, nor in the chat history."""
    async with scripted_model(Script(reply=repeat_message)) as model:
        server = await start(llm_url=model.url, pause_ms=50)
        client = await seed_conversation(server)
        assert WORD in await stored_text(server)
        assert objects_containing(WORD) >= {"IndexedMemory", "PreparedContext", "PastTurn"}
        relationship, memory = await memory_id(server, SECRET)
        path = f"/v1/relationships/{relationship}/memories/{memory}?user=ana"
        status, _, body = await request(server, "DELETE", path)
        receipt = json.loads(body)
        assert (status, str(memory) in receipt["memories"]) == (200, True)
        # The message, the reply that repeated it, and the reply to the question about it.
        assert receipt["turns"] == 3
        await _assert_erased(server, model, client)
        # Another question is about it, but does not contain it.
        assert "where is the xylophone?" in await stored_text(server)


async def _assert_erased(server: RunningServer, model: ScriptedModel, client: Client) -> None:
    assert SECRET.lower() not in await stored_text(server)
    await client.clear_draft()
    await eventually(lambda: not objects_containing(SECRET[:20]))
    await say(client, "What did I bury under the tree?")
    prompt = json.dumps(model.script.requests[-1]["messages"])
    assert SECRET not in prompt
    assert "Porto" in prompt  # the rest of the history is still there


async def _assert_erasure_frees_everything(server: RunningServer) -> None:
    """Erase the secret; assert that no live object contains it afterwards."""
    relationship, memory = await memory_id(server, SECRET)
    path = f"/v1/relationships/{relationship}/memories/{memory}?user=ana"
    await request(server, "DELETE", path)
    await all_announcements_handled(server)
    await eventually(lambda: not objects_containing(WORD))


@pytest.mark.parametrize("end", ["nobody came back", "an operator ended it"])
async def test_a_closed_session_keeps_no_erased_text(
    start: StartServer, settings: Settings, end: str
) -> None:
    """Though it no longer receives announcements."""
    clock = ManualClock()
    server = await start(clock=clock)
    client = await server.session()
    await say(client, "I live in Porto", SECRET)
    (session,) = server.app.registry.snapshots()
    await client.close()
    if end == "nobody came back":
        await eventually(lambda: not server.app.registry.snapshots()[0].connected)
        await clock.leap(settings.resume_s + 1)
    else:
        assert server.app.registry.dismiss(session.session_id)
    await eventually(lambda: not server.app.registry.snapshots())
    await _assert_erasure_frees_everything(server)


async def test_a_duplicate_message_keeps_no_erased_text(start: StartServer) -> None:
    """Nor the context for the reply that it did not need."""
    server = await start()
    client = await server.session()
    await say(client, SECRET)
    question = "What did I bury under the pear tree?"
    await client.send(question, "m-asked")
    await client.expect_all("response.done", "memory.stored")
    other = await server.session()
    await other.send(question, "m-asked")
    assert (await other.expect("message.accepted"))["duplicate"]
    await _assert_erasure_frees_everything(server)


async def test_erasing_everything_leaves_no_text(start: StartServer) -> None:
    """Ingesting an erased turn later does not remember it."""
    server = await start(pause_ms=50)
    client = await seed_conversation(server)
    relationship, _ = await memory_id(server, SECRET)
    turn = await owner_of(server.app.core).fetchval("SELECT min(id) FROM turns")
    status, _, _ = await request(
        server, "DELETE", f"/v1/relationships/{relationship}/memories?user=ana"
    )
    assert status == 200
    await client.clear_draft()
    text = await stored_text(server)
    assert all(word not in text for word in (WORD, "porto", "scout"))
    await eventually(lambda: not objects_containing(WORD))
    assert not await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns")
    assert await server.app.core.ingester.ingest(relationship, turn) is None


async def test_neighbours_of_an_erased_memory_lose_its_terms(start: StartServer) -> None:
    """They are re-indexed as if it had never been said."""
    server = await start()
    client = await server.session()
    await say(client, "I live in Porto", SECRET, "My dog is called Scout")
    relationship, memory = await memory_id(server, SECRET)
    await request(server, "DELETE", f"/v1/relationships/{relationship}/memories/{memory}?user=ana")
    pool = owner_of(server.app.core)
    terms = {row["term"] for row in await pool.fetch("SELECT term FROM memory_terms")}
    assert terms == {"live", "porto", "dog", "call", "scout"}
    counted = await pool.fetchrow("SELECT memory_count, term_count FROM relationships")
    stored = await pool.fetchrow("SELECT count(*), sum(term_count) FROM memories")
    assert tuple(counted) == pytest.approx(tuple(map(float, stored)))


async def test_memories_without_a_context_window_are_not_reindexed(start: StartServer) -> None:
    """With `read_in_exchange` off, erasure changes no other memory."""
    server = await start(read_in_exchange=False)
    client = await server.session()
    await say(client, "I live in Porto", SECRET, "My dog is called Scout")
    relationship, memory = await memory_id(server, SECRET)
    pool = owner_of(server.app.core)
    others = "SELECT id, embedding::text, words FROM memories WHERE id <> $1 ORDER BY id"
    before = await pool.fetch(others, memory)
    _, _, body = await request(
        server, "DELETE", f"/v1/relationships/{relationship}/memories/{memory}?user=ana"
    )
    assert json.loads(body)["reread"] == 0
    assert await pool.fetch(others, memory) == before


async def test_erasing_a_memory_reinstates_what_it_superseded(start: StartServer) -> None:
    """And deletes the change."""
    server = await start()
    client = await server.session()
    await say(client, "I live in Lisbon", "I moved to Porto")
    relationship, memory = await memory_id(server, "I moved to Porto")
    await request(server, "DELETE", f"/v1/relationships/{relationship}/memories/{memory}?user=ana")
    pool = owner_of(server.app.core)
    assert await pool.fetchval("SELECT superseded_by FROM memories") is None
    assert await pool.fetchval("SELECT count(*) FROM memory_changes") == 0


async def test_memories_of_other_users_cannot_be_erased(start: StartServer) -> None:
    """Nor ones that do not exist: the error is the same."""
    server = await start()
    client = await server.session()
    await say(client, "I live in Porto")
    relationship, memory = await memory_id(server, "I live in Porto")
    for path, param in (
        (f"/v1/relationships/{relationship}/memories/{memory}?user=bo", "id"),
        (f"/v1/relationships/{relationship}/memories/999?user=ana", "memory"),
    ):
        status, _, body = await request(server, "DELETE", path)
        assert (status, json.loads(body)["error"]["param"]) == (404, param)
    assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM memories") == 1


async def test_a_session_is_known_by_the_id_that_its_client_was_told(start: StartServer) -> None:
    """Which is that of a window: what was said in its session is forgotten by it."""
    server = await start()
    client = await server.connect()
    opened = await client.open_session("wren", user_id="ana", name="Ana")
    await say(client, SECRET)
    path = f"/v1/relationships/{opened['relationship_id']}/memories"
    path += f"?user=ana&session={opened['session_id']}"
    _, _, receipt = await request(server, "DELETE", path)
    assert len(json.loads(receipt)["memories"]) == 1
