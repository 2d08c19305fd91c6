"""The MCP server's tools, called by the protocol's official client over real sockets."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from foremind.domain.companion import CompanionFile
from foremind.domain.errors import SetupError
from foremind.domain.settings.settings import CompanionSettings
from tests.acceptance.test_every_route import assert_refused
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually_async, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

ANA = {"companion": "wren", "user": "ana"}
SAID = "My sister Mira keeps bees in Porto"
#: A message that any server of this protocol answers.
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def url_of(server: RunningServer) -> str:
    """Return the address of the MCP server."""
    return f"http://127.0.0.1:{server.port}/v1/mcp"


@asynccontextmanager
async def client_of(
    server: RunningServer, bearer: str | None = None, mode: Literal["auto", "legacy"] = "auto"
) -> AsyncIterator[Client]:
    """Connect the official client."""
    headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        Client(streamable_http_client(url_of(server), http_client=http), mode=mode) as client,
    ):
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that succeeds, about Ana unless stated otherwise."""
    result = await client.call_tool(tool, ANA | arguments)
    assert not result.is_error, result
    content: dict[str, Any] = result.structured_content
    assert [json.loads(part.text) for part in result.content] == [content]  # type: ignore[union-attr]
    return content


async def refused(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool that is refused, and return the error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    error: dict[str, Any] = result.structured_content["error"]
    return error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_memory_is_kept_recalled_corrected_and_forgotten(
    start: StartServer, mode: Literal["auto", "legacy"]
) -> None:
    """By clients of the present protocol and of earlier ones."""
    server = await start(mcp=True)
    async with client_of(server, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"recall", "remember", "correct", "forget", "context"}
        assert tools["recall"].input_schema["required"] == ["companion", "query"]

        kept = await call(client, "remember", text=SAID, id="m1")
        assert kept["significance"] >= 0.75
        assert await call(client, "remember", text=SAID, id="m1") == kept
        (memory,) = (await call(client, "recall", query="Where are Mira's bees?"))["memories"]
        assert (memory["id"], memory["content"]) == (kept["memory"], SAID)
        assert 0 < memory["score"] <= 1
        assert datetime.fromisoformat(memory["created_at"]).tzinfo is not None

        corrected = "My sister Mira keeps bees in Faro"
        await call(client, "correct", memory=kept["memory"], content=corrected)
        shown = await call(client, "context", draft="Where are Mira's bees?")
        assert [recalled["content"] for recalled in shown["memories"]] == [corrected]
        assert corrected in json.dumps(shown["messages"])

        receipt = await call(client, "forget", memory=kept["memory"])
        assert (receipt["memories"], receipt["turns"]) == ([kept["memory"]], 1)
        assert sum(receipt["layers"].values()) == receipt["records"]
        assert (await call(client, "recall", query="Where are Mira's bees?"))["memories"] == []
    stored = await owner_of(server.app.core).fetch("SELECT content FROM turns")
    assert [row["content"] for row in stored] == [""]


async def test_what_is_said_and_what_a_tool_stores_are_one_memory(start: StartServer) -> None:
    """A companion knows what was stored by a tool; a tool forgets what was said."""
    server = await start(mcp=True)
    session = await server.session()
    await session.send("I promise to name my boat Zephyrine", "m1")
    await session.expect_all("response.done", "memory.stored")
    async with client_of(server) as client:
        (memory,) = (await call(client, "recall", query="What is my boat's name?"))["memories"]
        assert "Zephyrine" in memory["content"]
        await call(client, "remember", text=SAID)
        await session.send("Where does Mira keep her bees?", "m2")
        events = await session.expect_all("context.ready", "response.done")
        assert SAID in [memory["content"] for memory in events["context.ready"]["memories"]]
        receipt = await call(client, "forget", about="Zephyrine")
        assert receipt["memories"] == [memory["id"]]
    assert not await owner_of(server.app.core).fetchval(
        "SELECT count(*) FROM turns WHERE content LIKE '%Zephyrine%'"
    )


async def test_whatever_has_a_word_of_a_memory_recalls_it(start: StartServer) -> None:
    """A few words as well as a question: the recall gate is for what is said in a conversation."""
    memories = (
        "My sister Mira keeps bees", "My secret code is heron", "I work as a nurse in Leipzig",
    )  # fmt: skip
    server = await start(mcp=True)
    async with client_of(server) as client:
        for text in memories:
            await call(client, "remember", text=text)
        for text in memories:
            words = text.split()
            for query in (
                *(word for word in words if len(word) > 3),
                *(" ".join(pair) for pair in pairwise(words) if len(max(pair, key=len)) > 3),
                text.upper(),
            ):
                (best, *_) = (await call(client, "recall", query=query))["memories"] or [None]
                assert best is not None and best["content"] == text, query
        for query in ("job", "profession"):  # in other words
            (best, *_) = (await call(client, "recall", query=query))["memories"]
            assert best["content"] == memories[2], query
        for chatter in ("Mira", "haha yeah"):  # what a conversation does not search for
            shown = await call(client, "context", draft=chatter)
            assert shown["memories"] == [], chatter


async def test_a_search_that_misses_its_deadline_is_no_empty_answer(start: StartServer) -> None:
    """It may be tried again; that nothing is remembered would be false."""
    server = await start(mcp=True, layers_deadline_ms=3000, index_bytes=0)
    async with client_of(server) as client:
        await call(client, "remember", text=SAID)
        async with owner_of(server.app.core).acquire() as raw, raw.transaction():
            await raw.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
            error = await refused(client, "recall", ANA | {"query": "bees"})
        assert (error["code"], error["retryable"]) == ("storage_unavailable", True)
        assert (await call(client, "recall", query="bees"))["memories"]


async def test_what_hardly_matters_is_kept_if_it_is_asked_for(start: StartServer) -> None:
    """In a conversation it would not be."""
    server = await start(mcp=True)
    async with client_of(server) as client:
        kept = await call(client, "remember", text="The kettle was on")
        assert kept["reasons"][0] == {"name": "requested", "score": 0.75}
    owner = owner_of(server.app.core)
    await eventually_async(lambda: owner.fetchval("SELECT count(*) = 0 FROM background_steps"))
    assert await owner.fetchval("SELECT count(*) FROM memories") == 1


async def test_each_error_has_a_type_and_names_the_argument(start: StartServer) -> None:
    """In the shape of all errors of the API; nothing is changed."""
    server = await start(mcp=True)
    async with client_of(server) as client:
        kept = await call(client, "remember", text=SAID)
        for tool, arguments, code, param in (
            ("recall", {"companion": "wren", "query": "Bees?"}, "not_authenticated", "user"),
            ("recall", ANA | {"query": " "}, "invalid_message", "query"),
            ("recall", ANA | {"query": 7}, "invalid_message", "query"),
            ("recall", ANA | {"query": "Bees?", "user": ".."}, "invalid_message", "user"),
            ("recall", ANA | {"query": "Bees?", "companion": "rook"}, "not_found", "companion"),
            ("remember", ANA | {"text": "x" * 20_000}, "invalid_message", "text"),
            ("remember", ANA | {"text": "Bees", "companion": "rook"}, "not_found", "companion"),
            ("correct", ANA | {"memory": "x", "content": "Wasps"}, "invalid_message", "memory"),
            ("correct", ANA | {"memory": "999", "content": "Wasps"}, "not_found", "memory"),
            ("correct", ANA | {"memory": kept["memory"], "content": ""}, "invalid_message",
             "content"),
            ("forget", ANA, "invalid_message", "memory"),
            ("forget", ANA | {"memory": "1", "about": "bees"}, "invalid_message", "memory"),
            ("forget", ANA | {"about": " "}, "invalid_message", "about"),
            ("context", ANA | {"draft": ""}, "invalid_message", "draft"),
            ("dance", ANA, "invalid_message", "name"),
        ):  # fmt: skip
            error = await refused(client, tool, arguments)
            assert (error["code"], error["param"]) == (code, param), (tool, arguments, error)
            assert error["type"] and error["message"]
        error = await refused(client, "recall", ANA | {"query": "Bees?", "abot": "x"})
        assert "abot" in error["message"]
        (memory,) = (await call(client, "recall", query="Where are Mira's bees?"))["memories"]
        assert memory["content"] == SAID


async def test_a_token_bounds_whose_memory_a_tool_touches(start: StartServer) -> None:
    """A player's own, of the companions in it; a host's, of its players, and on record."""
    server = await start(mcp=True, auth_secret=SECRET)
    kept = {"companion": "wren", "text": SAID}
    asked = {"companion": "wren", "query": "Where are Mira's bees?"}
    async with client_of(server, token(sub="ana", name="Ana")) as client:
        assert not (await client.call_tool("remember", kept)).is_error
        assert (await call(client, "recall", query=asked["query"]))["memories"]
        error = await refused(client, "recall", asked | {"user": "ben"})
        assert (error["code"], error["param"]) == ("not_allowed", "user")
    for scopes, tool in ((["memory:write"], "recall"), (["memory:read"], "remember")):
        async with client_of(server, token(sub="ana", scopes=scopes)) as client:
            error = await refused(client, tool, asked if tool == "recall" else kept)
            assert (error["code"], error["param"]) == ("not_allowed", "token")
    async with client_of(server, token(sub="ana", companions=["rook"])) as client:
        assert (await refused(client, "recall", asked))["param"] == "companion"
    async with client_of(server, token(sub="ben")) as client:
        assert (await refused(client, "recall", asked))["code"] == "not_found"
    host = token(sub="game", scopes=["host", "memory:read", "memory:write"])
    async with client_of(server, host) as client:
        assert len((await call(client, "recall", query=asked["query"]))["memories"]) == 1
        await call(client, "remember", text="My name is Ben", user="ben")
    trail = await owner_of(server.app.core).fetch("SELECT actor, action FROM audit ORDER BY id")
    assert [tuple(row) for row in trail] == [("game", "read"), ("game", "change")]
    names = await owner_of(server.app.core).fetch("SELECT name FROM users ORDER BY id")
    assert [row["name"] for row in names] == ["Ana", "ben"]


async def test_nothing_is_kept_of_a_user_whose_consent_is_missing(start: StartServer) -> None:
    """Where the companion needs it."""
    server = await start(mcp=True)
    await server.app.core.stores.companions.put(
        CompanionFile(
            "wren", "Wren", "You are Wren.", settings=CompanionSettings(consent="required")
        )
    )
    async with client_of(server) as client:
        error = await refused(client, "remember", ANA | {"text": SAID})
        assert (error["code"], error["param"]) == ("conflict", "user")
    assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns") == 0


async def test_what_is_remembered_counts_towards_the_messages_of_its_user(
    start: StartServer,
) -> None:
    """So nobody stores more through this door than by talking."""
    server = await start(mcp=True, sends_per_s=0.01)
    async with client_of(server) as client:
        errors = []
        for number in range(8):
            result = await client.call_tool("remember", ANA | {"text": f"{SAID} {number}"})
            if result.is_error:
                errors.append(result.structured_content["error"]["code"])
        await call(client, "recall", query="bees")
    assert errors
    assert set(errors) == {"rate_limited"}


async def test_the_door_is_guarded_as_every_route_is(start: StartServer) -> None:
    """Before the protocol is spoken: tokens, pages, rebound names, methods, sizes, JSON."""
    server = await start(mcp=True, auth_secret=SECRET, http_per_s=1.0)
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    bearer = {"authorization": f"Bearer {token()}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        address = url_of(server)
        unknown = await http.post(address, json=PING)
        assert_refused(unknown, 401)
        assert unknown.headers["www-authenticate"] == "Bearer"
        foreign = {"origin": "http://evil.example"}
        assert_refused(await http.post(address, json=PING, headers=bearer | foreign), 403)
        for method in ("GET", "DELETE"):
            assert_refused(await http.request(method, address, headers=bearer), 405)
        answers = [await http.post(address, json=PING, headers=bearer) for _ in range(10)]
        assert answers[0].json()["result"] == {}
        assert_refused(answers[-1], 429)
    opened = await start(mcp=True)
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        address = url_of(opened)
        rebound = {"host": f"evil.example:{opened.port}"}
        assert_refused(await http.post(address, json=PING, headers=rebound), 401)
        assert_refused(await http.post(address, content=b"x" * 200_001), 413)
        assert_refused(await http.post(address, content=b"["), 400)
        assert_refused(await http.post(address, json=[PING]), 400)
        notified = await http.post(
            address, json={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        assert (notified.status_code, notified.content) == (202, b"")
        answered = await http.post(address, json={"jsonrpc": "2.0", "id": 1, "result": {"a": 1}})
        assert (answered.status_code, answered.content) == (202, b"")


async def test_calls_at_the_same_time_do_not_mix_users(start: StartServer) -> None:
    """Each has the answer to its own question."""
    server = await start(mcp=True)
    users = [f"user{number}" for number in range(8)]
    async with client_of(server) as client:
        await asyncio.gather(
            *(call(client, "remember", user=user, text=f"My cat is {user}y") for user in users)
        )
        found = await asyncio.gather(
            *(call(client, "recall", user=user, query="What is my cat called?") for user in users)
        )
    for user, answer in zip(users, found, strict=True):
        assert [memory["content"] for memory in answer["memories"]] == [f"My cat is {user}y"]


async def test_it_is_off_unless_it_is_asked_for(start: StartServer) -> None:
    """Then a server does not even load the protocol's SDK."""
    server = await start()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.post(url_of(server) + "?user=ana", json=PING)
    assert_refused(response, 404)
    assert "FOREMIND_MCP" in response.json()["error"]["message"]
    script = "import sys, foremind.app.server; sys.exit('mcp' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await process.wait() == 0


async def test_without_its_package_the_server_says_what_to_install(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not start, as nobody would notice that the tools are missing."""
    monkeypatch.delitem(sys.modules, "foremind.api.mcp_server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.types", None)
    with pytest.raises(SetupError, match=r"pip install 'foremind\[mcp\]'"):
        await start(mcp=True)
