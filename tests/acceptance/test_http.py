"""HTTP: health, readiness, metrics, companions, headers of the page, memories, settings."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token


async def get(server: RunningServer, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """GET a path; return status, headers and body."""
    return await request(server, "GET", path, **headers)


async def request(
    server: RunningServer, method: str, path: str, **headers: str
) -> tuple[int, dict[str, str], str]:
    """Send a request over a real socket; return status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    headers = {"host": "127.0.0.1", "connection": "close"} | headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *rest = head.split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in rest), body


async def test_a_running_server_is_alive_and_ready(start: StartServer) -> None:
    """Ready: what it needs works, it hears of other processes, and it does not drain."""
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
            "announcements": "ok",
            "server": "ok",
        },
    )


async def test_readiness_names_the_problem(start: StartServer) -> None:
    """The server stays alive."""
    server = await start()
    await owner_of(server.app.core).execute("DELETE FROM schema_migrations WHERE number = 1")
    status, _, body = await get(server, "/readyz")
    assert status == 503
    assert json.loads(body)["migrations"].startswith("1 pending")
    assert (await get(server, "/healthz"))[0] == 200


async def test_what_is_wrong_is_said_to_operators_only(start: StartServer) -> None:
    """On this machine, or with a token of scope `metrics`; others read that something is."""
    server = await start(auth_secret=SECRET)
    await owner_of(server.app.core).execute("DELETE FROM schema_migrations WHERE number = 1")
    remote = {"x-forwarded-for": "203.0.113.5"}
    tokens = {
        scope: {"authorization": f"Bearer {token(scopes=[scope])}"}
        for scope in ("chat", "metrics", "admin")
    }
    pending, unsaid = "1 pending: run foremind db migrate", "failed; see the log"
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        for headers, expected in (
            ({}, pending),
            (remote, unsaid),
            (remote | {"authorization": "Bearer x"}, unsaid),
            (remote | tokens["chat"], unsaid),
            (remote | tokens["metrics"], pending),
            (remote | tokens["admin"], pending),
        ):
            answer = await http.get(f"http://127.0.0.1:{server.port}/readyz", headers=headers)
            assert (answer.status_code, answer.json()["migrations"]) == (503, expected)
            assert (answer.json()["database"], answer.json()["server"]) == ("ok", "ok")


async def test_the_list_of_companions_contains_no_personas_or_settings(start: StartServer) -> None:
    status, _, body = await get(await start(), "/v1/companions")
    (wren,) = json.loads(body)
    assert status == 200
    assert wren.keys() == {"slug", "name", "greeting"}


async def test_metrics_contain_no_text_of_users(start: StartServer) -> None:
    """Only counters, gauges and histograms by stage."""
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
    assert "foremind_background_oldest_seconds" in body
    assert "red door" not in body


async def test_http_requires_a_token_where_a_secret_is_set(start: StartServer) -> None:
    """Health checks stay open, for load balancers."""
    server = await start(auth_secret=SECRET)
    bearer = f"Bearer {token(companions=[])}"
    for path in ("/v1/companions", "/v1/schemas/export", "/metrics"):
        status, _, body = await get(server, path)
        assert (status, json.loads(body)["error"]["code"]) == (401, "not_authenticated")
        if path != "/metrics":
            for header in (bearer, bearer.replace("Bearer ", "bearer  ")):
                assert (await get(server, path, Authorization=header))[0] == 200
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
async def test_metrics_require_the_scope_metrics(
    start: StartServer, scopes: list[str] | None, status: int
) -> None:
    """Which grants nothing else; tokens of players do not suffice."""
    server = await start(auth_secret=SECRET)
    bearer = f"Bearer {token(scopes=scopes)}"
    assert (await get(server, "/metrics", authorization=bearer))[0] == status
    if scopes == ["metrics"]:
        assert (await get(server, "/v1/relationships", authorization=bearer))[0] == 403


async def test_readiness_is_checked_at_most_once_a_second(start: StartServer) -> None:
    """However many unauthenticated requests there are."""
    clock = ManualClock()
    server = await start(clock)
    database = server.app.core.database
    queries: list[str] = []
    original_rows = database.rows

    async def counting_rows(name: str, *args: object) -> Any:
        queries.append(name)
        return await original_rows(name, *args)

    database.rows = counting_rows  # type: ignore[method-assign]
    for expected in (1, 2):
        responses = await asyncio.gather(*(get(server, "/readyz") for _ in range(30)))
        assert {status for status, _, _ in responses} == {200}
        assert queries.count("applied_migrations") == expected
        await clock.advance(1.0)


async def test_the_export_schema_is_rate_limited(start: StartServer) -> None:
    """Like every path below /v1/, with a token and in open mode."""
    for settings in ({"auth_secret": SECRET}, {}):
        server = await start(ManualClock(), http_per_s=0.5, **settings)
        bearer = f"Bearer {token(exp=ManualClock().now().timestamp() + 60)}"
        responses = [
            await get(server, "/v1/schemas/export", authorization=bearer) for _ in range(4)
        ]
        assert [status for status, _, _ in responses] == [200, 200, 429, 429]
        assert int(responses[-1][1]["retry-after"]) >= 1


@pytest.mark.parametrize("path", ["/", "/foremind.js", "/style.css"])
async def test_the_page_loads_nothing_from_other_origins(start: StartServer, path: str) -> None:
    """Its content security policy forbids it."""
    status, headers, body = await get(await start(), path)
    assert status == 200
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "https://" not in body


async def relationship_with_messages(server: RunningServer, *texts: str) -> int:
    """Send messages as Ana; return the id of the relationship."""
    client = await server.session()
    for text in texts:
        await client.send(text)
        await client.expect("memory.stored")
    _, _, body = await get(server, "/v1/relationships?user=ana")
    (relationship,) = json.loads(body)
    assert (relationship["companion"], relationship["memories"]) == ("wren", len(texts))
    return int(relationship["id"])


async def test_a_user_sees_every_memory_with_its_reasons(start: StartServer) -> None:
    """In pages, in the order of storage."""
    server = await start()
    number = await relationship_with_messages(
        server, "My name is Ana", "I promise to write", "I can't swim"
    )
    path = f"/v1/relationships/{number}/memories?user=ana"
    _, _, body = await get(server, f"{path}&limit=2")
    page = json.loads(body)
    assert [memory["content"] for memory in page["memories"]] == [
        "My name is Ana",
        "I promise to write",
    ]
    assert page["memories"][0]["reasons"][0] == {"name": "identity", "score": 0.85}
    _, _, body = await get(server, f"{path}&limit=2&after={page['next_after']}")
    last_page = json.loads(body)
    assert [memory["content"] for memory in last_page["memories"]] == ["I can't swim"]
    assert last_page["next_after"] is None


async def test_the_context_view_of_a_draft_is_what_the_model_would_be_given(
    start: StartServer,
) -> None:
    """Word for word, with sizes and counts."""
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url)
        number = await relationship_with_messages(server, "I promise to remember the red door")
        path = f"/v1/relationships/{number}/context?user=ana&draft=What%20about%20the%20door%3F"
        _, _, body = await get(server, path)
        shown = json.loads(body)
        client = await server.session()
        await client.send("What about the door?")
        await client.expect("response.done")
        assert shown["messages"] == model.script.player_requests[-1]["messages"]
        memories = shown["layers"]["memories"]
        assert (memories["on"], memories["count"], memories["of"]) == (True, 1, 1)
        # The turn itself is in the prompt, so its memory is not repeated.
        assert (memories["tokens"], memories["elsewhere"]) == (0, 1)
        assert shown["layers"]["working"]["turns"] == 2
    assert shown["tokens"] > 0


async def test_settings_of_a_relationship_name_their_level(start: StartServer) -> None:
    """Settings of the operator's model server are not shown."""
    server = await start()
    await server.app.core.stores.companions.put(
        CompanionFile("wren", "Wren", "P.", settings=CompanionSettings(recall_limit=3))
    )
    number = await relationship_with_messages(server, "My name is Ana")
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
async def test_relationships_of_other_users_are_not_found(
    start: StartServer, path: str, status: int, param: str
) -> None:
    """Errors for invalid requests name the parameter."""
    server = await start()
    relationship_id = await relationship_with_messages(server, "My name is Ana")
    actual_status, _, body = await get(server, path.format(id=relationship_id))
    assert (actual_status, json.loads(body)["error"]["param"]) == (status, param)


async def test_the_token_determines_the_user(start: StartServer) -> None:
    """Not the parameter `user`; in open mode, requests to a foreign host name have no user."""
    guarded = await start(auth_secret=SECRET)
    status, _, _ = await get(guarded, "/v1/relationships?user=ana")
    assert status == 401
    own = await get(guarded, "/v1/relationships?user=ana", authorization=f"Bearer {token()}")
    assert (own[0], json.loads(own[2])) == (200, [])
    server = await start()
    status, _, body = await get(server, "/v1/relationships?user=ana", host="evil.example")
    assert (status, json.loads(body)["error"]["param"]) == (401, "host")
