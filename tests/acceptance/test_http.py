"""Plain HTTP: health, readiness, metrics, companions, the page's headers."""

import asyncio
import json

import pytest

from tests.conftest import RunningServer, StartServer
from tests.unit.gateway.test_identity import SECRET, token


async def get(server: RunningServer, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """A request over a real socket: status, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *rest = head.split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in rest), body


async def test_a_server_says_that_it_is_alive_and_ready(start: StartServer) -> None:
    """Ready means model, database and migrations."""
    server = await start()
    assert (await get(server, "/healthz"))[0] == 200
    status, _, body = await get(server, "/readyz")
    assert (status, json.loads(body)) == (
        200,
        {"status": "ok", "model": "ok", "database": "ok", "migrations": "ok"},
    )


async def test_readiness_names_what_is_missing(start: StartServer) -> None:
    """While it stays alive."""
    server = await start()
    await server.app.core.database.pool.execute("DELETE FROM schema_migrations WHERE number = 2")
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
    assert "red door" not in body


async def test_with_a_secret_http_asks_for_a_token(start: StartServer) -> None:
    """Health stays open, for load balancers; the rest does not."""
    server = await start(auth_secret=SECRET)
    for path in ("/v1/companions", "/metrics"):
        status, _, body = await get(server, path)
        assert (status, json.loads(body)["error"]["code"]) == (401, "not_authenticated")
        bearer = f"Bearer {token(companions=[])}"
        assert (await get(server, path, Authorization=bearer))[0] == 200
    assert json.loads((await get(server, "/v1/companions", Authorization=bearer))[2]) == []
    assert (await get(server, "/healthz"))[0] == 200


@pytest.mark.parametrize("path", ["/", "/foremind.js", "/style.css"])
async def test_the_page_loads_nothing_from_elsewhere(start: StartServer, path: str) -> None:
    """And says so to the browser."""
    status, headers, body = await get(await start(), path)
    assert status == 200
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "https://" not in body
