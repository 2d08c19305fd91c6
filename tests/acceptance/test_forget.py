"""What a user takes back is gone: from every table, index, cache, context and conversation."""

import json
from typing import Any

import pytest

from foremind.client import Client
from foremind.domain.settings import Settings
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.test_http import request
from tests.acceptance.traces import held_in_process, stored_text
from tests.conftest import RunningServer, StartServer, eventually, everything_heard, owner_of

SECRET = "I buried the xylophone under the pear tree"
WORD = "xylophon"  # as it is stemmed


async def say(client: Client, *texts: str) -> None:
    """Say things and wait until each is judged."""
    for text in texts:
        await client.send(text)
        await client.expect_all("response.done", "memory.stored")


async def memory_id(server: RunningServer, content: str) -> tuple[int, int]:
    """The relationship and the memory with this content."""
    row = await owner_of(server.app.core).fetchrow(
        "SELECT relationship_id, id FROM memories WHERE content = $1", content
    )
    return int(row[0]), int(row[1])


async def told(server: RunningServer) -> Client:
    """A talk in which one thing is said, repeated by the companion, recalled and prepared for."""
    client = await server.session()
    await say(
        client, "I live in Porto", SECRET, "My dog is called Scout", "Where is the xylophone?"
    )
    await client.draft("What did I bury?")
    await client.expect("context.ready")
    return client


def quoting(asked: dict[str, Any]) -> list[str]:
    """A model that repeats what it is told."""
    return [asked["messages"][-1]["content"].rpartition("\n\n")[2]]


async def test_a_forgotten_memory_is_nowhere_any_more(start: StartServer) -> None:
    """Its turn, the replies that quote it, its words, vectors, prepared contexts, the history."""
    async with scripted_model(Script(reply=quoting)) as model:
        server = await start(llm_url=model.url, pause_ms=50)
        client = await told(server)
        assert WORD in await stored_text(server)
        assert held_in_process(WORD) >= {"IndexedMemory", "PreparedContext", "PastTurn"}
        relationship, memory = await memory_id(server, SECRET)
        path = f"/v1/relationships/{relationship}/memories/{memory}?user=ana"
        status, _, body = await request(server, "DELETE", path)
        receipt = json.loads(body)
        assert (status, str(memory) in receipt["memories"]) == (200, True)
        # What was said, the reply that repeated it, and the answer to the question about it.
        assert receipt["turns"] == 3
        await _gone(server, model, client)
        # Another question speaks of it, but does not hold what it said.
        assert "where is the xylophone?" in await stored_text(server)


async def _gone(server: RunningServer, model: ScriptedModel, client: Client) -> None:
    assert SECRET.lower() not in await stored_text(server)
    await client.clear_draft()
    await eventually(lambda: not held_in_process(SECRET[:20]))
    await say(client, "What did I bury under the tree?")
    asked = json.dumps(model.script.requests[-1]["messages"])
    assert SECRET not in asked
    assert "Porto" in asked  # the rest of the history is still there


async def _is_let_go(server: RunningServer) -> None:
    """Take the secret back; nothing in the process holds it then."""
    relationship, memory = await memory_id(server, SECRET)
    path = f"/v1/relationships/{relationship}/memories/{memory}?user=ana"
    await request(server, "DELETE", path)
    await everything_heard(server)
    await eventually(lambda: not held_in_process(WORD))


@pytest.mark.parametrize("end", ["nobody came back", "an operator ended it"])
async def test_a_session_that_is_over_holds_nothing(
    start: StartServer, settings: Settings, end: str
) -> None:
    """Nothing tells it any more of what is forgotten."""
    clock = ManualClock()
    server = await start(clock=clock)
    client = await server.session()
    await say(client, "I live in Porto", SECRET)
    (session,) = server.app.registry.listed()
    await client.close()
    if end == "nobody came back":
        await eventually(lambda: not server.app.registry.listed()[0].connected)
        await clock.leap(settings.resume_s + 1)
    else:
        assert server.app.registry.dismiss(session.session_id)
    await eventually(lambda: not server.app.registry.listed())
    await _is_let_go(server)


async def test_a_message_that_was_answered_elsewhere_holds_nothing(start: StartServer) -> None:
    """What its answer would have been made of is let go with it."""
    server = await start()
    client = await server.session()
    await say(client, SECRET)
    asked = "What did I bury under the pear tree?"
    await client.send(asked, "m-asked")
    await client.expect_all("response.done", "memory.stored")
    other = await server.session()
    await other.send(asked, "m-asked")
    assert (await other.expect("message.accepted"))["duplicate"]
    await _is_let_go(server)


async def test_forgetting_everything_leaves_no_text(start: StartServer) -> None:
    """And what was said before a job ran is not remembered by it."""
    server = await start(pause_ms=50)
    client = await told(server)
    relationship, _ = await memory_id(server, SECRET)
    turn = await owner_of(server.app.core).fetchval("SELECT min(id) FROM turns")
    status, _, _ = await request(
        server, "DELETE", f"/v1/relationships/{relationship}/memories?user=ana"
    )
    assert status == 200
    await client.clear_draft()
    text = await stored_text(server)
    assert all(each not in text for each in (WORD, "porto", "scout"))
    await eventually(lambda: not held_in_process(WORD))
    assert not await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns")
    assert await server.app.core.rememberer.remember(relationship, turn) is None


async def test_memories_beside_a_forgotten_one_lose_its_share(start: StartServer) -> None:
    """They end as if it had never been said."""
    server = await start()
    client = await server.session()
    await say(client, "I live in Porto", SECRET, "My dog is called Scout")
    relationship, memory = await memory_id(server, SECRET)
    await request(server, "DELETE", f"/v1/relationships/{relationship}/memories/{memory}?user=ana")
    pool = owner_of(server.app.core)
    words = {row["term"] for row in await pool.fetch("SELECT term FROM memory_terms")}
    assert words == {"live", "porto", "dog", "call", "scout"}
    counted = await pool.fetchrow("SELECT memory_count, term_count FROM relationships")
    held = await pool.fetchrow("SELECT count(*), sum(term_count) FROM memories")
    assert tuple(counted) == pytest.approx(tuple(map(float, held)))


async def test_memories_that_share_nothing_stay_as_they_are(start: StartServer) -> None:
    """A companion that reads every turn alone has none to read anew."""
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


async def test_what_was_superseded_by_a_forgotten_memory_holds_again(start: StartServer) -> None:
    """Nothing contradicts it any more."""
    server = await start()
    client = await server.session()
    await say(client, "I live in Lisbon", "I moved to Porto")
    relationship, memory = await memory_id(server, "I moved to Porto")
    await request(server, "DELETE", f"/v1/relationships/{relationship}/memories/{memory}?user=ana")
    pool = owner_of(server.app.core)
    assert await pool.fetchval("SELECT superseded_by FROM memories") is None
    assert await pool.fetchval("SELECT count(*) FROM memory_changes") == 0


async def test_nobody_forgets_for_another(start: StartServer) -> None:
    """Neither another user's memory nor one that is not there."""
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
