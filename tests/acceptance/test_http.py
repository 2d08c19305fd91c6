"""Plain HTTP: health, readiness, metrics, companions, the page's headers."""

import asyncio
import json
from typing import Any

import pytest

from foremind.domain.companion import CompanionFile, CompanionSettings
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, scripted_model
from tests.conftest import RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token


async def get(server: RunningServer, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """GET a path: status, headers, body."""
    return await request(server, "GET", path, **headers)


async def request(
    server: RunningServer, method: str, path: str, **headers: str
) -> tuple[int, dict[str, str], str]:
    """A request over a real socket: status, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    headers = {"host": "127.0.0.1", "connection": "close"} | headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *rest = head.split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in rest), body


async def test_a_server_says_that_it_is_alive_and_ready(start: StartServer) -> None:
    """Ready means model, database and migrations, everything in the background, and no draining."""
    server = await start()
    assert (await get(server, "/healthz"))[0] == 200
    status, _, body = await get(server, "/readyz")
    assert (status, json.loads(body)) == (
        200,
        {
            "status": "ok",
            "model": "ok",
            "database": "ok",
            "migrations": "ok",
            "background": "ok",
            "server": "ok",
        },
    )


async def test_readiness_names_what_is_missing(start: StartServer) -> None:
    """While it stays alive."""
    server = await start()
    await owner_of(server.app.core).execute("DELETE FROM schema_migrations WHERE number = 2")
    status, _, body = await get(server, "/readyz")
    assert status == 503
    assert json.loads(body)["migrations"].startswith("1 pending")
    assert (await get(server, "/healthz"))[0] == 200


async def test_companions_are_listed_as_players_see_them(start: StartServer) -> None:
    """No persona, no settings."""
    status, _, body = await get(await start(), "/v1/companions")
    (wren,) = json.loads(body)
    assert status == 200
    assert wren.keys() == {"slug", "name", "greeting"}


async def test_metrics_count_and_never_quote(start: StartServer) -> None:
    """Histograms by stage, and no text."""
    server = await start()
    client = await server.session()
    await client.send("I promise to keep the red door secret")
    await client.expect("memory.stored")
    status, _, body = await get(server, "/metrics")
    assert status == 200
    for name in ("embed", "search", "prepare", "ready"):
        assert f'foremind_stage_seconds_count{{stage="{name}"}} 0' not in body
    assert 'foremind_contexts_total{outcome="miss"} 1.0' in body
    assert "foremind_sessions 1.0" in body
    assert "foremind_waiting_jobs" in body
    assert "foremind_curation_oldest_seconds" in body
    assert "red door" not in body


async def test_with_a_secret_http_asks_for_a_token(start: StartServer) -> None:
    """Health stays open, for load balancers; the rest does not."""
    server = await start(auth_secret=SECRET)
    bearer = f"Bearer {token(companions=[])}"
    for path in ("/v1/companions", "/v1/schemas/export", "/metrics"):
        status, _, body = await get(server, path)
        assert (status, json.loads(body)["error"]["code"]) == (401, "not_authenticated")
        if path != "/metrics":
            assert (await get(server, path, Authorization=bearer))[0] == 200
    assert json.loads((await get(server, "/v1/companions", Authorization=bearer))[2]) == []
    assert (await get(server, "/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("scopes", "status"),
    [
        (None, 403),
        (["chat", "memory:read", "memory:write"], 403),
        (["metrics"], 200),
        (["admin"], 200),
    ],
)
async def test_metrics_are_for_who_runs_the_server(
    start: StartServer, scopes: list[str] | None, status: int
) -> None:
    """A token of scope `metrics` opens them and nothing else; a player's does not."""
    server = await start(auth_secret=SECRET)
    bearer = f"Bearer {token(scopes=scopes)}"
    assert (await get(server, "/metrics", authorization=bearer))[0] == status
    if scopes == ["metrics"]:
        assert (await get(server, "/v1/relationships", authorization=bearer))[0] == 403


async def test_readiness_is_looked_at_once_a_second(start: StartServer) -> None:
    """However many ask, of whom nobody is known."""
    clock = ManualClock()
    server = await start(clock)
    asked = server.app.core.database
    looks: list[str] = []
    rows = asked.rows

    async def counted(name: str, *args: object) -> Any:
        looks.append(name)
        return await rows(name, *args)

    asked.rows = counted  # type: ignore[method-assign]
    for expected in (1, 2):
        answers = await asyncio.gather(*(get(server, "/readyz") for _ in range(30)))
        assert {status for status, _, _ in answers} == {200}
        assert looks.count("applied_migrations") == expected
        await clock.advance(1.0)


async def test_the_schema_of_exports_counts_as_a_request(start: StartServer) -> None:
    """Like every other below /v1/, with a token and without one."""
    for settings in ({"auth_secret": SECRET}, {}):
        server = await start(ManualClock(), http_per_s=0.5, **settings)
        bearer = f"Bearer {token(exp=ManualClock().now().timestamp() + 60)}"
        answers = [await get(server, "/v1/schemas/export", authorization=bearer) for _ in range(4)]
        assert [status for status, _, _ in answers] == [200, 200, 429, 429]
        assert int(answers[-1][1]["retry-after"]) >= 1


@pytest.mark.parametrize("path", ["/", "/foremind.js", "/style.css"])
async def test_the_page_loads_nothing_from_elsewhere(start: StartServer, path: str) -> None:
    """And says so to the browser."""
    status, headers, body = await get(await start(), path)
    assert status == 200
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "https://" not in body


async def told(server: RunningServer, *texts: str) -> int:
    """Say things as Ana and return the relationship's id."""
    client = await server.session()
    for text in texts:
        await client.send(text)
        await client.expect("memory.stored")
    _, _, body = await get(server, "/v1/relationships?user=ana")
    (relationship,) = json.loads(body)
    assert (relationship["companion"], relationship["memories"]) == ("wren", len(texts))
    return int(relationship["id"])


async def test_a_user_sees_every_memory_and_why_it_was_kept(start: StartServer) -> None:
    """In pages, in the order in which they were stored."""
    server = await start()
    number = await told(server, "My name is Ana", "I promise to write", "I can't swim")
    path = f"/v1/relationships/{number}/memories?user=ana"
    _, _, body = await get(server, f"{path}&limit=2")
    page = json.loads(body)
    assert [each["content"] for each in page["memories"]] == [
        "My name is Ana",
        "I promise to write",
    ]
    assert page["memories"][0]["reasons"][0] == {"name": "identity", "score": 0.85}
    _, _, body = await get(server, f"{path}&limit=2&after={page['next_after']}")
    rest = json.loads(body)
    assert [each["content"] for each in rest["memories"]] == ["I can't swim"]
    assert rest["next_after"] is None


async def test_the_context_of_a_draft_is_what_the_model_would_be_given(start: StartServer) -> None:
    """Word for word, with its size and what it took; nothing is written by looking."""
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url)
        number = await told(server, "I promise to remember the red door")
        path = f"/v1/relationships/{number}/context?user=ana&draft=What%20about%20the%20door%3F"
        _, _, body = await get(server, path)
        shown = json.loads(body)
        client = await server.session()
        await client.send("What about the door?")
        await client.expect("response.done")
        assert shown["messages"] == model.script.spoken[-1]["messages"]
        memories = shown["layers"]["memories"]
        assert (memories["on"], memories["count"], memories["of"]) == (True, 1, 1)
        # The turn itself stands in the prompt, so its memory is not written a second time.
        assert (memories["tokens"], memories["elsewhere"]) == (0, 1)
        assert shown["layers"]["working"]["turns"] == 2
    assert shown["tokens"] > 0


async def test_a_relationships_settings_say_where_they_come_from(start: StartServer) -> None:
    """And nothing of the operator's model server."""
    server = await start()
    await server.app.core.companions.put(
        CompanionFile("wren", "Wren", "P.", settings=CompanionSettings(recall_limit=3))
    )
    number = await told(server, "My name is Ana")
    _, _, body = await get(server, f"/v1/relationships/{number}/config?user=ana")
    config = json.loads(body)
    assert config["recall_limit"] == {"value": 3, "from": "companion"}
    assert config["pause_ms"] == {"value": 500, "from": "server"}
    assert config.keys().isdisjoint({"llm_url", "llm_model", "llm_key_env"})


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/v1/relationships", 401, "user"),
        ("/v1/relationships/{id}/memories?user=bo", 404, "id"),
        ("/v1/relationships/x/memories?user=ana", 400, "id"),
        ("/v1/relationships/{id}/memories?user=ana&limit=0", 400, "limit"),
        ("/v1/relationships/{id}/memories?user=ana&after=-1", 400, "after"),
        ("/v1/relationships/{id}/context?user=ana", 400, "draft"),
        ("/v1/relationships/{id}/context?user=bo&draft=x", 404, "id"),
    ],
)
async def test_nobody_sees_what_is_not_theirs(
    start: StartServer, path: str, status: int, param: str
) -> None:
    """And a wrong request is told which field is wrong."""
    server = await start()
    number = await told(server, "My name is Ana")
    answered, _, body = await get(server, path.format(id=number))
    assert (answered, json.loads(body)["error"]["param"]) == (status, param)


async def test_with_a_secret_the_token_says_whose_memories(start: StartServer) -> None:
    """Not what the request claims; and a foreign host name is nobody in open mode."""
    guarded = await start(auth_secret=SECRET)
    status, _, _ = await get(guarded, "/v1/relationships?user=ana")
    assert status == 401
    status, _, body = await get(
        guarded, "/v1/relationships?user=bo", authorization=f"Bearer {token()}"
    )
    assert (status, json.loads(body)) == (200, [])
    server = await start()
    status, _, body = await get(server, "/v1/relationships?user=ana", host="evil.example")
    assert (status, json.loads(body)["error"]["param"]) == (401, "host")
